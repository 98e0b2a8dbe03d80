//! Measures the cost of a large key space: one key compared with very many.
//!
//! One server holds all keys. Rounds alternate between one key and random keys, so that each ratio
//! compares neighbours in time.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::load::{Load, fill};
use crate::workload::{Batches, Kind, Workload};
use bench::process::Server;

/// A plan of the measurement.
#[derive(Clone, Debug)]
pub struct KeySpacePlan {
    /// The servers to measure.
    pub servers: Vec<Server>,
    /// Keys stored.
    pub keys: u32,
    /// Bytes of each value.
    pub value_bytes: usize,
    /// Rounds, each of which measures both sides.
    pub rounds: usize,
    /// Length of one measurement.
    pub round: Duration,
    /// The number of connections.
    pub connections: usize,
    /// The core of the servers.
    pub server_core: Option<usize>,
}

/// Measures single gets and 16 pipelined gets. Returns a table for the documentation.
///
/// # Errors
///
/// When a server cannot be started or loses stored values.
pub fn run(plan: &KeySpacePlan, mut progress: impl FnMut(&str)) -> Result<String> {
    let mut table = String::from(
        "| server | gets at once | one key, thousand/s | random keys, thousand/s | random to one |\n\
         | --- | ---: | ---: | ---: | --- |\n",
    );
    for server in &plan.servers {
        let running = server.start(1024, plan.server_core)?;
        progress(&format!("storing {} keys in {running}", plan.keys));
        let workload = |kind| Workload { kind, value_bytes: plan.value_bytes };
        let batches = Batches::new(workload(Kind::Mixed), plan.keys, 0);
        fill(running.address, &batches, 0..plan.keys).context(server.name.clone())?;
        let mut load = Load::connect(&[running.address], plan.connections)?;
        for depth in [1, 16] {
            let (mut one, mut many) = (Vec::new(), Vec::new());
            // The first round is a warm-up.
            for round in 0..=plan.rounds {
                for (kind, rates) in
                    [(Kind::Hot { depth }, &mut one), (Kind::Get { depth }, &mut many)]
                {
                    let mut batches = Batches::new(workload(kind), plan.keys, round as u64);
                    let sample = load.run(&mut batches, depth, plan.round)?;
                    if round > 0 {
                        rates.push(sample.units as f64 / sample.elapsed.as_secs_f64() / 1e3);
                    }
                }
            }
            let mut ratios: Vec<f64> =
                many.iter().zip(&one).map(|(many, one)| many / one).collect();
            let (one, many, ratio) = (median(&mut one), median(&mut many), median(&mut ratios));
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            // Writing to a string cannot fail.
            let _ = writeln!(
                table,
                "| {} | {depth} | {one:.1} | {many:.1} | {ratio:.2} ({least:.2}..{most:.2}) |",
                server.name
            );
        }
    }
    Ok(table)
}

/// Sorts the numbers and returns the middle one.
fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_value() {
        let mut numbers = [3.0, 1.0, 2.0];
        assert!((median(&mut numbers) - 2.0).abs() < f64::EPSILON);
        assert!((numbers[0] - 1.0).abs() < f64::EPSILON);
    }
}
