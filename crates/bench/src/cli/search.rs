//! `holdall bench search`: the maximum that keeps an SLA.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde::Serialize;

use super::help_groups::grouped;
use super::interrupt;
use super::run::{self, LoadArgs};
use super::{WrongUse, output};
use crate::host::Host;
use crate::listeners;
use crate::result::RunResult;
use crate::sampler::Sampler;
use crate::search::{Bracket, Found, Repeat, search};
use crate::sla::Sla;
use crate::terminal;
use generator::Outcome;
use generator::spec::{Arrival, Pace, Spec};

/// Finds the highest load at which a bound on latency holds.
///
/// By rate, requests are due at times of their own (open loop), and the rate doubles until the
/// bound breaks, then halves between what held and what broke. By connections, every connection
/// asks as fast as it is answered.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, mut_args(grouped))]
pub(super) struct SearchArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Bounds on mean, median, max or any percentile, joined by &&.
    #[arg(long, default_value = "p99<1ms")]
    sla: Sla,
    /// What is raised.
    #[arg(long, value_enum, default_value_t)]
    by: By,
    #[command(flatten)]
    steps: Steps,
    /// Keep the result in this file; `-`: print it, and the text to stderr.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// How a search goes.
#[derive(Debug, Args)]
pub(super) struct Steps {
    /// The first point: requests a second, or connections of each thread.
    #[arg(long, value_name = "POINT")]
    from: Option<f64>,
    /// The last point.
    #[arg(long, value_name = "POINT")]
    to: Option<f64>,
    /// Width of the answer, in percent of what held.
    #[arg(long, default_value_t = 3.0, value_name = "PERCENT")]
    precision: f64,
    /// Measurements of each point; most of them decide.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    time: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum By {
    /// Requests a second of an open loop.
    #[default]
    Rate,
    /// Connections of a closed loop.
    Connections,
}

const EXAMPLES: &str = "\
Examples:
  holdall bench search --preload                                    most requests a second with p99 under 1 ms
  holdall bench search --preload --sla 'mean<=100us && p99.73<=1ms' the guide's compound bound
  holdall bench search --preload --by connections -t 2              where more connections stop helping";

/// The stored result of a search.
#[derive(Debug, Serialize)]
struct SearchResult<'a> {
    schema: &'static str,
    version: u32,
    command: Vec<String>,
    started: u64,
    host: Host,
    spec: &'a Spec,
    sla: String,
    by: By,
    found: &'a Found,
}

