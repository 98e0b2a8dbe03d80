//! Searches and scores as pictures: the maximum of each server within a bound; and a study's
//! summary.

use anyhow::Result;
use serde::Deserialize;

use super::{Drawable, Figure, chart, overlay};
use crate::host::Host;
use crate::score::{Maxima, Score, Weights};
use crate::search::Found;
use crate::sweep::Over;

/// The drawn part of a result of `holdall bench search`.
#[derive(Clone, Debug, Deserialize)]
pub struct SearchFile {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Its start, in seconds since 1970; 0 in older results, which lack it.
    #[serde(default)]
    pub started: u64,
    /// The machine it ran on.
    pub host: Host,
    /// The bound.
    pub sla: String,
    /// The result of the search.
    pub found: Found,
}

/// The drawn part of a result of `holdall bench score`.
#[derive(Clone, Debug, Deserialize)]
pub struct ScoreFile {
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Its start, in seconds since 1970; 0 in older results, which lack it.
    #[serde(default)]
    pub started: u64,
    /// The machine it ran on.
    pub host: Host,
    /// The bound.
    pub sla: String,
    /// The weights of the maxima.
    pub weights: Weights,
    /// The measured maxima.
    pub maxima: Maxima,
    /// The score.
    pub score: Score,
}

/// The points of a search: the answered rate, and its latency.
pub(super) fn of_search(search: &SearchFile) -> Result<Vec<Figure>> {
    let mut points: Vec<(f64, f64, f64)> = search
        .found
        .probes
        .iter()
        .flat_map(|probe| probe.repeats.iter().map(|one| (probe.at, one.mean, one.p99)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let line = |pick: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (point.0, pick(point))).collect()
    };
    let lines = [("mean", line(|point| point.1)), ("p99", line(|point| point.2))];
    Ok(vec![Figure {
        title: "Latency by point".into(),
        caption: format!(
            "Every measurement of the search; the dashed line marks the last at which {} held.",
            search.sla
        ),
        svg: chart::lines(
            "requests due a second, or connections",
            "latency",
            &lines,
            chart::Axes::latency(true),
            search.found.holds,
        )?,
    }])
}

/// All of a study side by side: sweeps of several servers, searches by server threads, scores by
/// server. The sweeps of `shown` have figures elsewhere.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub fn summary(results: &[(String, Drawable)], shown: &[Over]) -> Result<Vec<Figure>> {
    let mut figures = overlay::figures(results, shown)?;
    let mut searches: Vec<chart::Bar<'static>> = Vec::new();
    let mut scores: Vec<chart::Bar<'static>> = Vec::new();
    let mut per_watt: Vec<chart::Bar<'static>> = Vec::new();
    for (name, result) in results {
        match result {
            Drawable::Search(search) => {
                let most = search.found.throughput.map_or(0.0, |(median, ..)| median);
                let label = name.trim_end_matches("-threads").to_owned();
                searches.push((label, vec![("gets under the bound", most)]));
            }
            Drawable::Score(score) => {
                let weights = &score.weights;
                let parts = vec![
                    ("random keys, weighed", score.maxima.random * weights.random),
                    ("hot key, weighed", score.maxima.hot * weights.hot),
                ];
                scores.push((name.clone(), parts));
                if let Some(each) = score.score.per_watt {
                    per_watt.push((name.clone(), vec![("per watt", each)]));
                }
            }
            Drawable::Run(_) | Drawable::Sweep(_) | Drawable::Hitrate(_) | Drawable::Stages(_) => {}
        }
    }
    for (title, caption, y, bars) in [
        (
            "Most gets under the bound",
            "By server and, behind its name, its threads.",
            "gets a second",
            searches,
        ),
        (
            "Overall performance",
            "The guide's: 0.8 of the random-key maximum and 0.2 of the hot-key maximum under the bound, unless said otherwise.",
            "weighed gets a second",
            scores,
        ),
        (
            "Performance per watt",
            "Overall, by the power drawn meanwhile.",
            "gets a joule",
            per_watt,
        ),
    ] {
        if !bars.is_empty() {
            figures.push(Figure {
                title: title.into(),
                caption: caption.into(),
                svg: chart::named_bars(y, &bars)?,
            });
        }
    }
    Ok(figures)
}
