//! Charts of CPU time: over a run, and by point of a sweep.

use anyhow::Result;

use super::{Figure, chart};
use crate::host::CpuTimes;
use crate::result::RunResult;
use crate::sampler::{CpuSeries, Side, Slice, ThreadSeries};
use crate::sweep::{Over, Point, SweepResult};
use crate::thread_use::ThreadUse;

/// Maximum number of processors with a chart: the busiest.
const PROCESSORS: usize = 4;

/// Maximum number of bars in a chart over time.
const BARS: usize = 30;

/// Maximum number of threads in a chart: one per colour.
const THREADS: usize = 6;

/// The machine and the busiest threads over a run.
pub(super) fn over_time(run: &RunResult) -> Result<Vec<Figure>> {
    let Some(series) = run.cpu_series.as_ref().filter(|series| series.machine.len() > 1) else {
        return Ok(Vec::new());
    };
    let mut figures = vec![Figure {
        title: "Processor time over time".into(),
        caption: format!(
            "Of the machine on which the generator ran, by what it was used for; the rest is idle.{}",
            left_out(series.machine.iter().map(|slice| slice.times))
        ),
        svg: chart::bars("seconds", "percent", &bars_over_time(series, |slice| slice.times))?,
    }];
    figures.extend(processors(series)?);
    figures.push(switches(series)?);
    let mut busiest: Vec<&ThreadSeries> = series.threads.iter().collect();
    busiest.sort_by_key(|thread| std::cmp::Reverse(thread.whole.ticks()));
    let named: Vec<(String, Vec<(f64, f64)>)> =
        busiest.iter().take(THREADS).map(|thread| (name(thread), line(series, thread))).collect();
    let lines: Vec<(&str, Vec<(f64, f64)>)> =
        named.iter().map(|(name, line)| (name.as_str(), line.clone())).collect();
    if !lines.is_empty() {
        figures.push(Figure {
            title: "Threads over time".into(),
            caption: "User and system time of the busiest threads; 100 is one processor.".into(),
            svg: chart::lines(
                "seconds",
                "percent of a processor",
                &lines,
                chart::Axes::default(),
                None,
            )?,
        });
    }
    Ok(figures)
}

/// A thread's name and owner.
pub(crate) fn name(thread: &ThreadSeries) -> String {
    let side = match thread.side {
        Side::Generator => "generator",
        Side::Server => "server",
    };
    format!("{side}: {} {}", thread.whole.name, thread.whole.tid)
}

/// Each processor, or the busiest if there are many.
fn processors(series: &CpuSeries) -> Result<Vec<Figure>> {
    let mut busiest: Vec<usize> = (0..series.processors.len()).collect();
    let idle = |number: &usize| series.processors[*number].idle + series.processors[*number].iowait;
    busiest.sort_by_key(idle);
    busiest.truncate(PROCESSORS);
    busiest.sort_unstable();
    let figure = |number: usize| {
        let of = |slice: &Slice| slice.processors.get(number).copied().unwrap_or_default();
        Ok(Figure {
            title: format!("Processor {number} over time"),
            caption: format!("By what it was used for.{}", left_out(series.machine.iter().map(of))),
            svg: chart::bars("seconds", "percent", &bars_over_time(series, of))?,
        })
    };
    busiest.into_iter().map(figure).collect()
}

/// The uses that are 0 everywhere, which a chart omits.
fn left_out(times: impl Iterator<Item = CpuTimes>) -> String {
    let sum = times.fold(CpuTimes::default(), |sum, times| sum + times);
    let shares = used_shares(&sum);
    let none: Vec<&str> =
        shares.iter().filter(|(_, share)| *share == 0.0).map(|(name, _)| *name).collect();
    if none.is_empty() { String::new() } else { format!(" There was no {}.", none.join(", no ")) }
}

/// Context switches of the machine, of the servers and of the generator.
fn switches(series: &CpuSeries) -> Result<Figure> {
    #[allow(clippy::cast_precision_loss, reason = "counts of one interval")]
    let rate = |count: u64, seconds: f64| count as f64 / seconds.max(1e-9);
    let spans = || series.spans().enumerate();
    let machine =
        spans().map(|(_, (slice, seconds))| (slice.end, rate(slice.times.switches, seconds)));
    let mut lines = vec![("machine", machine.collect::<Vec<_>>())];
    for (name, side) in [("servers' threads", Side::Server), ("generator", Side::Generator)] {
        let threads: Vec<&ThreadSeries> =
            series.threads.iter().filter(|thread| thread.side == side).collect();
        let sum = |index: usize| -> u64 {
            threads.iter().filter_map(|thread| thread.slices.get(index)).map(|slice| slice.3).sum()
        };
        if !threads.is_empty() {
            let at = |(index, (slice, seconds)): (usize, (&Slice, f64))| {
                (slice.end, rate(sum(index), seconds))
            };
            lines.push((name, spans().map(at).collect()));
        }
    }
    Ok(Figure {
        title: "Context switches over time".into(),
        caption: "A second; of all of the machine, and of the threads that were watched.".into(),
        svg: chart::lines("seconds", "switches a second", &lines, chart::Axes::default(), None)?,
    })
}

