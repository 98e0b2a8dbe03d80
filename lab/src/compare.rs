//! Rounds: every server repeatedly in turn, so that drift affects all equally.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;

use crate::load::{Load, Sample, check, fill};
use crate::servers::DO_NOTHING;
use crate::workload::{Batches, KINDS, Kind, Workload};
use bench::process::{Running, Server};

/// A plan of a comparison.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The servers to compare.
    pub servers: Vec<Server>,
    /// Only the workloads with one of these names; a part of a name selects all workloads that
    /// contain it. Empty means all.
    pub only: Vec<String>,
    /// Sizes of values, in bytes.
    pub value_bytes: Vec<usize>,
    /// Rounds, each of which measures every server once.
    pub rounds: usize,
    /// Length of one measurement.
    pub round: Duration,
    /// The number of connections.
    pub connections: usize,
    /// Keys stored before measuring.
    pub keys: u32,
    /// The core of the servers.
    pub server_core: Option<usize>,
    /// The generator never sleeps ([`Load::polling`]).
    pub polls: bool,
}

/// One server's measurement in one round.
#[derive(Clone, Debug)]
pub struct Round {
    /// Requests (or keys) per second.
    pub rate: f64,
    /// Server CPU per request (or key), in microseconds; `None` for a server that was not started
    /// here.
    pub cpu_us: Option<f64>,
    /// Time from a batch to its last reply, in nanoseconds.
    pub latency: Histogram<u32>,
    /// Batches of sets in which at least one was refused.
    pub refused: u64,
}

/// All rounds of a workload.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The workload.
    pub workload: Workload,
    /// The name of each server and its rounds, in the same order for all.
    pub servers: Vec<(String, Vec<Round>)>,
}

/// Memory of servers that hold all keys, and of those that must evict, in MB.
const MEMORY_MB: u32 = 1024;
const SMALL_MEMORY_MB: u32 = 64;

/// Bytes of values in the key space of the evicting workload: for any size of values, far more than
/// the small memory.
const EVICTING_BYTES: usize = 128 << 20;

/// Length of a discarded measurement before the first round.
const WARM_UP: Duration = Duration::from_millis(200);

/// Runs the plan. Calls `progress` at the start of each measurement.
///
/// # Errors
///
/// When a server cannot be started, loses stored values, or fails during the measurement.
pub fn run(plan: &Plan, mut progress: impl FnMut(&str)) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for &value_bytes in &plan.value_bytes {
        for evicts in [false, true] {
            let kinds = KINDS.iter().filter(|kind| kind.evicts() == evicts);
            let kinds: Vec<Kind> = kinds.copied().filter(|kind| plan.wants(*kind)).collect();
            if !kinds.is_empty() {
                let group = Group::start(plan, value_bytes, evicts, &mut progress)?;
                for kind in kinds {
                    outcomes.push(group.measure(plan, kind, &mut progress)?);
                }
            }
        }
    }
    Ok(outcomes)
}

impl Plan {
    fn wants(&self, kind: Kind) -> bool {
        let name = kind.to_string();
        let is_name = |part: &String| KINDS.iter().any(|kind| kind.to_string() == *part);
        let matches =
            |part: &String| if is_name(part) { name == *part } else { name.contains(part) };
        self.only.is_empty() || self.only.iter().any(matches)
    }
}

/// Servers filled with values of one size.
struct Group {
    value_bytes: usize,
    keys: u32,
    servers: Vec<Running>,
}

