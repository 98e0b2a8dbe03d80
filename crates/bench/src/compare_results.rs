//! Compares two results, measure by measure.

use crate::differences;
use crate::result::RunResult;
use crate::significance::{LEAST, Verdict};
use crate::sweep::Over;

/// The place of a point in a sweep: the variable and its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// The variable.
    pub over: Over,
    /// Its value.
    pub at: f64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.at, self.over)
    }
}

/// One of the two results.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its files.
    pub name: String,
    /// Runs, by the place in a sweep at which they were measured.
    pub points: Vec<(Option<Place>, Vec<RunResult>)>,
}

/// One measure of both results.
#[derive(Clone, Debug)]
pub struct Line {
    /// The place in a sweep.
    pub at: Option<Place>,
    /// The name of the measure.
    pub what: &'static str,
    /// True if more is better.
    pub is_more_better: bool,
    /// True if whole runs were compared, not their seconds.
    pub is_of_runs: bool,
    /// The verdict; `None` if there are too few values.
    pub verdict: Option<Verdict>,
}

/// A measure: its name, whether more is better, its value for a run, and for each second of it.
type Measure = (&'static str, bool, fn(&RunResult) -> f64, fn(&RunResult) -> Vec<f64>);

const MEASURES: [Measure; 3] = [
    (
        "requests a second",
        true,
        |run| run.total.rate,
        |run| {
            #[allow(clippy::cast_precision_loss, reason = "counts of one second")]
            let rate = run.whole_series().iter().map(|second| second.requests as f64);
            rate.collect()
        },
    ),
    (
        "p50, microseconds",
        false,
        |run| run.total.latency.percentile(50.0),
        |run| run.whole_series().iter().filter_map(|second| second.p50).collect(),
    ),
    (
        "p99, microseconds",
        false,
        |run| run.total.latency.percentile(99.0),
        |run| run.whole_series().iter().filter_map(|second| second.p99).collect(),
    ),
];

/// The runs of both sides, at each place that both have.
fn pairs<'s>(
    base: &'s Side,
    other: &'s Side,
) -> impl Iterator<Item = (Option<Place>, &'s [RunResult], &'s [RunResult])> {
    base.points.iter().filter_map(|(at, first)| {
        let (_, second) = other.points.iter().find(|(place, _)| place == at)?;
        Some((*at, first.as_slice(), second.as_slice()))
    })
}

/// The places that only one side has.
#[must_use]
pub fn unpaired(base: &Side, other: &Side) -> Vec<Place> {
    let lacks = |side: &Side, at: &Option<Place>| !side.points.iter().any(|(place, _)| place == at);
    let of_base = base.points.iter().map(|(at, _)| at).filter(|at| lacks(other, at));
    let of_other = other.points.iter().map(|(at, _)| at).filter(|at| lacks(base, at));
    of_base.chain(of_other).copied().flatten().collect()
}

/// Reasons to doubt the comparison: differing loads, places that only one side has, and the doubts
/// of each side.
#[must_use]
pub fn doubts(base: &Side, other: &Side) -> Vec<String> {
    let mut doubts = Vec::new();
    for (_, first, second) in pairs(base, other) {
        let differing = differences::between(first.iter().chain(second).map(|run| &run.spec));
        if !differing.is_empty() {
            let doubt = format!("the loads are not the same: {}", differing.join("; "));
            if !doubts.contains(&doubt) {
                doubts.push(doubt);
            }
        }
    }
    let alone: Vec<String> = unpaired(base, other).iter().map(Place::to_string).collect();
    if !alone.is_empty() {
        doubts.push(format!("one side alone has {}", alone.join(", ")));
    }
    doubts.extend(differing_hits(base, other));
    doubts.extend(base.doubts());
    doubts.extend(other.doubts());
    doubts
}

/// True if a side's requests were not all served: then a better figure does not mean a better
/// server.
#[must_use]
pub fn is_undecidable(base: &Side, other: &Side) -> bool {
    let is_broken = |run: &RunResult| {
        let unserved = run.total.refused + run.wrong + run.lost;
        run.failure.is_some() || unserved * UNSERVED_PART > run.total.requests + run.lost
    };
    let mut all = pairs(base, other).flat_map(|(_, first, second)| first.iter().chain(second));
    all.any(is_broken)
}

/// One of this many requests may be refused or lost.
const UNSERVED_PART: u64 = 1000;

/// The difference in hit ratios, in points of percent, from which on the loads differ.
const HITS_DIFFER: f64 = 1.0;

/// The doubts about points at which one side found more keys than the other.
fn differing_hits(base: &Side, other: &Side) -> Vec<String> {
    let mean = |runs: &[RunResult]| {
        let percents: Vec<f64> = runs.iter().filter_map(RunResult::hit_percent).collect();
        #[allow(clippy::cast_precision_loss, reason = "a few runs")]
        let count = percents.len() as f64;
        (count > 0.0).then(|| percents.iter().sum::<f64>() / count)
    };
    let doubts = pairs(base, other).filter_map(|(at, first, second)| {
        let (first, second) = (mean(first)?, mean(second)?);
        let at = at.map(|place| format!("at {place}, ")).unwrap_or_default();
        ((first - second).abs() > HITS_DIFFER)
            .then(|| format!("{at}the hit ratios differ: {first:.1} % and {second:.1} %"))
    });
    doubts.collect()
}

