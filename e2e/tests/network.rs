//! Real network failures, in a separate namespace: packets are dropped, connections reset, servers
//! stopped, names not found, and one server is faulty all the time. Other pools are not affected,
//! no client waits for long, everything recovers, and no client gets a wrong value.
//!
//! `INJECTIONS` is the number of troubles. Times are printed, and judged with all the slack that a
//! busy machine may need.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::faulty_server::value_of;
use testkit::rng::seed_from_env;
use testkit::{Fault, FaultyServer, Rng, Router, Server, Wire, eventually, namespace};

/// The time that servers have for a reply.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Maximum time between two probes of a server, apart from a tenth of jitter.
const PROBE: Duration = Duration::from_millis(100);

/// More time than a healthy program needs for anything, however busy the machine.
const PATIENCE: Duration = Duration::from_secs(60);

const KEYS: usize = 200;

/// The name of one pool's server, while names resolve.
const NAME: &str = "cache.test";

/// Troubles, all of which affect the servers of pool A.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Trouble {
    /// Packets to one server are dropped.
    Drop,
    /// Packets to one server are answered with a reset.
    Reset,
    /// One server is stopped.
    Hold,
    /// Packets to all servers of the pool are dropped.
    DropAll,
    /// Names do not resolve while the configuration is reloaded.
    NoNames,
}

const TROUBLES: [Trouble; 5] =
    [Trouble::Drop, Trouble::Reset, Trouble::Hold, Trouble::DropAll, Trouble::NoNames];

#[test]
fn network_troubles_affect_only_their_pool_and_pass() {
    let own_name = "network_troubles_affect_only_their_pool_and_pass";
    if namespace::is_entered(own_name, &["--net", "--mount"]) {
        within();
    }
}

/// Runs a program of the system to completion.
#[track_caller]
fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).status();
    assert!(status.as_ref().is_ok_and(std::process::ExitStatus::success), "{line}: {status:?}");
}

/// A resolver that knows one name, and answers the queries of this namespace.
struct Names {
    resolver: Child,
    file: PathBuf,
}

