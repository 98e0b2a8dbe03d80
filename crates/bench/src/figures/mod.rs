//! Results as pictures: one self-contained HTML page, with the figures of the study that the
//! results allow.
//!
//! Source of the figures: "Memcached vs Redis: Benchmarking In-memory Object Caches", figures 1 to
//! 7.

mod axis;
pub mod chart;
pub mod compare_results;
pub(crate) mod cpu;
mod date;
mod escape;
mod legend;
pub mod maxima;
mod overlay;
mod page;
pub mod papers;
mod stages;
mod style;
mod summary;
mod sweeps;
mod table;

use anyhow::{Context, Result, bail};

use crate::hitrate::{HitrateResult, Point};
use crate::result::RunResult;
use crate::stages::StagesResult;
use crate::sweep::SweepResult;

pub use axis::Unit;
pub use page::{page_of, page_of_figures};
pub use table::Table;

/// A picture and the text below it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// A caption that describes it.
    pub title: String,
    /// One or two sentences.
    pub caption: String,
    /// An SVG document.
    pub svg: String,
}

/// A result file of any kind that can be drawn.
#[derive(Clone, Debug)]
pub enum Drawable {
    /// Of `holdall bench run`.
    Run(Box<RunResult>),
    /// Of `holdall bench sweep`.
    Sweep(Box<SweepResult>),
    /// Of `holdall bench hitrate`.
    Hitrate(Box<HitrateResult>),
    /// Of `holdall bench search`.
    Search(Box<maxima::SearchFile>),
    /// Of `holdall bench score`.
    Score(Box<maxima::ScoreFile>),
    /// Of `holdall bench stages`.
    Stages(Box<StagesResult>),
}

impl Drawable {
    /// Reads a result file.
    ///
    /// # Errors
    ///
    /// When it is not a drawable result.
    pub fn read(json: &str) -> Result<Self> {
        let value: serde_json::Value =
            serde_json::from_str(json).context("this is no JSON, or it was cut short")?;
        match value["schema"].as_str() {
            Some(crate::result::SCHEMA) => Ok(Self::Run(Box::new(RunResult::read(json)?))),
            Some(crate::sweep::SCHEMA) => Ok(Self::Sweep(Box::new(SweepResult::read(json)?))),
            Some(crate::hitrate::SCHEMA) => Ok(Self::Hitrate(Box::new(HitrateResult::read(json)?))),
            Some(crate::stages::SCHEMA) => Ok(Self::Stages(Box::new(StagesResult::read(json)?))),
            Some("holdall-bench-search") => {
                Ok(Self::Search(Box::new(serde_json::from_value(value)?)))
            }
            Some("holdall-bench-score") => {
                Ok(Self::Score(Box::new(serde_json::from_value(value)?)))
            }
            Some(other) => bail!("a {other} cannot be drawn"),
            None => bail!("this is no result of holdall bench"),
        }
    }

    /// Its figures.
    ///
    /// # Errors
    ///
    /// When a histogram in it is damaged or a figure cannot be drawn.
    pub fn figures(&self) -> Result<Vec<Figure>> {
        match self {
            Self::Run(run) => of_run(run),
            Self::Sweep(sweep) => sweeps::of_sweep(sweep),
            Self::Hitrate(hitrate) => of_hitrate(hitrate),
            Self::Search(search) => maxima::of_search(search),
            Self::Score(_) => Ok(Vec::new()),
            Self::Stages(result) => stages::of_stages(result),
        }
    }
}