/// Every measure that both sides have, place by place.
#[must_use]
pub fn lines(base: &Side, other: &Side) -> Vec<Line> {
    let mut lines = Vec::new();
    for (at, first, second) in pairs(base, other) {
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
            lines.push(Line { at, what, is_more_better, is_of_runs, verdict });
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

    /// True if the other is worse, beyond chance.
    #[must_use]
    pub fn is_worse(&self) -> bool {
        self.verdict.is_some_and(|verdict| {
            verdict.is_significant() && (verdict.ratio > 1.0) != self.is_more_better
        })
    }

    /// The unit of the comparison.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::SecondResult;
    use generator::Outcome;
    use generator::spec::Spec;

    /// A run of seconds with this many answers, each of which took 80 us.
    fn run(connections: usize, answers: &[u64]) -> RunResult {
        let spec = Spec { connections, ..Spec::default() };
        let seconds = answers.len() as f64;
        let outcome = Outcome { seconds, ..Outcome::default() };
        let mut run = RunResult::new(&spec, &outcome, (None, None), 0).unwrap();
        run.total.requests = 1;
        run.series = answers
            .iter()
            .map(|requests| {
                let time = (*requests > 0).then_some(80.0);
                SecondResult { requests: *requests, p50: time, p99: time, max: time }
            })
            .collect();
        run
    }

    fn side(name: &str, points: Vec<(Option<Place>, RunResult)>) -> Side {
        let points = points.into_iter().map(|(at, run)| (at, vec![run])).collect();
        Side { name: name.to_owned(), points }
    }

    #[test]
    fn seconds_without_replies_have_no_latency_and_are_reported() {
        let sound = side("sound", vec![(None, run(1, &[9; 11]))]);
        let stalled = side("stalled", vec![(None, run(1, &[9, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0]))]);
        let lines = lines(&sound, &stalled);
        let p99 = lines.iter().find(|line| line.what.starts_with("p99")).unwrap();
        let verdict = p99.verdict.unwrap();
        assert_eq!((verdict.base, verdict.other, verdict.values), (80.0, 80.0, (11, 5)));
        let rate = lines[0].verdict.unwrap();
        assert_eq!((rate.base, rate.other, rate.values), (9.0, 0.0, (11, 11)));
        let doubts = doubts(&sound, &stalled);
        assert_eq!(
            doubts,
            ["stalled: nothing was answered in 6 of 11 seconds, which have no latency"]
        );
    }

    #[test]
    fn a_server_that_refuses_requests_or_lost_its_items_is_not_better() {
        let with = |fault: fn(&mut RunResult)| {
            let mut run = run(1, &[9; 11]);
            (run.gets.hits, run.gets.misses, run.total.requests) = (990, 10, 1000);
            fault(&mut run);
            side("r", vec![(None, run)])
        };
        let sound = with(|_| ());
        assert!(!is_undecidable(&sound, &with(|run| run.total.refused = 1)));
        assert!(!is_undecidable(&sound, &with(|run| run.gets.misses = 15)));
        let faults: [fn(&mut RunResult); 4] = [
            |run| run.total.refused = 1000,
            |run| run.wrong = 2,
            |run| run.lost = 2,
            |run| run.failure = Some("closed".to_owned()),
        ];
        for fault in faults {
            assert!(is_undecidable(&sound, &with(fault)) && is_undecidable(&with(fault), &sound));
        }
        // Different hits are a doubt.
        let cold = with(|run| (run.gets.hits, run.gets.misses) = (0, 1000));
        assert!(!is_undecidable(&sound, &cold));
        let doubts = doubts(&sound, &cold);
        assert_eq!(doubts[0], "the hit ratios differ: 99.0 % and 0.0 %");
    }

    #[test]
    fn differing_loads_and_unmatched_points_are_reported() {
        let at = |over, at| Some(Place { over, at });
        let place = at(Over::Connections, 4.0);
        let base = side(
            "a",
            vec![(place, run(4, &[9; 6])), (at(Over::Connections, 8.0), run(8, &[9; 6]))],
        );
        let other = side("b", vec![(place, run(5, &[9; 6]))]);
        assert_eq!(lines(&base, &other).len(), 3);
        assert_eq!(
            doubts(&base, &other),
            [
                "the loads are not the same: connections 4 and 5",
                "one side alone has 8 connections of each generator thread"
            ]
        );
        let sizes = side("c", vec![(at(Over::ValueSize, 4.0), run(4, &[9; 6]))]);
        assert!(lines(&base, &sizes).is_empty());
    }
}
