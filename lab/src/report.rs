//! The comparison as a table for people (Markdown, which is also readable in a terminal) and as
//! JSON for programs.

use std::fmt::Write;

use hdrhistogram::Histogram;

use crate::compare::{Outcome, Round, Spread};
use crate::servers::{DO_NOTHING, MEMCACHED};

/// One server's rounds of one workload, aggregated.
struct Line<'a> {
    name: &'a str,
    rate: Spread,
    cpu_us: Option<Spread>,
    latency: Histogram<u32>,
    refused: u64,
    rate_to_memcached: Option<Spread>,
    cpu_to_memcached: Option<Spread>,
    rate_to_nothing: Option<Spread>,
}

/// Quantiles of the report.
const QUANTILES: [(&str, f64); 3] = [("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)];

fn lines(outcome: &Outcome) -> impl Iterator<Item = Line<'_>> {
    outcome.servers.iter().filter_map(|(name, rounds)| Line::of(outcome, name, rounds))
}

impl<'a> Line<'a> {
    /// Returns `None` when there are no rounds.
    fn of(outcome: &Outcome, name: &'a str, rounds: &[Round]) -> Option<Self> {
        let (first, others) = rounds.split_first()?;
        let mut latency = first.latency.clone();
        for round in others {
            // All histograms of a run have the same bounds.
            let added = latency.add(&round.latency);
            debug_assert!(added.is_ok());
        }
        let ratio = |base: &str, measure: fn(&Round) -> Option<f64>| {
            (name != base).then(|| outcome.ratio(name, base, measure)).flatten()
        };
        Some(Self {
            name,
            rate: Spread::of(rounds.iter().map(|round| round.rate))?,
            cpu_us: Spread::of(rounds.iter().filter_map(|round| round.cpu_us)),
            latency,
            refused: rounds.iter().map(|round| round.refused).sum(),
            rate_to_memcached: ratio(MEMCACHED, |round| Some(round.rate)),
            cpu_to_memcached: ratio(MEMCACHED, |round| round.cpu_us),
            rate_to_nothing: ratio(DO_NOTHING, |round| Some(round.rate)),
        })
    }

    fn quantiles(&self) -> [f64; 3] {
        QUANTILES.map(|(_, quantile)| micros(&self.latency, quantile))
    }
}

/// The table. Ratios are medians of the rounds' ratios, with minimum and maximum.
#[must_use]
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut text = String::from(
        "| work | bytes | server | thousand/s | CPU us | p50 us | p99 us | p99.9 us | rate to memcached | CPU to memcached | rate to do-nothing |\n\
         | --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |\n",
    );
    for outcome in outcomes {
        for line in lines(outcome) {
            let workload = outcome.workload;
            let [p50, p99, p999] = line.quantiles();
            let cpu = line.cpu_us.map_or_else(|| "-".into(), |cpu| format!("{:.3}", cpu.median));
            let refused = match line.refused {
                0 => String::new(),
                batches => format!(" ({batches} batches refused)"),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "| {} | {} | {}{refused} | {:.1} | {cpu} | {p50:.0} | {p99:.0} | {p999:.0} | {} | {} | {} |",
                workload.kind,
                workload.value_bytes,
                line.name,
                line.rate.median / 1e3,
                range(line.rate_to_memcached),
                range(line.cpu_to_memcached),
                range(line.rate_to_nothing),
            );
        }
    }
    text
}

/// The comparison as a JSON array with one object per workload and server.
#[must_use]
pub fn json(outcomes: &[Outcome]) -> String {
    let mut objects = Vec::new();
    for outcome in outcomes {
        for line in lines(outcome) {
            let mut fields = vec![
                format!("\"workload\": \"{}\"", outcome.workload.kind),
                format!("\"value_bytes\": {}", outcome.workload.value_bytes),
                format!("\"server\": {}", quoted(line.name)),
                format!("\"rate\": {}", spread(Some(line.rate))),
                format!("\"cpu_us\": {}", spread(line.cpu_us)),
                format!("\"refused_batches\": {}", line.refused),
                format!("\"rate_to_memcached\": {}", spread(line.rate_to_memcached)),
                format!("\"cpu_to_memcached\": {}", spread(line.cpu_to_memcached)),
                format!("\"rate_to_do_nothing\": {}", spread(line.rate_to_nothing)),
            ];
            for ((name, _), micros) in QUANTILES.iter().zip(line.quantiles()) {
                fields.push(format!("\"{name}\": {micros:.1}"));
            }
            objects.push(format!("  {{{}}}", fields.join(", ")));
        }
    }
    format!("[\n{}\n]\n", objects.join(",\n"))
}

#[allow(clippy::cast_precision_loss, reason = "latencies are far below 2^52 ns")]
fn micros(latency: &Histogram<u32>, quantile: f64) -> f64 {
    latency.value_at_quantile(quantile) as f64 / 1e3
}

fn range(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "-".to_owned(),
        |spread| format!("{:.2} ({:.2}..{:.2})", spread.median, spread.min, spread.max),
    )
}

fn spread(spread: Option<Spread>) -> String {
    spread.map_or_else(
        || "null".to_owned(),
        |Spread { median, min, max }| {
            format!("{{\"median\": {median:.4}, \"min\": {min:.4}, \"max\": {max:.4}}}")
        },
    )
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Kind, Workload};

    #[test]
    fn both_formats_contain_the_median_ratio() {
        let round = |rate| {
            let mut latency = Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
            latency.record(7000).unwrap();
            Round { rate, cpu_us: Some(2.0), latency, refused: 0 }
        };
        let servers = vec![
            (MEMCACHED.to_owned(), vec![round(1000.0), round(1000.0)]),
            ("holdall".to_owned(), vec![round(2000.0), round(3000.0)]),
        ];
        let workload = Workload { kind: Kind::Get { depth: 16 }, value_bytes: 64 };
        let outcomes = [Outcome { workload, servers }];
        let row = "| get-16 | 64 | holdall | 2.5 | 2.000 | 7 | 7 | 7 | 2.50 (2.00..3.00) | 1.00 (1.00..1.00) | - |";
        assert!(markdown(&outcomes).contains(row), "{}", markdown(&outcomes));
        let json = json(&outcomes);
        assert!(json.contains(
            "\"rate_to_memcached\": {\"median\": 2.5000, \"min\": 2.0000, \"max\": 3.0000}"
        ));
        assert!(json.contains("\"rate_to_do_nothing\": null"));
    }
}
