//! The latency that the router adds at half of its maximum load: p50 and p99 through the router,
//! directly from the server, and from the do-nothing server (the bare round trip), in turn at the
//! same rate. Latencies count from the time at which a request was due.
//!
//! The same open loop searches for the router's maximum load, because a closed loop sends in bursts
//! and gets a higher throughput.

use std::process::ExitCode;

use anyhow::Result;

use crate::rig::{self, Row, Running, free_port, median};

const ROUNDS: usize = 5;
const SECONDS: &str = "1.5";
const CONNECTIONS: &str = "50";

/// The bound that defines the router's maximum load.
const BOUND: &str = "mean<=1ms";

/// Measures and prints a table.
pub(crate) fn run() -> ExitCode {
    rig::ended("half-load", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall", "-p", "lab"])?;
    let ports = [free_port()?, free_port()?, free_port()?];
    let [bare, server, router] = ports;
    let [bare_port, server_port, router_port] = ports.map(|port| port.to_string());
    let mut running = Running::new();
    running.start_program(&rig::program("do-nothing"), &[&bare_port], bare)?;
    running.start(
        &["serve", "-l", "127.0.0.1", "-p", &server_port, "-t", "1", "-u", "root"],
        server,
    )?;
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["127.0.0.1:{server_port}"]}}}}, "route": "PoolRoute|A"}}"#
    );
    let words = ["route", "--config", &config, "-p", &router_port, "--asynclog-disable"];
    running.start(&words, router)?;
    let addresses = ports.map(|port| format!("127.0.0.1:{port}"));
    let common = ["--ratio", "0:1", "--keys", "20000", "-t", "1", "-c", CONNECTIONS];
    let load =
        |address: &str, words: &[&str]| rig::run(&[&["-s", address], &common[..], words].concat());
    for address in &addresses[1..] {
        load(address, &["--preload", "--time", "0.3"])?;
    }
    let search = ["-s", &addresses[2], "--sla", BOUND, "--from", "20000", "--time", "1"];
    let most = rig::search(&[&search, &common[..]].concat())?;
    let rate = format!("{:.0}", most / 2.0);
    let mut rows: [Vec<Row>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (address, rows) in addresses.iter().zip(&mut rows) {
            rows.push(load(address, &["--time", SECONDS, "--rate", &rate])?);
        }
    }
    println!(
        "the most through the router with {BOUND}: {most:.0} gets/s; each at {rate}/s, medians of {ROUNDS}\n"
    );
    println!("| way | p50 us | p99 us |\n| --- | ---: | ---: |");
    let of = |rows: &[Row], which: fn(&Row) -> f64| median(rows.iter().map(which).collect());
    let figures =
        rows.each_ref().map(|rows| (of(rows, |row| row.p50_us), of(rows, |row| row.p99_us)));
    for (name, (p50, p99)) in ["do-nothing server", "server", "router"].iter().zip(figures) {
        println!("| {name} | {p50:.1} | {p99:.1} |");
    }
    let [bare, server, router] = figures;
    let (p50, p99) = (router.0 - server.0, router.1 - server.1);
    println!("| added by the router | {p50:.1} | {p99:.1} |");
    println!("| added, in bare round trips | {:.2} | {:.2} |", p50 / bare.0, p99 / bare.1);
    Ok(())
}