impl Names {
    fn start() -> Self {
        let file = env::temp_dir().join(format!("network-resolv-{}", std::process::id()));
        fs::write(&file, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n").unwrap();
        // If the path is a symbolic link, its target is covered.
        let covered =
            fs::canonicalize("/etc/resolv.conf").unwrap_or_else(|_| "/etc/resolv.conf".into());
        run(&format!("mount --bind {} {}", file.display(), covered.display()));
        let resolver = Command::new("/usr/sbin/dnsmasq")
            .args(["--no-daemon", "--no-resolv", "--no-hosts", "--conf-file=/dev/null"])
            .args(["--user=root", "--group=root", "--pid-file", "--listen-address=127.0.0.1"])
            .arg(format!("--address=/{NAME}/127.0.0.1"))
            // Makes it answer that there is no IPv6 address, instead of refusing: musl's resolver
            // treats a refusal as a failure of the whole name.
            .arg(format!("--local=/{NAME}/"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let names = Self { resolver, file };
        let found = || std::net::ToSocketAddrs::to_socket_addrs(&(NAME, 1)).is_ok();
        eventually("the name is found", found);
        names
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        let _ = self.resolver.kill();
        let _ = self.resolver.wait();
        let _ = fs::remove_file(&self.file);
    }
}

/// The results of the clients of one pool.
#[derive(Debug, Default)]
struct Seen {
    found: AtomicU64,
    failed: AtomicU64,
}

/// One client's times, with and without trouble.
#[derive(Debug, Default)]
struct Times {
    quiet_us: Vec<u64>,
    troubled_us: Vec<u64>,
}

impl Times {
    fn add(&mut self, mut other: Self) {
        self.quiet_us.append(&mut other.quiet_us);
        self.troubled_us.append(&mut other.troubled_us);
    }

    fn longest_us(&self) -> u64 {
        self.quiet_us.iter().chain(&self.troubled_us).copied().max().unwrap_or(0)
    }
}

/// State shared by all clients.
#[derive(Debug, Default)]
struct Stage {
    is_over: AtomicBool,
    troubles: AtomicUsize,
}

/// Requests keys of a pool, one after the other, until the end; every value must be the key's.
fn client(
    addr: SocketAddr,
    prefix: &'static str,
    seed: u64,
    stage: &Arc<Stage>,
    seen: &Arc<Seen>,
) -> JoinHandle<Times> {
    let (stage, seen) = (Arc::clone(stage), Arc::clone(seen));
    thread::spawn(move || {
        let (mut wire, mut rng, mut times) =
            (Wire::connect(addr), Rng::new(seed), Times::default());
        while !stage.is_over.load(Ordering::SeqCst) {
            let key = format!("{prefix}-{}", rng.below(KEYS));
            let begun = Instant::now();
            wire.send(format!("get {key}\r\n").as_bytes());
            let line = wire.line();
            if line.starts_with("SERVER_ERROR ") {
                seen.failed.fetch_add(1, Ordering::SeqCst);
                // Errors of unavailable servers are immediate; real clients do not retry that fast.
                thread::sleep(Duration::from_millis(1));
            } else {
                let value = value_of(&key);
                assert_eq!(line, format!("VALUE {key} 0 {}", value.len()));
                assert_eq!((wire.line(), wire.line()), (value, "END".to_owned()));
                seen.found.fetch_add(1, Ordering::SeqCst);
            }
            let us = u64::try_from(begun.elapsed().as_micros()).unwrap();
            let is_troubled = stage.troubles.load(Ordering::SeqCst) > 0;
            let list = if is_troubled { &mut times.troubled_us } else { &mut times.quiet_us };
            list.push(us);
        }
        times
    })
}

/// The proxy, its servers, and their troubles.
struct Rig {
    bad: [Server; 2],
    proxy: Router,
    config: String,
    reloads: AtomicU64,
}

impl Rig {
    fn start(bad: [Server; 2], good: &Server, faulty: &FaultyServer) -> Self {
        let [one, two] = bad.each_ref().map(Server::addr);
        let (ms, good) = (TIMEOUT.as_millis(), good.addr());
        // A stall of the whole machine is not the proxy's fault.
        let well_ms = PATIENCE.as_millis();
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": ["{one}", "{two}"], "server_timeout": {ms}}},
                    "L": {{"servers": ["{}"], "server_timeout": {ms}}},
                    "B": {{"servers": ["{good}"], "server_timeout": {well_ms}}},
                    "N": {{"servers": ["{NAME}:{}"], "server_timeout": {well_ms}}}}},
                "route": {{"type": "PrefixSelectorRoute", "wildcard": "PoolRoute|B",
                    "policies": {{"bad": "PoolRoute|A", "lie": "PoolRoute|L", "name": "PoolRoute|N"}}}}}}"#,
            faulty.addr(),
            good.port()
        );
        let probe = (PROBE / 2).as_millis().to_string();
        let probe_max = PROBE.as_millis().to_string();
        let workers = ["--num-proxies", "2", "--gather-below", "1"];
        let probing = ["-r", &probe, "--probe-timeout-max", &probe_max];
        let more = ["--asynclog-disable", "--file-observer-poll-period-ms", "5"];
        let proxy = Router::start(&config, &[&workers[..], &probing, &more].concat());
        Self { bad, proxy, config, reloads: AtomicU64::new(0) }
    }

    fn begin(&self, trouble: Trouble, which: usize) {
        let port = self.bad[which].addr().port();
        match trouble {
            Trouble::Drop => run(&format!("nft add rule ip t o tcp dport {port} drop")),
            Trouble::Reset => {
                run(&format!("nft add rule ip t o tcp dport {port} reject with tcp reset"));
            }
            Trouble::Hold => self.bad[which].signal(Signal::STOP),
            Trouble::DropAll => {
                for server in &self.bad {
                    run(&format!("nft add rule ip t o tcp dport {} drop", server.addr().port()));
                }
            }
            Trouble::NoNames => {
                run("nft add rule ip t o udp dport 53 drop");
                let number = self.reloads.fetch_add(1, Ordering::SeqCst);
                self.proxy.replace_config(&format!("{} // {number}", self.config));
            }
        }
    }

    fn end(&self, trouble: Trouble, which: usize) {
        if trouble == Trouble::Hold {
            self.bad[which].signal(Signal::CONT);
        } else {
            run("nft flush chain ip t o");
        }
    }

    /// Returns the time until keys of both bad servers are found.
    fn recovery(&self) -> Duration {
        let begun = Instant::now();
        let mut wire = self.proxy.connect();
        for key in 0..20 {
            let get = format!("get bad-{key}\r\n");
            eventually("the servers come back", || {
                wire.send(get.as_bytes());
                let is_found = wire.line().starts_with("VALUE ");
                if is_found {
                    let _rest = (wire.line(), wire.line());
                }
                is_found
            });
        }
        begun.elapsed()
    }
}

/// Stores every key of a pool on the server chosen by the pool's hash.
fn fill(proxy: &Router, prefix: &str) {
    let mut wire = proxy.connect();
    for key in (0..KEYS).map(|number| format!("{prefix}-{number}")) {
        let value = value_of(&key);
        let set = format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
        wire.expect(set.as_bytes(), b"STORED\r\n");
    }
}