fn of_run(run: &RunResult) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut lines = vec![("from the intended sending", by_nines(&run.total.latency.histogram()?))];
    let is_open = run.spec.pace != generator::spec::Pace::Closed;
    if is_open {
        lines.push(("from the actual sending", by_nines(&run.total.service.histogram()?)));
    }
    figures.push(Figure {
        title: "Latency by percentile".into(),
        caption: "Each step to the right is a tenth of the requests.".into(),
        svg: chart::lines("percent of requests", "latency", &lines, NINES, None)?,
    });
    #[allow(clippy::cast_precision_loss, reason = "counts of one second")]
    let second = |pick: fn(&crate::result::SecondResult) -> Option<f64>| -> Vec<(f64, f64)> {
        let seconds = run.series.iter().enumerate();
        seconds.filter_map(|(at, second)| Some((at as f64, pick(second)?))).collect()
    };
    if run.series.len() > 1 {
        #[allow(clippy::cast_precision_loss, reason = "counts of one second")]
        let rate = second(|second| Some(second.requests as f64));
        figures.push(Figure {
            title: "Throughput over time".into(),
            caption: "Requests answered in each second of the measurement.".into(),
            svg: chart::lines(
                "seconds",
                "requests a second",
                &[("requests", rate)],
                chart::Axes::default(),
                None,
            )?,
        });
        let lines = [
            ("median", second(|second| second.p50)),
            ("p99", second(|second| second.p99)),
            ("greatest", second(|second| second.max)),
        ];
        figures.push(Figure {
            title: "Latency over time".into(),
            caption: if is_open {
                "Of the requests that were due in each second."
            } else {
                "Of the requests that were answered in each second."
            }
            .into(),
            svg: chart::lines("seconds", "latency", &lines, chart::Axes::latency(false), None)?,
        });
    }
    figures.extend(cpu::over_time(run)?);
    Ok(figures)
}

/// Miss-ratio curves: by the memory given to each server, and by the memory that it used.
fn of_hitrate(hitrate: &HitrateResult) -> Result<Vec<Figure>> {
    let workload = hitrate.workload.source.describe();
    let by_flag = miss_ratios(hitrate, "MB of memory", |point| f64::from(point.memory_mb))?;
    let mut figures = vec![Figure {
        title: "Miss ratio by memory".into(),
        caption: format!(
            "Gets that found nothing, of {workload}. No cache that holds keys and values in this \
             much memory can be below Belady's bound (values of several sizes: very nearly)."
        ),
        svg: by_flag,
    }];
    let points = || hitrate.curves.iter().flat_map(|curve| &curve.points);
    if points().any(|point| point.resident_bytes.is_some()) {
        let resident =
            |point: &Point| point.resident_mb().unwrap_or_else(|| f64::from(point.memory_mb));
        figures.push(Figure {
            title: "Miss ratio by resident memory".into(),
            caption: "The same gets, by the memory that each server's process held after the \
                      replay. Curves that no server drew are by their size."
                .into(),
            svg: miss_ratios(hitrate, "MB resident", resident)?,
        });
    }
    Ok(figures)
}

/// The curves of a replay, by a memory in MB.
fn miss_ratios(
    hitrate: &HitrateResult,
    label: &str,
    memory: impl Fn(&Point) -> f64,
) -> Result<String> {
    let at = |point: &Point| Some((memory(point), hitrate.missed_percent(point)?));
    let series: Vec<(&str, Vec<(f64, f64)>)> = hitrate
        .curves
        .iter()
        .map(|curve| (curve.name.as_str(), curve.points.iter().filter_map(at).collect()))
        .collect();
    let sizes = hitrate.curves.first().map(|curve| curve.points.iter());
    let log_x = sizes.is_some_and(|points| axis::spans_much(points.map(&memory)));
    let axes = chart::Axes { log_x, ..Default::default() };
    chart::lines(label, "percent of gets missed", &series, axes, None)
}

/// Axes of a distribution by percentile.
const NINES: chart::Axes =
    chart::Axes { log_x: false, log_y: true, x: Unit::Nines, y: Unit::Micros };

/// A distribution of nanoseconds by nines: 1 is the 90th percentile, 2 the 99th. In microseconds.
fn by_nines(histogram: &hdrhistogram::Histogram<u64>) -> Vec<(f64, f64)> {
    let steps = (0..=500).map(|step| f64::from(step) / 100.0);
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run")]
    let at = |nines: f64| histogram.value_at_quantile(1.0 - 10f64.powf(-nines)) as f64 / 1000.0;
    steps.map(|nines| (nines, at(nines))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_never_answered_has_no_point() {
        let drawn = |point| {
            let result = crate::hitrate::tests::result(None, &[point]);
            of_hitrate(&result).unwrap()[0].svg.clone()
        };
        assert!(drawn((10, 9, None)).contains("server: 10 at 8 MB"));
        let svg = drawn((0, 0, Some("closed")));
        assert!(svg.contains("bound: 2 at 8 MB"));
        assert!(!svg.contains("server: "), "{svg}");
    }
}
