//! The comparison of two results as an HTML page.

use std::fmt::Write as _;

use anyhow::Result;

use super::escape::escaped;
use super::page::{begin, end, figures, list};
use super::{Figure, chart};
use crate::compare_results::{Line, Side, doubts};
use crate::result::RunResult;

/// The page of a comparison.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub fn page(base: &Side, other: &Side, lines: &[Line]) -> Result<String> {
    let mut html = begin("holdall bench compare", "");
    for (name, side) in [("Base", base), ("Other", other)] {
        let _ = writeln!(html, "<p>{name}:</p><code>{}</code>", escaped(&side.name));
    }
    list(&mut html, &doubts(base, other));
    let _ = writeln!(
        html,
        "<div class=\"wide\" tabindex=\"0\"><table><tr><th>measure</th><th>at</th><th>base</th><th>other</th><th>ratio</th><th>95 %</th>\
         <th>p</th><th></th></tr>"
    );
    for line in lines {
        let at = line.at.map(|place| place.at.to_string()).unwrap_or_default();
        let _ = write!(html, "<tr><td>{}</td><td>{at}</td>", escaped(line.what));
        if let Some(verdict) = &line.verdict {
            let _ = write!(
                html,
                "<td>{:.1}</td><td>{:.1}</td><td>{:.3}</td><td>{:.3} to {:.3}</td><td>{:.4}</td>",
                verdict.base,
                verdict.other,
                verdict.ratio,
                verdict.interval.0,
                verdict.interval.1,
                verdict.p
            );
        } else {
            let _ = write!(html, "<td></td><td></td><td></td><td></td><td></td>");
        }
        let _ = writeln!(html, "<td>{}</td></tr>", line.words());
    }
    let _ = writeln!(html, "</table></div>");
    if let Some(line) = lines.first() {
        let _ = writeln!(
            html,
            "<p>Medians of {}; the interval is a bootstrap's, p is Mann and Whitney's.</p>",
            line.unit()
        );
    }
    figures(&mut html, &drawn(base, other)?);
    end(&mut html);
    Ok(html)
}

/// Both sides in one chart: by place of a sweep, or by percentile of a run.
fn drawn(base: &Side, other: &Side) -> Result<Vec<Figure>> {
    let sides = [("base", base), ("other", other)];
    if base.points.iter().any(|(at, _)| at.is_some()) {
        let curve = |side: &Side, pick: fn(&RunResult) -> f64| -> Vec<(f64, f64)> {
            let points = side.points.iter();
            points
                .filter_map(|(at, runs)| {
                    let mut values: Vec<f64> = runs.iter().map(pick).collect();
                    Some(((*at)?.at, crate::significance::median(&mut values)))
                })
                .collect()
        };
        let figure = |title: &str, y: &str, axes, pick: fn(&RunResult) -> f64| -> Result<Figure> {
            let lines = sides.map(|(name, side)| (name, curve(side, pick)));
            Ok(Figure {
                title: title.into(),
                caption: "Medians of the runs of each point.".into(),
                svg: chart::lines("point of the sweep", y, &lines, axes, None)?,
            })
        };
        return Ok(vec![
            figure("Throughput", "requests a second", chart::Axes::default(), |run| {
                run.total.rate
            })?,
            figure("p99", "latency", chart::Axes::latency(false), |run| {
                run.total.latency.percentile(99.0)
            })?,
        ]);
    }
    let curve = |side: &Side| -> Result<Vec<(f64, f64)>> {
        let runs = side.points.iter().flat_map(|(_, runs)| runs);
        let mut sum = generator::record::nanoseconds();
        for run in runs {
            // Stored histograms have one shape.
            sum.add(run.total.latency.histogram()?)?;
        }
        Ok(super::by_nines(&sum))
    };
    let lines = [("base", curve(base)?), ("other", curve(other)?)];
    Ok(vec![Figure {
        title: "Latency by percentile".into(),
        caption:
            "All runs of each side together. Each step to the right is a tenth of the requests."
                .into(),
        svg: chart::lines("percent of requests", "latency", &lines, super::NINES, None)?,
    }])
}
