//! The figures of the papers: each with our charts, and the paper's numbers next to ours.
//!
//! Sources: "Memcached vs Redis: Benchmarking In-memory Object Caches", section 5, figures 1 to 7;
//! Intel, *Configuration and Deployment Guide For Memcached*, appendix B.

use anyhow::Result;

use super::maxima::ScoreFile;
use super::overlay::over_of;
use super::sweeps::{Along, Measure, Named, panel};
use super::{Drawable, Figure, Table, Unit, chart, cpu};
use crate::study::Study;
use crate::sweep::{Over, Point, SweepResult};

/// A figure of a paper, drawn from these results.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its anchor in the page.
    pub id: &'static str,
    /// Its title.
    pub title: String,
    /// The paper's numbers next to ours.
    pub table: Table,
    /// Our charts.
    pub figures: Vec<Figure>,
    /// The variable of the sweeps drawn here.
    pub over: Option<Over>,
}

/// The figures of a study that the results allow.
///
/// # Errors
///
/// When a chart cannot be drawn.
pub fn originals(study: Study, results: &[(String, Drawable)]) -> Result<Vec<Original>> {
    match study {
        Study::Pavlik => pavlik(results),
        Study::IntelGuide => Ok(platforms(results)?.into_iter().collect()),
        Study::Baglru => Ok(Vec::new()),
    }
}

const BY_VARIABLE: [(Along, Measure); 3] = [
    (Along::Variable, Measure::Rate),
    (Along::Variable, Measure::Mean),
    (Along::Variable, Measure::P99),
];

const BY_RATE: [(Along, Measure); 2] = [(Along::Rate, Measure::Mean), (Along::Rate, Measure::P99)];

/// A row: its name, the paper's number, and the function for ours.
type Row = (&'static str, &'static str, fn(&SweepResult) -> String);

fn pavlik(results: &[(String, Drawable)]) -> Result<Vec<Original>> {
    let connections = over_of(results, Over::Connections);
    let unpinned: Vec<_> = connections.iter().filter(|(_, sweep)| !sweep.pinned).cloned().collect();
    let threads = over_of(results, Over::Threads);
    let group = over_of(results, Over::Group);
    let has_pinned = connections.len() > unpinned.len();
    let pinned = if has_pinned { connections } else { Vec::new() };
    let within: Row =
        ("most requests a second with p99 below 1 ms", "375,000 at 84 connections in all", within);
    let all = [
        lines("figure-1", "Figure 1: latency against throughput", &unpinned, &BY_RATE, &[within])?,
        lines(
            "figure-2",
            "Figure 2: throughput and latency by connections",
            &unpinned,
            &BY_VARIABLE,
            &[
                ("knee", "about 100 connections in all", knee),
                ("most requests a second", "about 450,000", most),
            ],
        )?,
        bars(
            "figure-3",
            "Figure 3: processor time by connections",
            &unpinned,
            &[("system time at the most connections", "about 40 %", last_system)],
        )?,
        lines(
            "figure-4",
            "Figure 4: throughput and latency by server threads",
            &threads,
            &BY_VARIABLE,
            &[
                ("most requests a second", "450,000 at 6 threads on 6 cores", most),
                ("mean latency there", "184 µs", |sweep| {
                    latency_at_most(sweep, |p| p.result.total.latency.mean)
                }),
                ("p99 there", "973 µs", |sweep| {
                    latency_at_most(sweep, |p| p.result.total.latency.percentile(99.0))
                }),
            ],
        )?,
        bars(
            "figure-5",
            "Figure 5: processor time by server threads",
            &threads,
            &[("system time, from the fewest to the most threads", "rises", system_change)],
        )?,
        lines(
            "figure-6",
            "Figure 6: latency against throughput, threads pinned and not",
            &pinned,
            &BY_RATE,
            &[(
                "most requests a second with p99 below 1 ms",
                "520,000 pinned, 475,000 not",
                within.2,
            )],
        )?,
        lines(
            "figure-7",
            "Figure 7: throughput and latency by requests per turn (-R)",
            &group,
            &BY_VARIABLE,
            &[("most requests a second", "no number is printed; the default is 20", most)],
        )?,
    ];
    Ok(all.into_iter().flatten().collect())
}

