//! A result as text: the figures, the distribution of latencies, and the doubts.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::figures::cpu;
use crate::hitrate::HitrateResult;
use crate::host::CpuTimes;
use crate::result::{OpResult, RunResult};
use crate::sampler::ThreadSeries;
use crate::{load_words, time_series};
use generator::spec::Pace;

/// Columns of the longest bar.
const BAR: usize = 40;

/// Maximum number of threads, and of processors, in the lists.
const THREADS: usize = 8;

/// True once the JSON uses the standard output. Relaxed is enough: it is set before a run starts,
/// and orders nothing.
static IS_JSON_ON_STDOUT: AtomicBool = AtomicBool::new(false);

/// Reserves the standard output for the JSON of a result: [`print()`] uses the standard error.
pub(crate) fn leave_stdout_to_json() {
    IS_JSON_ON_STDOUT.store(true, Ordering::Relaxed);
}

/// The first failure of [`print()`].
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints to the standard output; a closed pipe is no failure. A long run continues although
/// nothing can be printed, because its result may be stored elsewhere: [`printed`] reports it.
pub(crate) fn print(text: &str) {
    let written = if IS_JSON_ON_STDOUT.load(Ordering::Relaxed) {
        io::stderr().write_all(text.as_bytes())
    } else {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    };
    match written {
        // Later failures are consequences of the first.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => drop(FAILURE.set(error)),
        _ => {}
    }
}

/// Checks that all prints so far succeeded.
///
/// # Errors
///
/// The first failure.
pub(crate) fn printed() -> anyhow::Result<()> {
    match FAILURE.get() {
        Some(error) => anyhow::bail!("the output could not be written: {error}"),
        None => Ok(()),
    }
}

/// Prints a line to the standard error.
pub(crate) fn eprint_error(line: &str) {
    let _ = writeln!(io::stderr(), "holdall bench: {line}");
}

/// The result of a run.
#[must_use]
pub fn summary(result: &RunResult) -> String {
    let mut text = String::new();
    let spec = &result.spec;
    let _ = writeln!(text, "{}", load_words::of(spec));
    let _ = writeln!(text);
    let _ = writeln!(
        text,
        "{:6} {:>12} {:>12} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "", "requests", "a second", "hits", "mean us", "p50", "p99", "p99.9", "p99.99", "max"
    );
    for (name, op) in [("gets", &result.gets), ("sets", &result.sets), ("all", &result.total)] {
        if op.requests > 0 {
            row(&mut text, name, op);
        }
    }
    volume(&mut text, result);
    if spec.pace != Pace::Closed {
        let service = &result.total.service;
        let _ = writeln!(
            text,
            "from the actual sending: mean {:.1} us, p50 {:.1}, p99 {:.1}, p99.9 {:.1}",
            service.mean,
            service.percentile(50.0),
            service.percentile(99.0),
            service.percentile(99.9)
        );
    }
    distribution(&mut text, result);
    seconds(&mut text, result);
    if let Some(violations) = &result.violations {
        let _ = writeln!(text, "{violations}");
    }
    if let Some(cpu) = &result.cpu {
        let shares = cpu.shares().map(|(name, share)| format!("{name} {share:.0} %"));
        let _ = write!(text, "\nthis machine: {}", shares.join(", "));
        let _ = match result.switches_rate() {
            Some(rate) => writeln!(text, "; {rate:.0} context switches a second"),
            None => writeln!(text),
        };
    }
    processors(&mut text, result);
    threads(&mut text, result);
    let _ = writeln!(
        text,
        "generator: busiest thread {:.0} % of a processor",
        result.generator.busiest_thread * 100.0
    );
    if result.connects > 0 {
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let rate = result.connects as f64 / result.whole_seconds().max(1e-9);
        let _ = writeln!(text, "connections made anew: {rate:.0} a second");
    }
    for agent in &result.agents {
        let _ = writeln!(
            text,
            "  agent {}: {} requests, busiest thread {:.0} %, {}",
            agent.address,
            agent.requests,
            agent.busiest_thread * 100.0,
            agent.host.cpu
        );
    }
    for doubt in result.doubts() {
        let _ = writeln!(text, "doubt: {doubt}");
    }
    text
}

