//! Where processors' time went, as charts: over a run, and from point to point of a sweep.

use anyhow::Result;

use super::{Figure, chart};
use crate::host::CpuTimes;
use crate::result::RunResult;
use crate::sampler::{CpuSeries, Side, ThreadSeries};
use crate::sweep::{Over, Point, SweepResult, ThreadUse};

/// Bars of a chart over time, at most.
const BARS: usize = 30;

/// Threads of a chart, at most: as many as there are colours.
const THREADS: usize = 6;

/// The machine and the busiest threads over a run.
pub(super) fn over_time(run: &RunResult) -> Result<Vec<Figure>> {
    let Some(series) = run.cpu_series.as_ref().filter(|series| series.machine.len() > 1) else {
        return Ok(Vec::new());
    };
    let mut figures = vec![Figure {
        title: "Processor time over time".into(),
        caption:
            "Of the machine on which the generator ran, by what it was used for; the rest is idle."
                .into(),
        svg: chart::bars("seconds", "percent", &machine_bars(series))?,
    }];
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

/// A thread's name, and whose it is.
pub(crate) fn name(thread: &ThreadSeries) -> String {
    let side = match thread.side {
        Side::Generator => "generator",
        Side::Server => "server",
    };
    format!("{side}: {} {}", thread.whole.name, thread.whole.tid)
}

fn machine_bars(series: &CpuSeries) -> Vec<chart::Bar> {
    let each = series.machine.len().div_ceil(BARS);
    let bar = |slices: &[crate::sampler::Slice]| {
        let times = slices.iter().fold(CpuTimes::default(), |sum, slice| sum + slice.times);
        let end = slices.last().map_or(0.0, |slice| slice.end);
        (format!("{end:.0}"), used_shares(&times))
    };
    series.machine.chunks(each.max(1)).map(bar).collect()
}

fn used_shares(times: &CpuTimes) -> Vec<(&'static str, f64)> {
    times.shares().into_iter().filter(|(name, _)| *name != "idle").collect()
}

fn line(series: &CpuSeries, thread: &ThreadSeries) -> Vec<(f64, f64)> {
    let mut begin = 0.0;
    let slices = series.machine.iter().zip(&thread.slices);
    slices
        .map(|(machine, (user, system, ..))| {
            let seconds = machine.end - std::mem::replace(&mut begin, machine.end);
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

/// Where the machine's processors spent their time, stacked.
pub(super) fn machine(sweep: &SweepResult) -> Result<Option<Figure>> {
    let bar = |point: &Point| point.result.cpu.map(|cpu| (point.at.to_string(), used_shares(&cpu)));
    let bars: Vec<chart::Bar> = sweep.points.iter().filter_map(bar).collect();
    if bars.is_empty() {
        return Ok(None);
    }
    Ok(Some(Figure {
        title: format!("Processor time by {}", sweep.over.label()),
        caption: "Of the generator's machine, by what it was used for; the rest is idle.".into(),
        svg: chart::bars(sweep.over.label(), "percent", &bars)?,
    }))
}

/// What the server's threads used, where it was started by the sweep.
pub(super) fn server_threads(sweep: &SweepResult) -> Result<Option<Figure>> {
    if sweep.points.iter().all(|point| point.threads.is_empty()) || sweep.over == Over::Rate {
        return Ok(None);
    }
    let bar = |point: &Point| {
        let measured = point.result.seconds + point.result.spec.warm_up;
        let sum =
            |pick: fn(&ThreadUse) -> u64| percent(point.threads.iter().map(pick).sum(), measured);
        let parts =
            vec![("user", sum(|thread| thread.user)), ("system", sum(|thread| thread.system))];
        (point.at.to_string(), parts)
    };
    let bars: Vec<chart::Bar> = sweep.points.iter().map(bar).collect();
    Ok(Some(Figure {
        title: format!("Server processor time by {}", sweep.over.label()),
        caption: "All threads of the server together; 100 is one processor.".into(),
        svg: chart::bars(sweep.over.label(), "percent of a processor", &bars)?,
    }))
}