fn lines(
    id: &'static str,
    title: &str,
    sweeps: &Named<'_>,
    panels: &[(Along, Measure)],
    rows: &[Row],
) -> Result<Option<Original>> {
    let Some((_, first)) = sweeps.first() else { return Ok(None) };
    let figure =
        |(along, measure): &(Along, Measure)| panel(first.over, sweeps, *along, *measure, "");
    let figures = panels.iter().map(figure).collect::<Result<_>>()?;
    Ok(Some(original(id, title, sweeps, figures, rows)))
}

fn bars(
    id: &'static str,
    title: &str,
    sweeps: &Named<'_>,
    rows: &[Row],
) -> Result<Option<Original>> {
    let mut figures = Vec::new();
    for (name, sweep) in sweeps {
        if let Some(figure) = cpu::machine(sweep)? {
            figures.push(Figure { title: format!("{name}: {}", figure.title), ..figure });
        }
    }
    Ok((!figures.is_empty()).then(|| original(id, title, sweeps, figures, rows)))
}

fn original(
    id: &'static str,
    title: &str,
    sweeps: &Named<'_>,
    figures: Vec<Figure>,
    rows: &[Row],
) -> Original {
    let names = sweeps.iter().map(|(name, _)| name.clone());
    let head = ["", "the study"].map(str::to_owned).into_iter().chain(names).collect();
    let row = |(name, theirs, ours): &Row| {
        let cells = sweeps.iter().map(|(_, sweep)| ours(sweep));
        [*name, *theirs].map(str::to_owned).into_iter().chain(cells).collect()
    };
    let table = Table { head, rows: rows.iter().map(row).collect() };
    let over = sweeps.first().map(|(_, sweep)| sweep.over);
    Original { id, title: title.to_owned(), table, figures, over }
}

/// The point with the most requests per second among those without doubts; if there is none, among
/// all that may be drawn, and then it is marked as doubtful.
fn highest(sweep: &SweepResult, keeps: impl Fn(&Point) -> bool) -> Option<(&Point, &'static str)> {
    let most = |is_doubtful: bool| {
        let points = sweep
            .drawn()
            .filter(|point| keeps(point) && point.result.doubts().is_empty() != is_doubtful);
        points.max_by(|one, other| one.result.total.rate.total_cmp(&other.result.total.rate))
    };
    most(false).map(|point| (point, "")).or_else(|| Some((most(true)?, ", doubtful")))
}

