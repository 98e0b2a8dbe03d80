//! The maximum that keeps a bound: a bracket that doubles, then halves, over the rate of an open
//! loop or the number of connections of a closed one.
//!
//! Every point is measured several times, because machines are noisy: it holds if most of its
//! repeats do. The answer is an interval: the greatest point that held and the least one above it
//! that did not.

use serde::{Deserialize, Serialize};

use crate::doubts::by_point;

/// One measured point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Rate, or connections.
    pub at: f64,
    /// The outcome of each repeat, in the order of measuring.
    pub repeats: Vec<Repeat>,
}

/// One measurement of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// True if the bounds held.
    pub held: bool,
    /// Requests answered per second.
    pub rate: f64,
    /// Mean latency in microseconds.
    pub mean: f64,
    /// 99th percentile in microseconds.
    pub p99: f64,
    /// Reasons to doubt it, in plain words.
    #[serde(default)]
    pub doubts: Vec<String>,
}

/// The outcome of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The greatest point that held; `None` if not even the first did.
    pub holds: Option<f64>,
    /// The least point above it that did not hold; `None` if all did, up to the limit.
    pub fails: Option<f64>,
    /// Requests per second at the point that held: median of its repeats, minimum and maximum.
    pub throughput: Option<(f64, f64, f64)>,
    /// Every point, in the order of measuring.
    pub probes: Vec<Probe>,
    /// The reason why the search ended early, if it did: a greater point may hold.
    #[serde(default)]
    pub failure: Option<String>,
}

/// The range of a search.
#[derive(Clone, Copy, Debug)]
pub struct Bracket {
    /// The first point.
    pub first: f64,
    /// No point is greater.
    pub limit: f64,
    /// Stops when the interval is narrower than this share of the point that held.
    pub precision: f64,
    /// Maximum number of measurements per point; a majority decides, and a decided point is not
    /// measured again.
    pub repeats: usize,
    /// Points are whole numbers.
    pub is_whole: bool,
}

impl Found {
    /// Reasons to doubt the answer, in plain words.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let early = self.failure.iter().map(|why| format!("the search ended early: {why}"));
        let points = self.probes.iter().map(|probe| {
            let doubts = probe.repeats.iter().flat_map(|repeat| repeat.doubts.iter().cloned());
            (format!("{:.0}", probe.at), doubts.collect())
        });
        early.chain(by_point("", points)).collect()
    }
}

impl Probe {
    /// True if most of the repeats held.
    #[must_use]
    pub fn held(&self) -> bool {
        self.repeats.iter().filter(|repeat| repeat.held).count() * 2 > self.repeats.len()
    }
}

/// Searches with `measure`, which measures a point once.
///
/// # Errors
///
/// The first error of `measure`.
pub fn search<E>(
    bracket: Bracket,
    mut measure: impl FnMut(f64) -> Result<Option<Repeat>, E>,
) -> Result<Found, E> {
    let mut found =
        Found { holds: None, fails: None, throughput: None, probes: Vec::new(), failure: None };
    let mut at = bracket.round(bracket.first);
    loop {
        let mut probe = Probe { at, repeats: Vec::new() };
        while !bracket.is_decided(&probe) {
            match measure(at)? {
                Some(repeat) => probe.repeats.push(repeat),
                None => return Ok(Found { failure: Some("interrupted".to_owned()), ..found }),
            }
        }
        if probe.held() {
            found.holds = Some(at);
            found.throughput = Some(spread(&probe));
        } else {
            found.fails = Some(at);
        }
        found.probes.push(probe);
        match bracket.next(&found) {
            Some(next) => at = next,
            None => return Ok(found),
        }
    }
}

impl Bracket {
    fn is_decided(&self, probe: &Probe) -> bool {
        let held = probe.repeats.iter().filter(|repeat| repeat.held).count();
        let failed = probe.repeats.len() - held;
        held.max(failed) * 2 > self.repeats
    }

