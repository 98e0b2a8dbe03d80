//! Requests of 100 keys to one server, to two servers with the same keys, and to two that share the
//! keys (section 3.2.3 of the paper). A control group (hence root) limits each server to a tenth of
//! a processor, so that the servers are the bottleneck.

use anyhow::Result;
use processes::Quota;
use std::process::ExitCode;

use crate::rig::{self, Running, free_port, median};

const ROUNDS: usize = 5;
const SECONDS: &str = "2";
const KEYS: u32 = 100;

/// The percentage of a processor that a server has.
const SHARE: u32 = 10;

/// Measures and prints a table.
pub(crate) fn run() -> ExitCode {
    rig::ended("replication", measure())
}

/// A router. It listens at 127.0.0.1 and at ::1, which the choice of a replica treats as two
/// clients.
struct Setup {
    name: &'static str,
    port: u16,
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    // Dropped before the groups are removed.
    let mut quotas = Vec::new();
    let mut running = Running::new();
    let servers = [free_port()?, free_port()?];
    for port in servers {
        let text = port.to_string();
        let words = ["serve", "-l", "127.0.0.1", "-p", &text, "-t", "1", "-u", "root"];
        let pid = running.start(&words, port)?;
        let fill = format!("127.0.0.1:{port}");
        rig::run(&["-s", &fill, "--preload", "--keys", "20000", "--time", "0.2"])?;
        let quota = Quota::new(&pid.to_string(), SHARE)?;
        quota.enter(pid)?;
        quotas.push(quota);
    }
    let [a, b] = servers.map(|port| format!(r#"["127.0.0.1:{port}"]"#));
    let both = format!(r#"["127.0.0.1:{}", "127.0.0.1:{}"]"#, servers[0], servers[1]);
    let routes = [
        ("one server", r#""PoolRoute|A""#),
        (
            "two replicas",
            r#"{"type": "OriginalClientHashRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#,
        ),
        ("two that share the keys", r#""PoolRoute|both""#),
    ];
    let mut setups = Vec::new();
    for (name, route) in routes {
        let port = free_port()?;
        let text = port.to_string();
        let config = format!(
            r#"{{"pools": {{"A": {{"servers": {a}}}, "B": {{"servers": {b}}}, "both": {{"servers": {both}}}}}, "route": {route}}}"#
        );
        let listen = ["--listen-addresses", "127.0.0.1,::1", "--asynclog-disable"];
        running
            .start(&[&["route", "--config", &config, "-p", &text], &listen[..]].concat(), port)?;
        setups.push(Setup { name, port });
    }
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); setups.len()];
    for _ in 0..ROUNDS {
        for (setup, rates) in setups.iter().zip(&mut rates) {
            rates.push(setup.load()?);
        }
    }
    println!(
        "| 100 keys a request, servers with {SHARE} % of a processor each | items/s | to one server, round by round |"
    );
    println!("| --- | ---: | --- |");
    for (setup, of_setup) in setups.iter().zip(&rates) {
        let mut ratios: Vec<f64> =
            of_setup.iter().zip(&rates[0]).map(|(rate, one)| rate / one).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "| {} | {:.0} | {:.2} ({least:.2}..{most:.2}) |",
            setup.name,
            median(of_setup.clone()),
            median(ratios)
        );
    }
    Ok(())
}

impl Setup {
    /// Items per second of two generators.
    fn load(&self) -> Result<f64> {
        let keys = KEYS.to_string();
        let begin = |host: &str| {
            let address = format!("{host}:{}", self.port);
            let words =
                ["-s", &address, "--ratio", "0:1", "--keys", "20000", "-t", "1", "-c", "32"];
            rig::begin(&[&words[..], &["--multiget", &keys, "--time", SECONDS]].concat())
        };
        let runs = [begin("127.0.0.1")?, begin("[::1]")?];
        let mut requests = 0.0;
        for run in runs {
            requests += rig::end(run)?.per_second;
        }
        Ok(requests * f64::from(KEYS))
    }
}