fn within() {
    run("ip link set lo up");
    run("nft add table ip t");
    run("nft add chain ip t o { type filter hook output priority 0 ; }");
    let _names = Names::start();
    let injections: usize = env::var("INJECTIONS").map_or(25, |count| count.parse().unwrap());
    let bad = [Server::memcached(&[]), Server::memcached(&[])];
    let good = Server::memcached(&[]);
    let faulty = FaultyServer::start(&Fault::ALL, 50, TIMEOUT + Duration::from_millis(50));
    let rig = Rig::start(bad, &good, &faulty);
    ["bad", "good", "name"].iter().for_each(|prefix| fill(&rig.proxy, prefix));

    let stage = Arc::new(Stage::default());
    let prefixes = ["bad", "lie", "good", "name"];
    let seen: BTreeMap<&str, Arc<Seen>> =
        prefixes.iter().map(|prefix| (*prefix, Arc::default())).collect();
    let clients: Vec<_> = [("bad", 1), ("bad", 2), ("lie", 3), ("good", 4), ("name", 5)]
        .into_iter()
        .map(|(prefix, seed)| {
            (prefix, client(rig.proxy.addr(), prefix, seed, &stage, &seen[prefix]))
        })
        .collect();
    let recoveries = inject(&rig, &stage, injections);
    stage.is_over.store(true, Ordering::SeqCst);
    let mut times: BTreeMap<&str, Times> = BTreeMap::new();
    for (prefix, client) in clients {
        times.entry(prefix).or_default().add(client.join().unwrap());
    }
    report(&seen, &mut times, &recoveries, faulty.faults());
    for well in ["good", "name"] {
        assert_eq!(seen[well].failed.load(Ordering::SeqCst), 0, "{well}");
    }
    assert!(seen["bad"].failed.load(Ordering::SeqCst) > 0 && faulty.faults() > 0);
    // Leaves slack for a machine on which this process is not scheduled for seconds.
    let longest = Duration::from_micros(times["bad"].longest_us().max(times["lie"].longest_us()));
    assert!(longest < TIMEOUT + Duration::from_secs(20), "{longest:?}");
}

/// Injects troubles one after the other; returns each one's recovery time.
fn inject(rig: &Rig, stage: &Stage, injections: usize) -> Vec<(Trouble, Duration)> {
    let mut rng = Rng::new(seed_from_env());
    let mut recoveries = Vec::new();
    for number in 0..injections {
        let (trouble, which) = (TROUBLES[number % TROUBLES.len()], rng.below(2));
        stage.troubles.fetch_add(1, Ordering::SeqCst);
        rig.begin(trouble, which);
        // Some long enough for probes to fail as well.
        thread::sleep(Duration::from_millis(20 + rng.below(800) as u64));
        rig.end(trouble, which);
        recoveries.push((trouble, rig.recovery()));
        stage.troubles.fetch_sub(1, Ordering::SeqCst);
        // A similar time without trouble.
        thread::sleep(Duration::from_millis(20 + rng.below(400) as u64));
    }
    recoveries
}

fn p99(list: &mut [u64]) -> u64 {
    list.sort_unstable();
    list.get(list.len() * 99 / 100).copied().unwrap_or(0)
}

fn report(
    seen: &BTreeMap<&str, Arc<Seen>>,
    times: &mut BTreeMap<&str, Times>,
    recoveries: &[(Trouble, Duration)],
    lies: usize,
) {
    println!("{} troubles, {lies} lies, 0 wrong values", recoveries.len());
    let bound_us = u64::try_from((TIMEOUT + Duration::from_millis(50)).as_micros()).unwrap();
    for (prefix, times) in times.iter_mut() {
        let all = times.quiet_us.iter().chain(&times.troubled_us);
        let late = all.filter(|us| **us > bound_us).count();
        let (quiet, troubled) = (p99(&mut times.quiet_us), p99(&mut times.troubled_us));
        println!(
            "{prefix}: {} found, {} failed; p99 {quiet} us without trouble, {troubled} us with ({:.2}); longest {} us, {late} over {bound_us}",
            seen[prefix].found.load(Ordering::SeqCst),
            seen[prefix].failed.load(Ordering::SeqCst),
            troubled as f64 / quiet.max(1) as f64,
            times.longest_us(),
        );
    }
    for trouble in TROUBLES {
        let of_it = recoveries.iter().filter(|(one, _)| *one == trouble);
        let mut ms: Vec<u64> =
            of_it.map(|(_, took)| u64::try_from(took.as_millis()).unwrap()).collect();
        let bound_ms = u64::try_from((PROBE * 2).as_millis()).unwrap();
        let late = ms.iter().filter(|ms| **ms > bound_ms).count();
        ms.sort_unstable();
        let (median, most) = (ms.get(ms.len() / 2), ms.last());
        println!(
            "{trouble:?}: {} times; back after {median:?} ms, {most:?} at the most, {late} over {bound_ms}",
            ms.len()
        );
    }
}
