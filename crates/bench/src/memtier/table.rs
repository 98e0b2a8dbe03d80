//! memtier_benchmark's text, which scripts read: its table of all requests, and the distribution.
//!
//! Source: printed results in memtier_benchmark's documentation. Latencies are in milliseconds.

use std::fmt::Write as _;

use anyhow::Result;

use super::json::millis;
use crate::result::{OpResult, RunResult};

/// One line of the table. Hits and misses are dashes if nothing is requested.
struct Row {
    name: &'static str,
    rate: f64,
    hits: Option<(f64, f64)>,
    mean: f64,
    percentiles: Vec<f64>,
    kilobytes: f64,
}

/// All runs. For several, reports the best, the worst and their average, and each separately only
/// if `all_runs`.
///
/// # Errors
///
/// When a histogram of a result is damaged.
pub(crate) fn of(
    results: &[RunResult],
    requests: Option<u64>,
    percentiles: &[f64],
    with_distribution: bool,
    all_runs: bool,
) -> Result<String> {
    let Some(first) = results.first() else { return Ok(String::new()) };
    let mut text = String::new();
    let _ = writeln!(text, "{:<9} Threads", first.spec.threads);
    let _ = writeln!(text, "{:<9} Connections per thread", first.spec.connections);
    let _ = match requests {
        Some(requests) => writeln!(text, "{requests:<9} Requests per client"),
        None => writeln!(text, "{:<9} Seconds", first.spec.seconds),
    };
    let tables = results.iter().map(|run| rows(run, percentiles)).collect::<Result<Vec<_>>>()?;
    let mut tell = |title: &str, run: Option<&RunResult>, rows: &[Row]| -> Result<()> {
        table(&mut text, title, rows, percentiles);
        if let Some(run) = run.filter(|_| with_distribution) {
            distribution(&mut text, run)?;
        }
        Ok(())
    };
    if let ([run], [rows]) = (results, tables.as_slice()) {
        tell("ALL STATS", Some(run), rows)?;
        return Ok(text);
    }
    if all_runs {
        for (index, (run, rows)) in results.iter().zip(&tables).enumerate() {
            tell(&format!("RUN #{} RESULTS", index + 1), Some(run), rows)?;
        }
    }
    let by_rate = |one: &usize, other: &usize| {
        results[*one].total.rate.total_cmp(&results[*other].total.rate)
    };
    let (best, worst) = ((0..results.len()).max_by(by_rate), (0..results.len()).min_by(by_rate));
    for (title, run) in [("BEST RUN RESULTS", best), ("WORST RUN RESULTS", worst)] {
        if let Some(run) = run {
            tell(title, Some(&results[run]), &tables[run])?;
        }
    }
    let title = format!("AGGREGATED AVERAGE RESULTS ({} runs)", results.len());
    tell(&title, None, &average(&tables))?;
    Ok(text)
}

fn rows(run: &RunResult, percentiles: &[f64]) -> Result<Vec<Row>> {
    let row = |name, op: &OpResult, asks: bool| -> Result<Row> {
        let each = |count: u64| op.per_second(count);
        let histogram = op.latency.histogram()?;
        Ok(Row {
            name,
            rate: op.rate,
            hits: asks.then(|| (each(op.hits), each(op.misses))),
            mean: op.latency.mean / 1000.0,
            percentiles: percentiles.iter().map(|p| millis(&histogram, *p)).collect(),
            kilobytes: each(op.sent_bytes + op.received_bytes) / 1024.0,
        })
    };
    let mut rows = Vec::new();
    if run.spec.ratio.sets > 0 {
        rows.push(row("Sets", &run.sets, false)?);
    }
    if run.spec.ratio.gets > 0 {
        rows.push(row("Gets", &run.gets, true)?);
    }
    rows.push(row("Totals", &run.total, true)?);
    Ok(rows)
}

/// The mean of each cell over all runs.
fn average(tables: &[Vec<Row>]) -> Vec<Row> {
    let Some((first, _)) = tables.split_first() else { return Vec::new() };
    #[allow(clippy::cast_precision_loss, reason = "few runs")]
    let count = tables.len() as f64;
    let mean_row = |(at, row): (usize, &Row)| {
        let all = || tables.iter().filter_map(move |table| table.get(at));
        let mean = |pick: &dyn Fn(&Row) -> f64| all().map(pick).sum::<f64>() / count;
        Row {
            name: row.name,
            rate: mean(&|row| row.rate),
            hits: row.hits.map(|_| {
                let hits = |row: &Row| row.hits.unwrap_or_default();
                (mean(&|row| hits(row).0), mean(&|row| hits(row).1))
            }),
            mean: mean(&|row| row.mean),
            percentiles: (0..row.percentiles.len())
                .map(|index| mean(&|row| row.percentiles.get(index).copied().unwrap_or(0.0)))
                .collect(),
            kilobytes: mean(&|row| row.kilobytes),
        }
    };
    first.iter().enumerate().map(mean_row).collect()
}

fn table(text: &mut String, title: &str, rows: &[Row], percentiles: &[f64]) {
    let mut head = format!(
        "{:<8}{:>12} {:>12} {:>12} {:>15} ",
        "Type", "Ops/sec", "Hits/sec", "Misses/sec", "Avg. Latency"
    );
    for percentile in percentiles {
        let _ = write!(head, "{:>15} ", format!("p{percentile} Latency"));
    }
    let _ = write!(head, "{:>12} ", "KB/sec");
    let _ = writeln!(text, "\n\n{title}\n{}", "=".repeat(head.len()));
    let _ = writeln!(text, "{head}\n{}", "-".repeat(head.len()));
    for row in rows {
        let _ = write!(text, "{:<8}{:>12.2} ", row.name, row.rate);
        let _ = match row.hits {
            Some((hits, misses)) => write!(text, "{hits:>12.2} {misses:>12.2} "),
            None => write!(text, "{:>12} {:>12} ", "---", "---"),
        };
        let _ = write!(text, "{:>15.5} ", row.mean);
        for percentile in &row.percentiles {
            let _ = write!(text, "{percentile:>15.5} ");
        }
        let _ = writeln!(text, "{:>12.2} ", row.kilobytes);
    }
}

/// The share of each kind of request answered within a time.
fn distribution(text: &mut String, run: &RunResult) -> Result<()> {
    let _ = writeln!(text, "\n\nRequest Latency Distribution");
    let _ = writeln!(text, "Type     <= msec         Percent\n{}", "-".repeat(72));
    let mut is_first = true;
    for (name, op) in [("SET", &run.sets), ("GET", &run.gets)] {
        let histogram = op.latency.histogram()?;
        if histogram.is_empty() {
            continue;
        }
        if !is_first {
            let _ = writeln!(text, "---");
        }
        is_first = false;
        let mut seen = 0;
        for value in histogram.iter_recorded() {
            seen += value.count_at_value();
            #[allow(clippy::cast_precision_loss, reason = "counts and times of one run")]
            let (ms, percent) = (
                value.value_iterated_to() as f64 / 1e6,
                seen as f64 * 100.0 / histogram.len() as f64,
            );
            let _ = writeln!(text, "{name:<4}{ms:>11.3} {percent:>13.3}");
        }
    }
    Ok(())
}
