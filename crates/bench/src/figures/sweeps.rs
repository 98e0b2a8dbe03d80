//! Charts of sweeps: one sweep, or one measure of several servers side by side.

use anyhow::Result;
use clap::ValueEnum;

use super::axis::spans_much;
use super::chart::{Axes, Dot, Series, dotted};
use super::{Figure, cpu};
use crate::sweep::{Over, Point, Repeat, SweepResult};

/// Sweeps of several servers over one variable, each with its name.
pub(super) type Named<'a> = [(String, &'a SweepResult)];

/// A measure of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// Requests answered per second.
    Rate,
    /// Mean latency.
    Mean,
    /// 99th percentile of the latency.
    P99,
}

/// The horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Along {
    /// The variable of the sweep.
    Variable,
    /// Requests answered per second.
    Rate,
}

impl Measure {
    fn pick(self) -> fn(&Repeat) -> f64 {
        match self {
            Self::Rate => |repeat| repeat.rate,
            Self::Mean => |repeat| repeat.mean,
            Self::P99 => |repeat| repeat.p99,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "Throughput",
            Self::Mean => "Mean latency",
            Self::P99 => "p99",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Rate => "requests a second",
            Self::Mean => "mean latency",
            Self::P99 => "p99 latency",
        }
    }
}

/// The drawable points of a sweep, with their ranges and doubts.
fn dots(sweep: &SweepResult, along: Along, measure: Measure) -> Vec<Dot> {
    let pick = measure.pick();
    let dot = |point: &Point| Dot {
        at: (
            match along {
                Along::Variable => point.at,
                Along::Rate => point.result.total.rate,
            },
            pick(&Repeat::of(&point.result)),
        ),
        range: point.range(pick),
        doubt: point.result.doubts().into_iter().next(),
    };
    sweep.drawn().map(dot).collect()
}

/// One measure of several servers.
pub(super) fn panel(
    over: Over,
    sweeps: &Named<'_>,
    along: Along,
    measure: Measure,
    suffix: &str,
) -> Result<Figure> {
    let series: Vec<Series<'_>> =
        sweeps.iter().map(|(name, sweep)| (name.as_str(), dots(sweep, along, measure))).collect();
    let log_x = along == Along::Variable
        && spans_much(sweeps.iter().flat_map(|(_, sweep)| sweep.points.iter().map(|p| p.at)));
    let axes = match measure {
        Measure::Rate => Axes { log_x, ..Axes::default() },
        Measure::Mean | Measure::P99 => Axes::latency(log_x),
    };
    let (against, label) = match along {
        Along::Variable => (format!("by {over}"), over.label()),
        Along::Rate => (format!("against throughput, by {over}"), "requests a second"),
    };
    let has_ranges = series.iter().flat_map(|(_, dots)| dots).any(|dot| dot.range.is_some());
    let has_doubts = series.iter().flat_map(|(_, dots)| dots).any(|dot| dot.doubt.is_some());
    let mut caption = String::new();
    if has_ranges {
        caption += "Bars reach from the least to the greatest of the repeats. ";
    }
    if has_doubts {
        caption += "Hollow points are doubtful. ";
    }
    let mark = match sweeps {
        [(_, sweep)] if along == Along::Variable => sweep.knee.and_then(|at| sweep.points.get(at)),
        _ => None,
    };
    if let Some(point) = mark {
        caption += &format!("The dashed line marks the knee, {}.", point.at);
    }
    Ok(Figure {
        title: format!("{} {against}{suffix}", measure.name()),
        caption: caption.trim_end().to_owned(),
        svg: dotted(label, measure.label(), &series, axes, mark.map(|point| point.at))?,
    })
}

/// The name of the server of this sweep: a study names its files by server and variable.
pub(super) fn server_of<'a>(name: &'a str, sweep: &SweepResult) -> &'a str {
    let over = sweep.over.to_possible_value();
    let what =
        if sweep.pinned { Some("pinned") } else { over.as_ref().map(|over| over.get_name()) };
    let rest = what.and_then(|what| name.strip_suffix(what)?.strip_suffix('-'));
    rest.unwrap_or(name)
}

/// All figures of one sweep.
pub(super) fn of_sweep(sweep: &SweepResult) -> Result<Vec<Figure>> {
    let one = [(String::new(), sweep)];
    let panel = |along, measure| panel(sweep.over, &one, along, measure, "");
    let mut figures = vec![
        panel(Along::Variable, Measure::Rate)?,
        panel(Along::Variable, Measure::Mean)?,
        panel(Along::Variable, Measure::P99)?,
        panel(Along::Rate, Measure::P99)?,
    ];
    figures.extend(cpu::machine(sweep)?);
    figures.extend(cpu::server_threads(sweep)?);
    figures.extend(cpu::switches_by_point(sweep)?);
    Ok(figures)
}