impl Group {
    fn start(
        plan: &Plan,
        value_bytes: usize,
        evicts: bool,
        progress: &mut impl FnMut(&str),
    ) -> Result<Self> {
        let memory_mb = if evicts { SMALL_MEMORY_MB } else { MEMORY_MB };
        let keys =
            if evicts { u32::try_from(EVICTING_BYTES / (value_bytes + 64))? } else { plan.keys };
        let workload = Workload { kind: Kind::Mixed, value_bytes };
        let batches = Batches::new(workload, keys, 0);
        let mut servers = Vec::new();
        for server in &plan.servers {
            let running = server.start(memory_mb, plan.server_core)?;
            progress(&format!("storing {keys} values of {value_bytes} bytes in {running}"));
            let refused = fill(running.address, &batches, 0..keys).context(server.name.clone())?;
            ensure!(refused == 0 || evicts, "{} refused {refused} stores", server.name);
            if !evicts && server.name != DO_NOTHING {
                check(running.address, workload, keys).context(server.name.clone())?;
            }
            servers.push(running);
        }
        Ok(Self { value_bytes, keys, servers })
    }

    fn measure(&self, plan: &Plan, kind: Kind, progress: &mut impl FnMut(&str)) -> Result<Outcome> {
        let workload = Workload { kind, value_bytes: self.value_bytes };
        let mut outcome = Outcome { workload, servers: Vec::new() };
        let mut loads = Vec::new();
        for server in &self.servers {
            let load = Load::connect(&server.addresses(), plan.connections)?;
            let mut load = load.polling(plan.polls);
            let mut batches = Batches::new(workload, self.keys, 1);
            load.run(&mut batches, kind.units(), WARM_UP.min(plan.round))
                .with_context(|| format!("{kind} on {}", server.name))?;
            loads.push((load, batches));
            outcome.servers.push((server.name.clone(), Vec::new()));
        }
        for round in 1..=plan.rounds {
            progress(&format!("{kind}, {} bytes, round {round}", self.value_bytes));
            for (index, (load, batches)) in loads.iter_mut().enumerate() {
                let server = &self.servers[index];
                let before = server.cpu();
                let sample = load
                    .run(batches, kind.units(), plan.round)
                    .with_context(|| format!("{kind} on {}", server.name))?;
                let used = before.zip(server.cpu()).map(|(before, after)| after - before);
                outcome.servers[index].1.push(Round::of(sample, used));
            }
        }
        Ok(outcome)
    }
}

impl Round {
    pub(crate) fn of(sample: Sample, cpu: Option<Duration>) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
        let units = sample.units as f64;
        Self {
            rate: units / sample.elapsed.as_secs_f64(),
            cpu_us: cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / units),
            latency: sample.latency,
            refused: sample.refused,
        }
    }
}

/// Median, minimum and maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle value; the mean of two when their number is even.
    pub median: f64,
    /// The minimum.
    pub min: f64,
    /// The maximum.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { median: f64::midpoint(low, high), min, max })
    }
}

impl Outcome {
    /// The ratio of `server` to `base`, computed round by round.
    #[must_use]
    pub fn ratio(
        &self,
        server: &str,
        base: &str,
        measure: impl Fn(&Round) -> Option<f64>,
    ) -> Option<Spread> {
        let rounds = |name: &str| {
            self.servers.iter().find(|(found, _)| found == name).map(|(_, rounds)| rounds)
        };
        let pairs = rounds(server)?.iter().zip(rounds(base)?);
        Spread::of(pairs.filter_map(|(ours, theirs)| Some(measure(ours)? / measure(theirs)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_has_the_median_of_unsorted_values() {
        let spread = Spread::of([3.0, 1.0, 8.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, min: 1.0, max: 8.0 });
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_ratio_compares_paired_rounds() {
        let round =
            |rate| Round { rate, cpu_us: None, latency: Histogram::new(3).unwrap(), refused: 0 };
        let servers = vec![
            ("a".to_owned(), vec![round(10.0), round(30.0), round(100.0)]),
            ("b".to_owned(), vec![round(10.0), round(10.0), round(50.0)]),
        ];
        let workload = Workload { kind: Kind::Mixed, value_bytes: 1 };
        let ratio = Outcome { workload, servers }.ratio("a", "b", |round| Some(round.rate));
        assert_eq!(ratio, Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
    }
}
