//! UDP compared with TCP: the same server, the same number of outstanding requests, in turn.
//!
//! The question is from figure 8 of *Scaling Memcache at Facebook*: 13 % more single gets and 8 %
//! more 10-key gets by UDP. The paper measures servers at their peak. Here the generator has one
//! core, so the table also has the server's CPU time per request and its utilisation.

use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::compare::{Round, Spread};
use crate::load::{Load, check, fill};
use crate::servers::DO_NOTHING;
use crate::udp::UdpLoad;
use crate::workload::{Batches, Kind, Workload};
use bench::process::Server;

/// A plan of a comparison.
#[derive(Clone, Debug)]
pub struct UdpPlan {
    /// The servers to compare; each must answer UDP at its TCP port.
    pub servers: Vec<Server>,
    /// Sizes of values, in bytes.
    pub value_bytes: Vec<usize>,
    /// Rounds. Each round measures every transport once.
    pub rounds: usize,
    /// Length of one measurement.
    pub round: Duration,
    /// Outstanding requests: TCP connections, or UDP sockets times requests of each.
    pub outstanding: usize,
    /// Keys stored before measuring.
    pub keys: u32,
    /// The core of the servers.
    pub server_core: Option<usize>,
}

/// A way of sending requests.
#[derive(Debug)]
enum Transport {
    Tcp(Load),
    Udp(UdpLoad),
}

/// The rounds of one transport.
#[derive(Debug)]
struct Line {
    name: &'static str,
    rounds: Vec<Round>,
    /// The fraction of a core that the server used.
    busy: Vec<f64>,
    lost: u64,
}

/// Single gets and 10-key gets.
const KINDS: [Kind; 2] = [Kind::Get { depth: 1 }, Kind::Multiget { keys: 10 }];

/// Length of a discarded measurement before the first round.
const WARM_UP: Duration = Duration::from_millis(200);

/// Runs the plan and returns the table. Calls `progress` at the start of each measurement.
///
/// # Errors
///
/// When a server cannot be started, loses stored values, or fails during the measurement.
pub fn run(plan: &UdpPlan, mut progress: impl FnMut(&str)) -> Result<String> {
    let mut table = String::from(
        "| server | work | bytes | way | thousand/s | CPU us | server busy | p50 us | p99 us | lost | rate to TCP |\n\
         | --- | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
    );
    for server in plan.servers.iter().filter(|server| server.name != DO_NOTHING) {
        for &value_bytes in &plan.value_bytes {
            for kind in KINDS {
                let workload = Workload { kind, value_bytes };
                let lines = measure(plan, server, workload, &mut progress)?;
                write_lines(&mut table, &server.name, workload, &lines);
            }
        }
    }
    Ok(table)
}

fn measure(
    plan: &UdpPlan,
    server: &Server,
    workload: Workload,
    progress: &mut impl FnMut(&str),
) -> Result<Vec<Line>> {
    let running = server.start(1024, plan.server_core)?;
    let mut batches = Batches::new(workload, plan.keys, 1);
    let refused = fill(running.address, &batches, 0..plan.keys)?;
    ensure!(refused == 0, "{} refused {refused} stores", server.name);
    check(running.address, workload, plan.keys)?;
    let (address, outstanding) = (running.address, plan.outstanding);
    let mut transports = [
        ("TCP", Transport::Tcp(Load::connect(&[address], outstanding)?)),
        ("UDP, a socket a request", Transport::Udp(UdpLoad::connect(address, outstanding, 1)?)),
        ("UDP, one socket", Transport::Udp(UdpLoad::connect(address, 1, outstanding)?)),
    ];
    let mut lines: Vec<Line> = Vec::new();
    for (name, transport) in &mut transports {
        transport.run(&mut batches, workload, WARM_UP.min(plan.round)).context(*name)?;
        lines.push(Line { name, rounds: Vec::new(), busy: Vec::new(), lost: 0 });
    }
    for round in 1..=plan.rounds {
        progress(&format!(
            "{}: {}, {} bytes, round {round}",
            server.name, workload.kind, workload.value_bytes
        ));
        for ((name, transport), line) in transports.iter_mut().zip(&mut lines) {
            let before = running.cpu();
            let (sample, lost) =
                transport.run(&mut batches, workload, plan.round).context(*name)?;
            let used = before.zip(running.cpu()).map(|(before, after)| after - before);
            if let Some(used) = used {
                line.busy.push(used.as_secs_f64() / sample.elapsed.as_secs_f64());
            }
            line.lost += lost;
            line.rounds.push(Round::of(sample, used));
        }
    }
    Ok(lines)
}

impl Transport {
    fn run(
        &mut self,
        batches: &mut Batches,
        workload: Workload,
        duration: Duration,
    ) -> Result<(crate::load::Sample, u64)> {
        // Counts requests, not keys, because figure 8 is in requests.
        match self {
            Self::Tcp(load) => Ok((load.run(batches, 1, duration)?, 0)),
            Self::Udp(load) => load.run(batches, 1, duration),
        }
        .with_context(|| workload.kind.to_string())
    }
}

fn write_lines(table: &mut String, server: &str, workload: Workload, lines: &[Line]) {
    let Some((tcp, _)) = lines.split_first() else { return };
    for line in lines {
        let rate = Spread::of(line.rounds.iter().map(|round| round.rate));
        let cpu = Spread::of(line.rounds.iter().filter_map(|round| round.cpu_us));
        let busy = Spread::of(line.busy.iter().copied());
        let pairs = line.rounds.iter().zip(&tcp.rounds);
        let ratio = Spread::of(pairs.map(|(ours, theirs)| ours.rate / theirs.rate));
        let (Some(rate), Some(ratio)) = (rate, ratio) else { continue };
        let Some(latency) = line.rounds.first().map(|round| &round.latency) else { continue };
        let micros = |quantile| latency.value_at_quantile(quantile) / 1000;
        let shown = |spread: Option<Spread>, scale: f64| {
            spread.map_or_else(|| "-".to_owned(), |spread| format!("{:.2}", spread.median * scale))
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| {server} | {} | {} | {} | {:.1} | {} | {} % | {} | {} | {} | {:.2} ({:.2}..{:.2}) |",
            workload.kind,
            workload.value_bytes,
            line.name,
            rate.median / 1e3,
            shown(cpu, 1.0),
            shown(busy, 100.0),
            micros(0.5),
            micros(0.99),
            line.lost,
            ratio.median,
            ratio.min,
            ratio.max,
        );
    }
}