    fn next(&self, found: &Found) -> Option<f64> {
        let next = match (found.holds, found.fails) {
            (Some(holds), None) if holds >= self.limit => return None,
            (Some(holds), None) => (holds * 2.0).min(self.limit),
            (None, Some(fails)) => fails / 2.0,
            (Some(holds), Some(fails)) if fails - holds <= holds * self.precision => return None,
            (Some(holds), Some(fails)) => f64::midpoint(holds, fails),
            (None, None) => self.first,
        };
        let next = self.round(next);
        let is_new = Some(next) != found.holds && Some(next) != found.fails;
        // Below a thousandth of the first point, nothing will hold.
        (is_new && next >= self.first / 1000.0).then_some(next)
    }

    fn round(&self, at: f64) -> f64 {
        if self.is_whole { at.round().max(1.0) } else { at }
    }
}

/// Median, minimum and maximum throughput of a point's repeats that held.
fn spread(probe: &Probe) -> (f64, f64, f64) {
    let held = probe.repeats.iter().filter(|repeat| repeat.held);
    let mut rates: Vec<f64> = held.map(|repeat| repeat.rate).collect();
    rates.sort_by(f64::total_cmp);
    match (rates.first(), rates.get(rates.len() / 2), rates.last()) {
        (Some(least), Some(median), Some(most)) => (*median, *least, *most),
        _ => (0.0, 0.0, 0.0),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn bracket(first: f64) -> Bracket {
        Bracket { first, limit: 1e7, precision: 0.01, repeats: 3, is_whole: false }
    }

    fn until(capacity: f64) -> impl FnMut(f64) -> Result<Option<Repeat>, Infallible> {
        move |at| {
            Ok(Some(Repeat {
                held: at <= capacity,
                rate: at,
                mean: 1.0,
                p99: 2.0,
                doubts: Vec::new(),
            }))
        }
    }

    #[test]
    fn the_interval_encloses_the_capacity() {
        for (first, capacity) in [(1000.0, 375_000.0), (1000.0, 31.0), (1e6, 77_000.0)] {
            let found = search(bracket(first), until(capacity)).unwrap();
            let (holds, fails) = (found.holds.unwrap(), found.fails.unwrap());
            assert!(holds <= capacity && capacity < fails, "{holds} {fails}");
            assert!(fails - holds <= holds * 0.01 + 1e-9);
            assert_eq!(found.throughput, Some((holds, holds, holds)));
        }
    }

    #[test]
    fn a_search_ends_if_no_point_or_every_point_holds() {
        let found = search(bracket(1000.0), until(0.0)).unwrap();
        assert_eq!((found.holds, found.throughput), (None, None));
        let found = search(bracket(1000.0), until(1e9)).unwrap();
        assert_eq!((found.holds, found.fails), (Some(1e7), None));
    }

    #[test]
    fn a_search_over_connections_ends_at_neighbouring_integers() {
        let whole = Bracket { is_whole: true, precision: 0.0, ..bracket(1.0) };
        let found = search(whole, until(84.0)).unwrap();
        assert_eq!((found.holds, found.fails), (Some(84.0), Some(85.0)));
    }

    #[test]
    fn one_bad_repeat_of_three_does_not_decide() {
        let mut count = 0;
        let found = search(bracket(1000.0), |at| {
            count += 1;
            let held = at <= 50_000.0 && count % 3 != 0;
            Ok::<_, Infallible>(Some(Repeat {
                held,
                rate: at,
                mean: 1.0,
                p99: 1.0,
                doubts: Vec::new(),
            }))
        });
        let holds = found.unwrap().holds.unwrap();
        assert!((49_000.0..=50_000.0).contains(&holds), "{holds}");
    }

    #[test]
    fn an_interrupted_search_keeps_its_decided_points() {
        let mut calls = 0;
        let found = search(bracket(1000.0), |at| {
            calls += 1;
            let repeat = Repeat { held: true, rate: at, mean: 1.0, p99: 1.0, doubts: Vec::new() };
            // Two repeats decide a point of three: the third point is interrupted halfway.
            Ok::<_, Infallible>((calls < 6).then_some(repeat))
        });
        let found = found.unwrap();
        assert_eq!((found.holds, found.probes.len()), (Some(2000.0), 2));
        assert_eq!(found.failure.as_deref(), Some("interrupted"));
    }

    #[test]
    fn an_error_ends_the_search() {
        let mut calls = 0;
        let failed = search(bracket(1.0), |_| {
            calls += 1;
            Err::<Option<Repeat>, &str>("gone")
        });
        assert_eq!((failed, calls), (Err("gone"), 1));
    }
}
