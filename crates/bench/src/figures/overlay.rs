//! Overlays sweeps of several servers over one variable in one chart.

use anyhow::Result;
use clap::ValueEnum;

use super::sweeps::{Along, Measure, panel, server_of};
use super::{Drawable, Figure};
use crate::sweep::{Over, SweepResult};

/// Figures for each variable of several sweeps: throughput, p99, and p99 against throughput. The
/// variables of `shown` have figures elsewhere.
pub(super) fn figures(results: &[(String, Drawable)], shown: &[Over]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for over in Over::value_variants().iter().filter(|over| !shown.contains(over)) {
        let sweeps = over_of(results, *over);
        if sweeps.len() < 2 {
            continue;
        }
        for (along, measure) in [
            (Along::Variable, Measure::Rate),
            (Along::Variable, Measure::P99),
            (Along::Rate, Measure::P99),
        ] {
            figures.push(panel(*over, &sweeps, along, measure, ", all servers")?);
        }
    }
    Ok(figures)
}

/// All sweeps over a variable, each with its server's name.
pub(super) fn over_of<'r>(
    results: &'r [(String, Drawable)],
    over: Over,
) -> Vec<(String, &'r SweepResult)> {
    let of = |result: &'r (String, Drawable)| match result {
        (name, Drawable::Sweep(sweep)) if sweep.over == over => {
            let pins = if sweep.pinned { ", pinned" } else { "" };
            Some((format!("{}{pins}", server_of(name, sweep)), &**sweep))
        }
        _ => None,
    };
    results.iter().filter_map(of).collect()
}
