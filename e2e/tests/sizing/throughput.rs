//! The gets per second of a tier under an SLA, compared with `plan size`'s estimate from one
//! server's measurement by `holdall bench search`.
//!
//! A machine of few cores does not run several servers as several hosts do. So each server, the
//! measured one and those of the tier, has the same share of one processor, by a control group, and
//! the generator has another processor. The kernel grants a share in slices of 10 ms, so the SLA is
//! a multiple of that. It bounds the median, which the other work of a busy machine does not
//! affect. Loops are closed: throughput just below the bound is hardly higher than well below it,
//! so a wrong verdict costs little. A processor's speed changes with its sleep and with a machine's
//! neighbours: the servers' is kept awake, and one server and the tier take short turns.
//!
//! The bench divides keys evenly among servers, whatever their popularity.
//!
//! `SIZING_THROUGHPUT` names loads with commas, or `all`: without it no time is compared.

use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use e2e::folder::Folder;
use processes::{ChildGuard, Quota};
use serde_json::Value;
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch, Router, Server};

use crate::load::{number, size, whole};

/// Each server's percentage of a processor.
const PERCENT: u32 = 10;

/// Maximum difference of gets per second, as a share.
const GETS_OFF_MAX: f64 = 0.1;

/// The number of keys, all of which fit into each server.
const KEYS: u32 = 20_000;

/// Turns of one server and of the tier. The medians of the rounds are compared.
const ROUNDS: usize = 9;

/// The planned load, as a multiple of one server's capacity: three servers suffice, each used to at
/// most four fifths.
const TIMES: f64 = 2.2;

/// A load: popularity, values, and the number of sets for misses in a thousand requests.
struct Load {
    name: &'static str,
    keys: &'static str,
    values: &'static str,
    sets: u32,
}

/// Values of 300 bytes, web-like sizes, and those of Facebook's ETC pool.
const VALUES: [&str; 3] = ["300", "30:25,90:25,300:20,1000:15,3000:10,7000:5", "etc"];

/// Popularity and sizes of the other loads; the sets are their misses, to two digits.
const LOADS: [Load; 10] = [
    Load { name: "zipf", keys: "zipf:0.99", values: VALUES[0], sets: 130 },
    Load { name: "zipf of twice the data", keys: "zipf:0.99", values: VALUES[0], sets: 160 },
    Load { name: "zipf that mostly fits", keys: "zipf:0.99", values: VALUES[0], sets: 90 },
    Load { name: "web", keys: "zipf:0.9", values: VALUES[1], sets: 170 },
    Load { name: "etc", keys: "zipf:0.95", values: VALUES[2], sets: 110 },
    Load { name: "seen once", keys: "zipf:0.9", values: VALUES[0], sets: 360 },
    Load { name: "scans", keys: "zipf:0.9", values: VALUES[0], sets: 340 },
    Load { name: "drift", keys: "zipf:0.9", values: VALUES[0], sets: 270 },
    Load { name: "news", keys: "uniform", values: VALUES[0], sets: 210 },
    Load { name: "bursts", keys: "zipf:0.9", values: VALUES[0], sets: 210 },
];

/// A server within its share of a processor. It exits before its group is removed.
struct Limited {
    server: Server,
    _quota: Quota,
}

impl Limited {
    fn start() -> std::io::Result<Self> {
        let quota = Quota::new(&free_port().to_string(), PERCENT)?;
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", quota.folder().display());
        let launch = Launch::new(Kind::Holdall).args(&["-t", "1", "-m", "128"]);
        Ok(Self {
            server: launch.under(&["taskset", "-c", "1", "sh", "-c", &enter, "sh"]).start(),
            _quota: quota,
        })
    }
}

/// Gets per second of one server, and of the tier planned from them.
#[derive(Clone, Copy)]
struct Round {
    one: f64,
    servers: u64,
    promised: f64,
    found: f64,
}

impl Round {
    /// The relative difference between measurement and promise.
    fn off(&self) -> f64 {
        self.found / self.promised - 1.0
    }
}

impl Load {
    /// Measures one server and a tier in turns.
    fn rounds(&self) -> Vec<Round> {
        let folder = Folder::new("sizing-throughput");
        let part = f64::from(1000 - self.sets) / 1000.0;
        let search = |servers: &[Limited]| {
            let how = "--sla p50<20ms --by connections --from 128 --precision 30";
            let how = words(&format!("{how} --repeats 1 --time 1 --pin 0"));
            let servers: Vec<SocketAddr> =
                servers.iter().map(|limited| limited.server.addr()).collect();
            gets(&bench(folder.path(), "search", &servers, &[how, self.words()].concat()), part)
        };
        let _awake = keep_awake();
        let start = |count| (0..count).map(|_| Limited::start().unwrap()).collect::<Vec<_>>();
        let (alone, mut tier) = (start(1), Vec::new());
        let round = |_| {
            let one = search(&alone);
            let plan = plan(folder.path(), one, 0.0);
            let promised = number(&plan, "/candidates/0/gets_max");
            let servers = whole(number(&plan, "/candidates/0/servers"));
            if tier.is_empty() {
                tier = start(servers);
            }
            assert_eq!(tier.len() as u64, servers, "{}", self.name);
            Round { one, servers, promised, found: search(&tier) }
        };
        (0..ROUNDS).map(round).collect()
    }

