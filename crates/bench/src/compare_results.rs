//! Compares two results, measure by measure.

use crate::result::RunResult;
use crate::significance::{LEAST, Verdict};

/// One of the two results.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its files.
    pub name: String,
    /// Runs, by the place in a sweep at which they were measured.
    pub points: Vec<(Option<f64>, Vec<RunResult>)>,
}

/// One measure of both results.
#[derive(Clone, Debug)]
pub struct Line {
    /// The place in a sweep.
    pub at: Option<f64>,
    /// The name of the measure.
    pub what: &'static str,
    /// True if more is better.
    pub is_more_better: bool,
    /// True if whole runs were compared, and not their seconds.
    pub is_of_runs: bool,
    /// The verdict; `None` if there are too few values.
    pub verdict: Option<Verdict>,
}

/// A measure: its name, whether more is better, of a run, and of each second of it.
type Measure = (&'static str, bool, fn(&RunResult) -> f64, fn(&RunResult) -> Vec<f64>);

const MEASURES: [Measure; 3] = [
    (
        "requests a second",
        true,
        |run| run.total.rate,
        |run| {
            #[allow(clippy::cast_precision_loss, reason = "counts of one second")]
            let rate = whole_seconds(run).iter().map(|second| second.requests as f64);
            rate.collect()
        },
    ),
    (
        "p50, microseconds",
        false,
        |run| run.total.latency.percentile(50.0),
        |run| whole_seconds(run).iter().map(|second| second.p50).collect(),
    ),
    (
        "p99, microseconds",
        false,
        |run| run.total.latency.percentile(99.0),
        |run| whole_seconds(run).iter().map(|second| second.p99).collect(),
    ),
];

/// The seconds that were measured from end to end: the last may be a part.
fn whole_seconds(run: &RunResult) -> &[crate::result::SecondResult] {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
    let whole = run.seconds as usize;
    &run.series[..whole.min(run.series.len())]
}

/// Everything that both sides have, place by place.
#[must_use]
pub fn lines(base: &Side, other: &Side) -> Vec<Line> {
    let mut lines = Vec::new();
    for (at, first) in &base.points {
        let Some((_, second)) = other.points.iter().find(|(place, _)| place == at) else {
            continue;
        };
        let is_of_runs = first.len() >= LEAST && second.len() >= LEAST;
        for (what, is_more_better, of_run, of_seconds) in MEASURES {
            let values = |runs: &[RunResult]| -> Vec<f64> {
                if is_of_runs {
                    runs.iter().map(of_run).collect()
                } else {
                    runs.iter().flat_map(of_seconds).collect()
                }
            };
            let verdict = Verdict::of(&values(first), &values(second));
            lines.push(Line { at: *at, what, is_more_better, is_of_runs, verdict });
        }
    }
    lines
}

impl Line {
    /// The line in words.
    #[must_use]
    pub fn words(&self) -> &'static str {
        match &self.verdict {
            None => "too few values: five runs, or runs of five seconds, are needed",
            Some(verdict) if !verdict.is_significant() => "no difference beyond chance",
            Some(_) if self.is_worse() => "worse",
            Some(_) => "better",
        }
    }

    /// True if the other is worse, by more than chance.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.verdict.is_some_and(|verdict| {
            verdict.is_significant() && (verdict.ratio > 1.0) != self.is_more_better
        })
    }

    /// The name of what was compared.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        if self.is_of_runs { "runs" } else { "seconds" }
    }
}

impl Side {
    /// Reasons to doubt it.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let runs = self.points.iter().flat_map(|(_, runs)| runs);
        runs.flat_map(RunResult::doubts).map(|doubt| format!("{}: {doubt}", self.name)).collect()
    }
}
