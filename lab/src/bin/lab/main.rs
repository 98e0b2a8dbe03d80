//! The measurements of `cargo xtask bench`: builds the programs with the release profile and runs
//! them in turn. `server-bench` compares servers on one machine; the others are modules here.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod bystander;
mod eviction;
mod gather;
mod half_load;
mod hostile;
mod invalidation;
mod latency;
mod python;
mod replication;
mod rig;
mod sizing;
mod stalled_worker;
mod telemetry;
mod warmup;
mod window;

use std::process::{Command, ExitCode};

use rig::{cargo, root, target};

const USAGE: &str = "usage: cargo xtask bench MEASUREMENT [OPTIONS]

  server   throughput, server CPU and latency beside memcached and a do-nothing server;
           results in target/bench/server.md and .json
  memory   items kept for each GiB of resident memory, beside memcached; target/bench/memory.md
  herd     database reads with and without leases while keys are invalidated; target/bench/herd.md
  instructions
           instructions a request, counted by callgrind; fails where one has risen by more than a
           tenth over lab/instructions.txt, which --record writes anew
  restart  a cache of 4 GB in a file: how long it is away over a restart, and what it holds then;
           target/bench/restart.md
  keys     one key against a million; target/bench/keys.md
  generator
           one thread of `holdall bench run` beside the least loop that drives the same load
           (lab/benches/generator.rs); prints a table
  router   throughput and CPU of the proxy beside twemproxy and memcached's; target/bench/router.md
  half-load
           what the router adds to a get at half of the load that it can take; prints a table
  replication
           requests of 100 keys to one server, two replicas, two that share (as root); prints a table
  sizing   hit ratio and items that `plan size` promises for ten loads, beside real tiers of that size;
           prints a table
  warmup   a cold cluster filled from a warm one, and from a database; prints a table
  invalidation
           from commit to delete, keys a second from log to cache, packets with and without batches, by
           a MariaDB server and the release build; prints three lines
  latency  one get at a time by UDP, by TCP, and by TCP through the router; prints a table
  python   the library for Python beside pymemcache, aiomcache and emcache, blocking and by asyncio; prints
           a table; takes seconds of each measurement, and rounds
  window   multigets through a shallow queue with windows of several widths, in network
           namespaces (as root); prints a table
  udp      UDP gets beside TCP gets of the same server; target/bench/udp.md
  transient
           share of memory that short-lived keys hold, with and without the ring of transient
           items, beside memcached; target/bench/transient.md
  shift    hit ratio after value sizes have shifted, beside servers that never saw the old size and
           memcached; target/bench/shift.md
  eviction hit ratios of the orders of eviction, each kept all the time and as the trials choose, on
           the loads of `holdall bench hitrate --load`; on a store in this process; prints a table
  gather   processor time of replies whose values are copied, and of those whose values the kernel
           gathers from where they lie; prints a table
  telemetry
           throughput of server and proxy with metrics scraped and exported each second and one request in
           10,000 traced, beside throughput without; prints a table
  stalled-worker
           stores and gets of one worker's clients while the other one is frozen (as root); prints a
           table
  bystander
           the longest wait of a client beside flushes, dumps, statistics, page moves, growth and a
           lower limit, with eight million items; takes 4 GB of memory; prints a table
  hostile  bystanders beside 10,000 hostile clients of server and proxy, with TLS and without, in control
           groups of 1.03 x -m + 64 MB (as root); prints a table
  expiry   latency of gets while a million items expire in one second; target/bench/expiry.md

  Each takes --help; --quick is the short form of `server` that CI runs.
";

const MEASUREMENTS: [&str; 11] = [
    "expiry",
    "herd",
    "instructions",
    "keys",
    "memory",
    "restart",
    "router",
    "server",
    "shift",
    "transient",
    "udp",
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = std::env::set_current_dir(root()) {
        eprintln!("lab: {}: {error}", root().display());
        return ExitCode::FAILURE;
    }
    run(&args)
}

/// Runs the measurement that `args` names.
fn run(args: &[String]) -> ExitCode {
    match args.split_first() {
        Some((name, _)) if name == "bystander" => return bystander::run(),
        Some((name, rest)) if name == "eviction" => return eviction::run(rest),
        Some((name, rest)) if name == "gather" => return gather::run(rest),
        Some((name, _)) if name == "stalled-worker" => return stalled_worker::run(),
        Some((name, _)) if name == "hostile" => return hostile::run(),
        Some((name, _)) if name == "half-load" => return half_load::run(),
        Some((name, _)) if name == "sizing" => return sizing::run(),
        Some((name, _)) if name == "replication" => return replication::run(),
        Some((name, rest)) if name == "warmup" => return warmup::run(rest),
        Some((name, rest)) if name == "invalidation" => return invalidation::run(rest),
        Some((name, rest)) if name == "latency" => return latency::run(rest),
        Some((name, rest)) if name == "python" => return python::run(rest),
        Some((name, rest)) if name == "telemetry" => return telemetry::run(rest),
        Some((name, rest)) if name == "window" => return window::run(rest),
        _ => {}
    }
    let Some((name, rest)) = args
        .split_first()
        .filter(|(name, _)| *name == "generator" || MEASUREMENTS.contains(&name.as_str()))
    else {
        eprint!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let mut build = cargo(["build", "--release", "--locked", "-p", "lab", "-p", "holdall"]);
    let mut bench = if name == "generator" {
        let mut bench = cargo(["bench", "--locked", "-p", "lab", "--bench", "generator", "--"]);
        bench.arg("--folder").arg(target().join("release")).args(rest);
        bench
    } else {
        let mut bench = Command::new(target().join("release/server-bench"));
        bench.args(args).arg("--out").arg(target().join("bench"));
        bench
    };
    for command in [&mut build, &mut bench] {
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(_) => return ExitCode::FAILURE,
            Err(error) => {
                eprintln!("{}: {error}", command.get_program().display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
