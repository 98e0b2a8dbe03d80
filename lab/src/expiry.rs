//! Measures the latency of gets while very many items expire in one second.
//!
//! A million short-lived items get the same deadline, and 50 connections read other keys
//! throughout: before that second (the steady state), and from its start until all items are gone,
//! or for two seconds if they stay.

use std::fmt::Write as _;
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::load::{Load, fill};
use crate::lookaside::{Client, Item};
use crate::workload::{Batches, Kind, Workload};
use bench::process::Server;

/// The plan of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct ExpiryPlan {
    /// Items that expire in one second.
    #[arg(long, default_value_t = 1_000_000)]
    pub items: u64,
    /// Rounds, each of which fills every server once.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Seconds from the beginning of a round to that second.
    #[arg(long, default_value_t = 12)]
    pub lead: u64,
    /// Connections at once.
    #[arg(long, default_value_t = 50)]
    pub connections: usize,
}

const MEGABYTES: u32 = 512;
/// Keys that clients read and that do not expire.
const LASTING: u32 = 100_000;
/// Length of one measurement. The items are counted after each.
const SLICE: Duration = Duration::from_millis(100);
/// Length of the measurement before the deadline; it ends a moment earlier.
const STEADY: Duration = Duration::from_secs(3);
const MARGIN: Duration = Duration::from_millis(200);
/// Longest measurement after the deadline.
const STORM: Duration = Duration::from_secs(2);

/// Latencies of gets in both states, for one server.
struct Outcome {
    steady: Histogram<u32>,
    storm: Histogram<u32>,
    /// From the deadline until all were gone; `None` if some stayed in any round.
    gone: Option<Duration>,
}

/// Measures every server in turn. Returns a table.
///
/// # Errors
///
/// When a server does not start, fails, or is not filled before the deadline.
pub fn run(
    plan: &ExpiryPlan,
    servers: &[Server],
    server_core: Option<usize>,
    mut progress: impl FnMut(&str),
) -> Result<String> {
    let mut all = Vec::new();
    for server in servers {
        let histogram = || Histogram::new_with_bounds(100, 10_000_000_000, 3);
        let outcome =
            Outcome { steady: histogram()?, storm: histogram()?, gone: Some(Duration::ZERO) };
        all.push((server, outcome));
    }
    for round in 1..=plan.rounds {
        for (server, outcome) in &mut all {
            progress(&format!("round {round}: {}", server.name));
            measure(plan, server, server_core, outcome)?;
        }
    }
    table(plan, &all)
}

fn measure(
    plan: &ExpiryPlan,
    server: &Server,
    server_core: Option<usize>,
    outcome: &mut Outcome,
) -> Result<()> {
    let running = server.start(MEGABYTES, server_core)?;
    let mut client = Client::connect(running.address)?;
    let workload = Workload { kind: Kind::Get { depth: 1 }, value_bytes: 64 };
    let mut batches = Batches::new(workload, LASTING, 9);
    fill(running.address, &batches, 0..LASTING)?;
    let second = since_1970()?.as_secs() + plan.lead;
    let exptime = u32::try_from(second)?;
    for from in (0..plan.items).step_by(4800) {
        let dying = |number| Item { family: 'd', number, value_bytes: 32, exptime };
        let some: Vec<_> = (from..plan.items.min(from + 4800)).map(dying).collect();
        client.store(&some)?;
    }
    let begins = Duration::from_secs(second);
    let filled = since_1970()?;
    ensure!(filled + STEADY < begins, "not filled in time: ask for a longer --lead");
    thread::sleep(begins - STEADY - filled);
    let mut load = Load::connect(&[running.address], plan.connections)?;
    while since_1970()? + SLICE + MARGIN < begins {
        outcome.steady.add(&load.run(&mut batches, 1, SLICE)?.latency)?;
    }
    ensure!(items(&mut client)? >= plan.items, "items were lost before they expired");
    thread::sleep(begins.saturating_sub(since_1970()?));
    loop {
        outcome.storm.add(&load.run(&mut batches, 1, SLICE)?.latency)?;
        let since = since_1970()?.saturating_sub(begins);
        if items(&mut client)? <= u64::from(LASTING) {
            outcome.gone = outcome.gone.map(|longest| longest.max(since));
            return Ok(());
        }
        if since > STORM {
            outcome.gone = None;
            return Ok(());
        }
    }
}

fn items(client: &mut Client) -> Result<u64> {
    let all = client.stats("")?;
    let items = all.iter().find(|(name, _)| name == "curr_items").context("no curr_items")?;
    Ok(items.1.parse()?)
}

fn since_1970() -> Result<Duration> {
    #[allow(clippy::disallowed_methods, reason = "the deadline is a Unix time")]
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?)
}

fn table(plan: &ExpiryPlan, all: &[(&Server, Outcome)]) -> Result<String> {
    let mut text = format!(
        "{} items expire in one second, {} rounds; microseconds of single gets over {} connections.\n\n\
         | server | p50, steady | while they expire | p99, steady | while they expire | p99.9, steady | while they expire | all gone after, s |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
        plan.items, plan.rounds, plan.connections
    );
    for (server, outcome) in all {
        write!(text, "| {} |", server.name)?;
        for quantile in [0.5, 0.99, 0.999] {
            let us = |of: &Histogram<u32>| of.value_at_quantile(quantile) / 1000;
            write!(text, " {} | {} |", us(&outcome.steady), us(&outcome.storm))?;
        }
        match outcome.gone {
            Some(gone) => writeln!(text, " {:.1} |", gone.as_secs_f64())?,
            None => writeln!(text, " no |")?,
        }
    }
    Ok(text)
}