/// Miss-ratio curves: a line for each server at each size, with its resident memory; the longest
/// bar means that all missed.
#[must_use]
pub fn curves(result: &HitrateResult) -> String {
    let mut text = String::new();
    let Some(bound) = result.curves.first() else { return text };
    for (index, least) in bound.points.iter().enumerate() {
        let _ = writeln!(text, "\n{} MB", least.memory_mb);
        for curve in &result.curves {
            let Some(point) = curve.points.get(index) else { continue };
            let missed = result.missed_percent(point);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 40")]
            let bar = (missed.unwrap_or(0.0) / 100.0 * BAR as f64).round() as usize;
            let missed = missed.map_or_else(|| "-".to_owned(), |missed| format!("{missed:.2} %"));
            let mark = if point.failure.is_some() { " (ended early)" } else { "" };
            let resident = point.resident_mb().map(|mb| format!("{mb:.0} MB")).unwrap_or_default();
            let _ = writeln!(
                text,
                "  {:16} {missed:>8} {resident:>9} {}{mark}",
                curve.name,
                "#".repeat(bar)
            );
        }
    }
    for doubt in result.doubts() {
        let _ = writeln!(text, "doubt: {doubt}");
    }
    text
}

fn row(text: &mut String, name: &str, op: &OpResult) {
    let latency = &op.latency;
    let hits = op.hits_shown();
    let _ = writeln!(
        text,
        "{name:6} {:>12} {:>12.0} {hits:>8} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>9.1}",
        op.requests,
        op.rate,
        latency.mean,
        latency.percentile(50.0),
        latency.percentile(99.0),
        latency.percentile(99.9),
        latency.percentile(99.99),
        latency.max
    );
}

/// Bytes in each direction.
fn volume(text: &mut String, result: &RunResult) {
    let total = &result.total;
    let megabytes = |bytes: u64| total.per_second(bytes) / 1e6;
    let [sent, received] = [total.sent_bytes, total.received_bytes].map(megabytes);
    let _ = writeln!(text, "\nsent {sent:.1} MB a second, received {received:.1} MB a second");
}

/// Latency, with the machine's activity at that time.
fn seconds(text: &mut String, result: &RunResult) {
    if result.series.len() < 2 {
        return;
    }
    let _ = writeln!(text, "\n{}", time_series::title(result));
    let line = |cells: &[String]| {
        let mut line = String::new();
        cells.iter().for_each(|cell| {
            let _ = write!(line, "{cell:>10}");
        });
        line
    };
    let _ = writeln!(text, "{}", line(&time_series::COLUMNS.map(str::to_owned)));
    for row in time_series::rows(result) {
        let _ = writeln!(text, "{}", line(&row));
    }
}

/// CPU time of each processor by use; the busiest if there are many.
fn processors(text: &mut String, result: &RunResult) {
    let Some(series) = &result.cpu_series else { return };
    let mut all: Vec<(usize, &CpuTimes)> = series.processors.iter().enumerate().collect();
    all.sort_by_key(|(_, times)| times.idle + times.iowait);
    all.truncate(THREADS);
    all.sort_by_key(|(number, _)| *number);
    for (number, times) in all {
        let shares = times.shares().map(|(name, share)| format!("{name} {share:.0} %"));
        let _ = writeln!(text, "  processor {number}: {}", shares.join(", "));
    }
}

/// CPU time of the busiest threads.
fn threads(text: &mut String, result: &RunResult) {
    let Some(series) = &result.cpu_series else { return };
    let seconds = series.seconds();
    let mut busiest: Vec<&ThreadSeries> = series.threads.iter().collect();
    busiest.sort_by_key(|thread| std::cmp::Reverse(thread.whole.ticks()));
    for thread in busiest.into_iter().take(THREADS) {
        let whole = &thread.whole;
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let (waiting, switches) = (
            whole.waited_us as f64 / 1e4 / seconds.max(1e-9),
            whole.switches as f64 / seconds.max(1e-9),
        );
        let _ = writeln!(
            text,
            "  {:32} user {:>5.1} %, system {:>5.1} %, waiting for a processor {waiting:>4.1} %, {switches:.0} switches a second",
            cpu::name(thread),
            cpu::percent(whole.user, seconds),
            cpu::percent(whole.system, seconds),
        );
    }
}

/// The distribution of latencies: one line per doubling.
fn distribution(text: &mut String, result: &RunResult) {
    let Ok(histogram) = result.total.latency.histogram() else { return };
    if histogram.is_empty() {
        return;
    }
    let mut bins: Vec<(u64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let end = value.value_iterated_to().max(1).next_power_of_two();
        match bins.last_mut() {
            Some((last, count)) if *last == end => *count += value.count_at_value(),
            _ => bins.push((end, value.count_at_value())),
        }
    }
    let most = bins.iter().map(|(_, count)| *count).max().unwrap_or(1);
    let _ = writeln!(text);
    for (end, count) in bins {
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let (micros, share) = (end as f64 / 1000.0, count as f64 * 100.0 / histogram.len() as f64);
        let bar = usize::try_from(count.saturating_mul(BAR as u64).div_ceil(most)).unwrap_or(BAR);
        let _ = writeln!(text, "  up to {micros:>10.1} us {share:>7.3} % {}", "#".repeat(bar));
    }
}
