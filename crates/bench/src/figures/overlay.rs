//! Overlays sweeps of several servers over one variable in one chart.

use anyhow::Result;
use clap::ValueEnum;

use super::{Drawable, Figure, axes_of, chart};
use crate::sweep::{Over, Point, SweepResult};

/// One line of a chart: its name and its points.
type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// Figures for each variable of several sweeps: throughput, p99, and p99 against throughput.
pub(super) fn figures(results: &[(String, Drawable)]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let all = [
        Over::Connections,
        Over::Pipeline,
        Over::ValueSize,
        Over::Rate,
        Over::Threads,
        Over::Processes,
        Over::Group,
        Over::Pinned,
    ];
    for over in all {
        let sweeps: Vec<(&str, &SweepResult)> =
            results.iter().filter_map(|(name, result)| of(over, name, result)).collect();
        if sweeps.len() > 1 {
            figures.extend(of_sweeps(over, &sweeps)?);
        }
    }
    Ok(figures)
}

fn of<'a>(over: Over, name: &'a str, result: &'a Drawable) -> Option<(&'a str, &'a SweepResult)> {
    match result {
        // A study names its files by the server and what was changed.
        Drawable::Sweep(sweep) if sweep.over == over => {
            let what = over.to_possible_value()?;
            let server = name.strip_suffix(what.get_name()).and_then(|name| name.strip_suffix('-'));
            Some((server.unwrap_or(name), sweep))
        }
        _ => None,
    }
}

fn of_sweeps(over: Over, sweeps: &[(&str, &SweepResult)]) -> Result<Vec<Figure>> {
    let lines = |x: fn(&Point) -> f64, y: fn(&Point) -> f64| -> Vec<Line<'_>> {
        let line = |sweep: &SweepResult| sweep.drawn().map(|p| (x(p), y(p))).collect();
        sweeps.iter().map(|(name, sweep)| (*name, line(sweep))).collect()
    };
    let (label, axes) = (over.label(), axes_of(sweeps[0].1));
    let mut figures = Vec::new();
    for (what, caption, y) in [
        ("Throughput", "Requests answered a second.", rate as fn(&Point) -> f64),
        ("p99", "Microseconds below which 99 % of the latencies lie.", p99),
    ] {
        let unit = if what == "p99" { "microseconds" } else { "requests a second" };
        figures.push(Figure {
            title: format!("{what} by {label}, all servers"),
            caption: caption.into(),
            svg: chart::lines(label, unit, &lines(|point| point.at, y), axes, None)?,
        });
    }
    figures.push(Figure {
        title: format!("p99 against throughput, by {label}, all servers"),
        caption: "A line ends up and to the right where more load brings more throughput for more latency, and turns back where it costs throughput.".into(),
        svg: chart::lines(
            "requests a second",
            "p99, microseconds",
            &lines(rate, p99),
            chart::Axes::default(),
            None,
        )?,
    });
    Ok(figures)
}

fn rate(point: &Point) -> f64 {
    point.result.total.rate
}

fn p99(point: &Point) -> f64 {
    point.result.total.latency.percentile(99.0)
}
