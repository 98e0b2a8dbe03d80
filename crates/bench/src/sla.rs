//! Latency bounds: `p99<1ms`, `mean<=100us && p99.73<=1ms`, and any other such conjunction.

use std::fmt;
use std::str::FromStr;

use generator::parse_error::ParseError;
use generator::record::{OpRecord, Second};
use generator::spec::Pace;
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

/// Bounds that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Sla {
    terms: Vec<Term>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Term {
    measure: Measure,
    is_strict: bool,
    bound_nanos: f64,
}

/// The seconds of a run in which a bound broke: the guide observes how often that happens (section
/// 4.3.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Violations {
    /// The bound.
    pub sla: String,
    /// The judged seconds: all of a closed loop, and those of an open loop in which a request was
    /// due.
    pub judged: usize,
    /// The seconds in which the bound broke, from 1.
    pub broken: Vec<usize>,
}

impl Violations {
    /// Judges each second of a run. Their distributions have two digits, so a latency within 1 % of
    /// the bound may be judged either way. In a closed loop, each connection always waits for a
    /// reply, so a second without any broke every bound.
    #[must_use]
    pub fn of(sla: &Sla, pace: Pace, seconds: &[Second]) -> Self {
        let judged = || {
            let numbered = (1..).zip(seconds);
            numbered.filter(|(_, second)| pace == Pace::Closed || !second.latency.is_empty())
        };
        let broken = judged().filter(|(_, second)| !sla.holds_of(&second.latency));
        Self {
            sla: sla.to_string(),
            judged: judged().count(),
            broken: broken.map(|(number, _)| number).collect(),
        }
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} broke in {} of {} seconds", self.sla, self.broken.len(), self.judged)?;
        // A long run lists only the first.
        let listed: Vec<String> = self.broken.iter().take(20).map(ToString::to_string).collect();
        if !listed.is_empty() {
            let more = if listed.len() < self.broken.len() { " and more" } else { "" };
            write!(f, ": {}{more}", listed.join(", "))?;
        }
        Ok(())
    }
}

/// The bounded statistic.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Measure {
    Mean,
    Max,
    Percentile(f64),
}

impl Sla {
    /// True if the latencies of `op` keep every bound. Without measurements, none is kept.
    #[must_use]
    pub fn holds(&self, op: &OpRecord) -> bool {
        self.holds_of(&op.latency)
    }

    /// The same for one distribution, in nanoseconds.
    #[must_use]
    pub fn holds_of<C: Counter>(&self, latency: &Histogram<C>) -> bool {
        !latency.is_empty() && self.terms.iter().all(|term| term.holds(latency))
    }

    /// Prometheus expressions over a histogram in seconds, one of which has a value where the
    /// bounds break; `None` if a bound is on the maximum latency, which no histogram contains.
    pub(crate) fn broken_in(&self, metric: &str, over: &str) -> Option<Vec<String>> {
        let rate = |part: &str, by: &str| format!("sum by ({by}) (rate({metric}_{part}[{over}]))");
        let broken = |term: &Term| {
            let value = match term.measure {
                Measure::Max => return None,
                Measure::Mean => {
                    format!("{} / {}", rate("sum", "instance"), rate("count", "instance"))
                }
                Measure::Percentile(percentile) => {
                    // 99.73 over 100 is not 0.9973 in binary; no percentile has more digits.
                    let quantile = format!("{:.6}", percentile / 100.0);
                    let quantile = quantile.trim_end_matches('0').trim_end_matches('.');
                    format!("histogram_quantile({quantile}, {})", rate("bucket", "le, instance"))
                }
            };
            let sign = if term.is_strict { ">=" } else { ">" };
            Some(format!("{value} {sign} {}", term.bound_nanos / 1e9))
        };
        self.terms.iter().map(broken).collect()
    }