pub(super) fn run(args: &SearchArgs) -> Result<ExitCode> {
    let file = output::begun(args.json.as_deref(), &[])?;
    let started = run::now();
    let spec = args.load.spec()?;
    args.steps.bracket(args.by)?;
    if spec.preload {
        run::preload(&spec)?;
    }
    let found = args.steps.search(&spec, &args.sla, args.by, args.load.arrival())?;
    let result = SearchResult {
        schema: "holdall-bench-search",
        version: 1,
        command: std::env::args().collect(),
        started,
        host: Host::here(),
        spec: &spec,
        sla: args.sla.to_string(),
        by: args.by,
        found: &found,
    };
    terminal::print(&args.answer(&found));
    output::keep_with(file, &result, found.doubts())?;
    Ok(if found.holds.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Steps {
    /// Searches, printing each measurement.
    pub(super) fn search(&self, spec: &Spec, sla: &Sla, by: By, arrival: Arrival) -> Result<Found> {
        let mut spec = spec.clone();
        (spec.seconds, spec.warm_up) = (self.time, (self.time / 4.0).min(1.0));
        search(self.bracket(by)?, |at| measure(&spec, sla, by, arrival, at))
    }

    /// The bounds of a search, if they are valid.
    pub(super) fn bracket(&self, by: By) -> Result<Bracket> {
        let (first, limit) = match by {
            By::Rate => (self.from.unwrap_or(10_000.0), self.to.unwrap_or(1e8)),
            By::Connections => (self.from.unwrap_or(1.0), self.to.unwrap_or(10_000.0)),
        };
        if !(first > 0.0 && first <= limit) {
            bail!(WrongUse(format!(
                "the first point, {first}, must be above 0 and not above the last, {limit}"
            )));
        }
        if self.repeats == 0 || self.precision.is_nan() || self.precision <= 0.0 {
            bail!(WrongUse("--repeats and --precision must be above 0".to_owned()));
        }
        Ok(Bracket {
            first,
            limit,
            precision: self.precision / 100.0,
            repeats: self.repeats,
            is_whole: by == By::Connections,
        })
    }
}
fn measure(spec: &Spec, sla: &Sla, by: By, arrival: Arrival, at: f64) -> Result<Option<Repeat>> {
    let mut spec = spec.clone();
    match by {
        By::Rate => spec.pace = Pace::Open { rate: at, arrival },
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
        By::Connections => spec.connections = at as usize,
    }
    let servers = listeners::pids_of(&spec.targets);
    let warm_up = Duration::from_secs_f64(spec.warm_up);
    let sampler = Sampler::begin(servers, warm_up, Duration::from_secs(1), |_| ());
    let outcome = generator::run(&spec, &interrupt::progress())?;
    let series = sampler.end();
    // An interrupted measurement does not judge its point.
    if interrupt::happened() {
        return Ok(None);
    }
    if let Some(failure) = &outcome.failure {
        bail!("at {at:.0}: {failure}");
    }
    let total = outcome.record.total();
    let result = RunResult::new(&spec, &outcome, (None, series), run::now())?;
    let broken = broken_by(sla, &outcome, &result);
    let (broken, unserved) = broken.unzip();
    let repeat = Repeat {
        held: broken.is_none(),
        rate: result.total.rate,
        mean: result.total.latency.mean,
        p99: result.total.latency.percentile(99.0),
        doubts: [result.doubts_of_conditions(), unserved.unwrap_or_default()].concat(),
    };
    let verdict = broken.unwrap_or_else(|| "held".to_owned());
    terminal::print(&format!(
        "{:>12.0} {:12} {:>10.0} requests a second, {}: {verdict}\n",
        at,
        by.unit(),
        repeat.rate,
        sla.measured(&total)
    ));
    Ok(Some(repeat))
}

/// The reason why a bound did not hold, in words, and the doubts that it raises; `None` if it held.
/// Requests that were refused, lost or not answered kept no bound, and an unreached rate keeps it
/// only until enough requests wait. Overload also loses requests, so only those that decide alone
/// are a doubt.
fn broken_by(sla: &Sla, outcome: &Outcome, result: &RunResult) -> Option<(String, Vec<String>)> {
    if outcome.is_overloaded || result.missed_rate().is_some() {
        return Some(("broke, the rate was not reached".to_owned(), Vec::new()));
    }
    if !sla.holds(&outcome.record.total()) || outcome.record.unanswered > 0 {
        return Some(("broke".to_owned(), Vec::new()));
    }
    let unserved = result.unserved();
    let reason = unserved.first().map(|first| format!("broke, {first}"))?;
    Some((reason, unserved))
}

impl By {
    fn unit(self) -> &'static str {
        match self {
            Self::Rate => "a second",
            Self::Connections => "connections",
        }
    }
}

impl SearchArgs {
    fn answer(&self, found: &Found) -> String {
        let mut text = String::new();
        for doubt in found.doubts() {
            let _ = writeln!(text, "\ndoubt: {doubt}");
        }
        let unit = self.by.unit();
        let _ = match (found.holds, found.fails, found.throughput) {
            (Some(holds), fails, Some((median, least, most))) => {
                let above = match fails {
                    Some(fails) => format!("{fails:.0} does not"),
                    None => "nothing above was tried".to_owned(),
                };
                writeln!(
                    text,
                    "\n{} holds at {holds:.0} {unit} ({above}): {median:.0} requests a second ({least:.0} to {most:.0})",
                    self.sla
                )
            }
            _ if found.probes.is_empty() => writeln!(text, "\nno point was measured"),
            _ => writeln!(text, "\n{} holds nowhere, not even at the least {unit} tried", self.sla),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reason why a bound did not hold in a run of ten seconds at this rate.
    fn broken(rate: f64, fault: impl Fn(&mut Outcome)) -> Option<String> {
        let pace = Pace::Open { rate, arrival: Arrival::Fixed };
        let spec = Spec { pace, ..Spec::default() };
        let mut outcome = Outcome { seconds: 10.0, elapsed: 10.0, ..Outcome::default() };
        let sets = &mut outcome.record.sets;
        (sets.requests, sets.in_time) = (1000, 1000);
        sets.latency.saturating_record_n(1000, 1000);
        fault(&mut outcome);
        let result = RunResult::new(&spec, &outcome, (None, None), 0).unwrap();
        broken_by(&"p99<1ms".parse().unwrap(), &outcome, &result).map(|(reason, _)| reason)
    }

    #[test]
    fn a_bound_does_not_hold_if_requests_were_not_served() {
        assert_eq!(broken(100.0, |_| ()), None);
        let words = broken(100.0, |outcome| outcome.record.sets.refused = 1000).unwrap();
        assert_eq!(words, "broke, 1000 requests were refused");
        let words = broken(100.0, |outcome| outcome.record.lost = 1).unwrap();
        assert_eq!(words, "broke, 1 UDP requests were lost; they are in no latency");
        let words = broken(140.0, |outcome| outcome.record.lost = 400).unwrap();
        assert_eq!(words, "broke, the rate was not reached");
        let words = broken(100.0, |outcome| outcome.record.wrong = 3).unwrap();
        assert_eq!(words, "broke, 3 values were not what had been stored");
        assert_eq!(broken(100.0, |outcome| outcome.record.unanswered = 1).unwrap(), "broke");
    }
}