    fn words(&self) -> Vec<String> {
        let ratio = format!("{}:{}", self.sets, 1000 - self.sets);
        ["--key-pattern", self.keys, "--value-size", self.values, "--ratio", &ratio]
            .map(str::to_owned)
            .to_vec()
    }
}

/// Runs at the lowest priority on the servers' processor. A processor that sleeps between requests
/// loses speed, and a single server lets it sleep more than a tier does.
fn keep_awake() -> ChildGuard {
    let mut command = Command::new("taskset");
    command.args(["-c", "1", "chrt", "--idle", "0", "sh", "-c", "while :; do :; done"]);
    ChildGuard::from(command.spawn().unwrap())
}

/// Runs `holdall bench` on these servers, and keeps its result.
fn bench(folder: &Path, what: &str, servers: &[SocketAddr], words: &[String]) -> Value {
    let file = folder.join(format!("{what}.json"));
    let mut command = Command::new(holdall_path());
    command.args(["bench", what, "--keys", &KEYS.to_string(), "--preload", "--json"]).arg(&file);
    for server in servers {
        command.args(["-s", &server.to_string()]);
    }
    let output = command.args(words).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}\n{problem}");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// The gets per second of a search's result, where `part` of the requests are gets.
fn gets(found: &Value, part: f64) -> f64 {
    number(found, "/found/throughput/0") * part
}

/// Plans for `TIMES` times the capacity `one` of the server whose search is in `folder`.
fn plan(folder: &Path, one: f64, hot_key_share: f64) -> Value {
    size(
        folder,
        &format!(
            "scenario = \"tolerant\"\n\
             [load]\n\
             gets_per_second = {}\n\
             hot_key_share = {hot_key_share}\n\
             [data]\n\
             items = {KEYS}\n\
             sizes = [[16, 300, 1]]\n\
             [[platform]]\n\
             name = \"a share of this machine\"\n\
             bench = \"search.json\"\n\
             cores = 1\n\
             memory = \"16GB\"\n\
             nic = \"100Gbit\"\n",
            TIMES * one
        ),
    )
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Checks that do not depend on speed: the measured gets determine the number of servers, and the
/// server with the hottest key gets the planned part of the gets.
#[test]
fn a_planned_tier_shares_the_gets_as_planned() {
    let folder = Folder::new("sizing-shares");
    let (hot, part) = (0.2, 0.75);
    let start = || Server::holdall(&["-t", "1", "-m", "64"]);
    let one = start();
    let search =
        words("--ratio 1:3 --sla p99<100s --from 200 --to 200 --time 0.3 --repeats 1 -c 2");
    let one = gets(&bench(folder.path(), "search", &[one.addr()], &search), part);
    let plan = plan(folder.path(), one, hot);
    assert_eq!(whole(number(&plan, "/candidates/0/servers")), 3);
    let most = (1.0 - hot) / 3.0 + hot;
    let promised = number(&plan, "/candidates/0/gets_max");
    assert!((promised * most / one - 1.0).abs() < 1e-9, "{promised} of {one}");

    let servers = [start(), start(), start()];
    let addresses = servers.each_ref().map(Server::addr);
    let proxy = Router::over(&addresses, "\"PoolRoute|all\"", &[]);
    let run = words("--ratio 0:1 --key-pattern hot:0.2 -n 2000 -c 4");
    bench(folder.path(), "run", &[proxy.addr()], &run);
    let counts = servers.each_ref().map(|server| server.stat("cmd_get") as f64);
    let busiest = counts.iter().copied().fold(0.0, f64::max) / counts.iter().sum::<f64>();
    assert!((busiest - most).abs() < 0.03, "{counts:?}: {busiest}, planned {most}");
}

#[test]
fn planned_tiers_reach_the_promised_throughput() {
    let Ok(chosen) = env::var("SIZING_THROUGHPUT") else {
        eprintln!("NOT RUN: SIZING_THROUGHPUT names no loads");
        return;
    };
    if let Err(error) = Limited::start() {
        panic!("no control group: {error}");
    }
    let is_chosen =
        |load: &&Load| chosen == "all" || chosen.split(',').any(|name| name == load.name);
    let mut unkept = Vec::new();
    println!("{:<24} {:>9} servers {:>9} {:>9}", "load", "of one", "promised", "found");
    for load in LOADS.iter().filter(is_chosen) {
        let mut rounds = load.rounds();
        rounds.sort_by(|a, b| a.off().total_cmp(&b.off()));
        let [least, median, most] = [0, ROUNDS / 2, ROUNDS - 1].map(|at| rounds[at].off() * 100.0);
        let Round { one, servers, promised, found } = rounds[ROUNDS / 2];
        let line = format!(
            "{:<24} {one:>9.0} {servers:>7} {promised:>9.0} {found:>9.0} {median:>6.1} % ({least:.1}..{most:.1})",
            load.name,
        );
        println!("{line}");
        if median.abs() > GETS_OFF_MAX * 100.0 {
            unkept.push(line);
        }
    }
    assert!(unkept.is_empty(), "not as promised:\n{}", unkept.join("\n"));
}