fn bars_over_time(series: &CpuSeries, of: impl Fn(&Slice) -> CpuTimes) -> Vec<chart::Bar<'static>> {
    let each = series.machine.len().div_ceil(BARS);
    let bar = |slices: &[Slice]| {
        let times = slices.iter().fold(CpuTimes::default(), |sum, slice| sum + of(slice));
        let end = slices.last().map_or(0.0, |slice| slice.end);
        (format!("{end:.0}"), used_shares(&times))
    };
    series.machine.chunks(each.max(1)).map(bar).collect()
}

fn used_shares(times: &CpuTimes) -> Vec<(&'static str, f64)> {
    times.shares().into_iter().filter(|(name, _)| *name != "idle").collect()
}

fn line(series: &CpuSeries, thread: &ThreadSeries) -> Vec<(f64, f64)> {
    let slices = series.spans().zip(&thread.slices);
    slices
        .map(|((machine, seconds), (user, system, ..))| {
            (machine.end, percent(user + system, seconds))
        })
        .collect()
}

/// Ticks as percent of one processor.
pub(crate) fn percent(ticks: u64, seconds: f64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "ticks of one measurement")]
    let used = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    used * 100.0 / seconds.max(1e-9)
}

/// The CPU time of the machine by use, stacked.
pub(super) fn machine(sweep: &SweepResult) -> Result<Option<Figure>> {
    let bar = |point: &Point| point.result.cpu.map(|cpu| (point.at.to_string(), used_shares(&cpu)));
    let bars: Vec<chart::Bar<'static>> = sweep.points.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return Ok(None);
    }
    Ok(Some(Figure {
        title: format!("Processor time by {}", sweep.over.label()),
        caption: "Of the generator's machine, by what it was used for; the rest is idle.".into(),
        svg: chart::bars(sweep.over.label(), "percent", &bars)?,
    }))
}

/// Context switches, if the kernel reported them.
pub(super) fn switches_by_point(sweep: &SweepResult) -> Result<Option<Figure>> {
    let of_machine = |point: &Point| Some((point.at, point.result.switches_rate()?));
    let machine: Vec<_> = sweep.points.iter().filter_map(of_machine).collect();
    if machine.is_empty() {
        return Ok(None);
    }
    let mut lines = vec![("machine", machine)];
    let of_server = |point: &Point| {
        let sum = point.threads.iter().map(|thread| thread.switches).sum::<u64>();
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let rate = sum as f64 / covered(point);
        point.result.switches_rate().map(|_| (point.at, rate))
    };
    if sweep.points.iter().any(|point| !point.threads.is_empty()) {
        lines.push(("server", sweep.points.iter().filter_map(of_server).collect()));
    }
    let label = sweep.over.label();
    let log_x = super::axis::spans_much(sweep.points.iter().map(|point| point.at));
    let axes = chart::Axes { log_x, ..Default::default() };
    Ok(Some(Figure {
        title: format!("Context switches by {label}"),
        caption: "A second.".into(),
        svg: chart::lines(label, "switches a second", &lines, axes, None)?,
    }))
}

/// Seconds in which processor time and switches were counted: this includes the warm-up, and the
/// time after the measurement in which an open loop waits for its last replies.
fn covered(point: &Point) -> f64 {
    point.result.whole_seconds().max(1e-9)
}

/// The CPU time of the server's threads, if the sweep started it.
pub(super) fn server_threads(sweep: &SweepResult) -> Result<Option<Figure>> {
    if sweep.points.iter().all(|point| point.threads.is_empty()) || sweep.over == Over::Rate {
        return Ok(None);
    }
    let bar = |point: &Point| {
        let sum = |pick: fn(&ThreadUse) -> u64| {
            percent(point.threads.iter().map(pick).sum(), covered(point))
        };
        let parts =
            vec![("user", sum(|thread| thread.user)), ("system", sum(|thread| thread.system))];
        (point.at.to_string(), parts)
    };
    let bars: Vec<chart::Bar<'static>> = sweep.points.iter().map(bar).collect();
    Ok(Some(Figure {
        title: format!("Server processor time by {}", sweep.over.label()),
        caption: "All threads of the server together; 100 is one processor.".into(),
        svg: chart::bars(sweep.over.label(), "percent of a processor", &bars)?,
    }))
}