    /// The measured values of the bounded statistics, for example `p99 812.0 us`.
    #[must_use]
    pub fn measured(&self, op: &OpRecord) -> String {
        let shown = self.terms.iter().map(|term| {
            format!("{} {:.1} us", term.measure, term.measure.of(&op.latency) / 1000.0)
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

impl Term {
    fn holds<C: Counter>(self, latency: &Histogram<C>) -> bool {
        let value = self.measure.of(latency);
        if self.is_strict { value < self.bound_nanos } else { value <= self.bound_nanos }
    }
}

impl Measure {
    fn of<C: Counter>(self, latency: &Histogram<C>) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
        match self {
            Self::Mean => latency.mean(),
            Self::Max => latency.max() as f64,
            Self::Percentile(percentile) => latency.value_at_percentile(percentile) as f64,
        }
    }
}

impl FromStr for Sla {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let terms = text.split("&&").map(|term| term.trim().parse()).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }
}

impl FromStr for Term {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let form = "a bound such as p99<1ms or mean<=100us; several are joined by &&";
        let refused = || ParseError::form(text, form);
        let (measure, bound) = text.split_once('<').ok_or_else(refused)?;
        let (is_strict, bound) = match bound.strip_prefix('=') {
            Some(bound) => (false, bound.trim()),
            None => (true, bound.trim()),
        };
        let measure = match measure.trim() {
            "mean" => Measure::Mean,
            "max" => Measure::Max,
            "median" => Measure::Percentile(50.0),
            name => {
                let number = name.strip_prefix('p').and_then(|number| number.parse::<f64>().ok());
                match number {
                    Some(number) if number > 0.0 && number <= 100.0 => Measure::Percentile(number),
                    _ => return Err(refused()),
                }
            }
        };
        let (number, nanos) = if let Some(number) = bound.strip_suffix("us") {
            (number, 1e3)
        } else if let Some(number) = bound.strip_suffix("ms") {
            (number, 1e6)
        } else {
            (bound.strip_suffix('s').ok_or_else(refused)?, 1e9)
        };
        match number.trim().parse::<f64>() {
            Ok(number) if number > 0.0 && number.is_finite() => {
                Ok(Self { measure, is_strict, bound_nanos: number * nanos })
            }
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mean => f.write_str("mean"),
            Self::Max => f.write_str("max"),
            Self::Percentile(percentile) => write!(f, "p{percentile}"),
        }
    }
}

impl fmt::Display for Sla {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, term) in self.terms.iter().enumerate() {
            let and = if index > 0 { " && " } else { "" };
            let sign = if term.is_strict { "<" } else { "<=" };
            let (divisor, unit) = match term.bound_nanos {
                nanos if nanos >= 1e9 => (1e9, "s"),
                nanos if nanos >= 1e6 => (1e6, "ms"),
                _ => (1e3, "us"),
            };
            write!(f, "{and}{}{sign}{}{unit}", term.measure, term.bound_nanos / divisor)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use generator::spec::Arrival;

    fn record(nanos: &[u64]) -> OpRecord {
        let mut op = OpRecord::default();
        nanos.iter().for_each(|nanos| op.latency.saturating_record(*nanos));
        op
    }

    #[test]
    fn bounds_of_the_studies_are_read() {
        for (text, shown) in [
            ("p99<1ms", "p99<1ms"),
            ("mean<=100us && p99.73<=1ms", "mean<=100us && p99.73<=1ms"),
            ("p99.5 <= 0.001s", "p99.5<=1ms"),
            ("median<1ms&&max<2s", "p50<1ms && max<2s"),
        ] {
            assert_eq!(text.parse::<Sla>().unwrap().to_string(), shown);
        }
        for wrong in [
            "",
            "p99",
            "p99<",
            "p99<1",
            "p101<1ms",
            "p0<1ms",
            "x<1ms",
            "p99<-1ms",
            "p99<1ms &&",
            "p99>1ms",
        ] {
            assert!(wrong.parse::<Sla>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_bound_must_hold() {
        let slow = record(&[&[100_000; 98][..], &[5_000_000; 2]].concat());
        let holds = |text: &str| text.parse::<Sla>().unwrap().holds(&slow);
        assert!(holds("p50<1ms") && holds("p98<1ms") && holds("mean<=0.2ms"));
        assert!(!holds("p99<1ms") && !holds("p50<1ms && max<1ms"));
        assert!(!"p50<1ms".parse::<Sla>().unwrap().holds(&OpRecord::default()));
    }

    #[test]
    fn violating_and_silent_closed_loop_seconds_are_counted() {
        let second = |nanos: Option<u64>| {
            let mut latency = Histogram::<u32>::new_with_max(60_000_000_000, 2).unwrap();
            nanos.into_iter().for_each(|nanos| latency.record(nanos).unwrap());
            Second { requests: latency.len(), latency }
        };
        let seconds = [second(Some(500_000)), second(Some(5_000_000)), second(None)];
        let sla = "p99<1ms".parse().unwrap();
        let open = Pace::Open { rate: 0.5, arrival: Arrival::Fixed };
        let found = Violations::of(&sla, open, &seconds);
        assert_eq!((found.judged, found.broken.as_slice()), (2, &[2][..]));
        assert_eq!(found.to_string(), "p99<1ms broke in 1 of 2 seconds: 2");
        let found = Violations::of(&sla, Pace::Closed, &seconds);
        assert_eq!(found.to_string(), "p99<1ms broke in 2 of 3 seconds: 2, 3");
    }
}