fn shown(sweep: &SweepResult, found: Option<(&Point, &'static str)>) -> String {
    let Some((point, doubt)) = found else { return "none".to_owned() };
    let rate = Unit::Number.shown(point.result.total.rate);
    match sweep.over {
        Over::Connections => {
            let spec = &point.result.spec;
            let all = spec.threads * spec.connections * spec.targets.len();
            format!("{rate} at {all} connections in all{doubt}")
        }
        _ => format!("{rate} at {}{doubt}", point.at),
    }
}

fn most(sweep: &SweepResult) -> String {
    shown(sweep, highest(sweep, |_| true))
}

fn within(sweep: &SweepResult) -> String {
    let keeps = |point: &Point| point.result.total.latency.percentile(99.0) < 1000.0;
    shown(sweep, highest(sweep, keeps))
}

fn knee(sweep: &SweepResult) -> String {
    let point = sweep.knee.and_then(|knee| sweep.points.get(knee));
    point.map_or_else(
        || "none seen".to_owned(),
        |point| {
            let spec = &point.result.spec;
            format!("{} connections in all", spec.threads * spec.connections * spec.targets.len())
        },
    )
}

fn latency_at_most(sweep: &SweepResult, pick: fn(&Point) -> f64) -> String {
    highest(sweep, |_| true)
        .map_or_else(|| "none".to_owned(), |(point, doubt)| Unit::Micros.shown(pick(point)) + doubt)
}

/// The share of the machine's time in the kernel, at a point.
fn system(point: &Point) -> Option<f64> {
    let shares = point.result.cpu?.shares();
    shares.into_iter().find(|(name, _)| *name == "system").map(|(_, share)| share)
}

fn last_system(sweep: &SweepResult) -> String {
    let share = sweep.drawn().last().and_then(system);
    share.map_or_else(|| "not known".to_owned(), |share| format!("{share:.0} %"))
}

fn system_change(sweep: &SweepResult) -> String {
    let ends = sweep.drawn().next().and_then(system).zip(sweep.drawn().last().and_then(system));
    let words = |(first, last)| format!("{first:.0} % to {last:.0} %");
    ends.map_or_else(|| "not known".to_owned(), words)
}

/// Appendix B of the guide: thousands of gets per second under the bound for random keys and for
/// the hot key, and watts.
pub(crate) const PLATFORMS: [(&str, f64, f64, f64); 4] = [
    ("S1260", 77.0, 44.0, 20.0),
    ("C2750", 620.0, 460.0, 30.0),
    ("E3-1265Lv3", 892.0, 976.0, 60.0),
    ("2x E5-2697v2", 4160.0, 2640.0, 300.0),
];

/// The guide's bars of platforms, followed by ours.
fn platforms(results: &[(String, Drawable)]) -> Result<Option<Original>> {
    let scores: Vec<(&str, &ScoreFile)> = results
        .iter()
        .filter_map(|(name, result)| match result {
            Drawable::Score(score) => Some((name.as_str(), &**score)),
            _ => None,
        })
        .collect();
    let Some((_, first)) = scores.first() else { return Ok(None) };
    let theirs = PLATFORMS.map(|(name, random, hot, watts)| {
        let overall = first.weights.random * random + first.weights.hot * hot;
        (
            name.to_owned(),
            random * 1000.0,
            hot * 1000.0,
            overall * 1000.0,
            Some(overall * 1000.0 / watts),
        )
    });
    let ours = scores.iter().map(|(name, file)| {
        let maxima = &file.maxima;
        ((*name).to_owned(), maxima.random, maxima.hot, file.score.overall, file.score.per_watt)
    });
    let all: Vec<_> = theirs.into_iter().chain(ours).collect();
    let bar = |name: &String, part: &'static str, value: f64| (name.clone(), vec![(part, value)]);
    let overall =
        all.iter().map(|(name, .., overall, _)| bar(name, "overall", *overall)).collect::<Vec<_>>();
    let per_watt = all.iter().filter_map(|(name, .., watt)| Some(bar(name, "per watt", (*watt)?)));
    let per_watt = per_watt.collect::<Vec<_>>();
    let figures = vec![
        Figure {
            title: "Overall performance by platform".into(),
            caption: "The guide's four platforms, then these results.".into(),
            svg: chart::named_bars("weighed gets a second", &overall)?,
        },
        Figure {
            title: "Performance per watt by platform".into(),
            caption: "The guide's four platforms, then these results where their power is known."
                .into(),
            svg: chart::named_bars("gets a joule", &per_watt)?,
        },
    ];
    let head = ["", "random keys", "hot key", "overall", "per watt"].map(str::to_owned).to_vec();
    let row = |(name, random, hot, overall, watt): &(String, f64, f64, f64, Option<f64>)| {
        let watt = watt.map_or_else(|| "not measured".to_owned(), |watt| format!("{watt:.0}"));
        vec![
            name.clone(),
            format!("{random:.0}"),
            format!("{hot:.0}"),
            format!("{overall:.0}"),
            watt,
        ]
    };
    let table = Table { head, rows: all.iter().map(row).collect() };
    let title = "The guide's platforms, and these servers".to_owned();
    Ok(Some(Original { id: "platforms", title, table, figures, over: None }))
}
