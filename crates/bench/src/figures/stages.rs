//! The stages of a request as bars.

use anyhow::Result;

use super::{Figure, Table, chart};
use crate::stages::{Stage, StagesResult, Times};

/// A bar of all requests and one of the slowest, each divided into stages.
pub(super) fn of_stages(result: &StagesResult) -> Result<Vec<Figure>> {
    let parts = |pick: fn(&Times) -> f64| -> Vec<(&str, f64)> {
        result.stages.iter().map(|stage| (stage.name.as_str(), pick(&stage.times))).collect()
    };
    let bars = [
        ("all".to_owned(), parts(|times| times.mean)),
        ("slowest 1 %".to_owned(), parts(|times| times.slowest)),
    ];
    Ok(vec![Figure {
        title: "Where a request's time goes".into(),
        caption: result.caveats().join(" "),
        svg: chart::named_bars("microseconds", &bars)?,
    }])
}

/// The stages as a table.
pub(super) fn table(result: &StagesResult) -> Table {
    let head = ["guide", "stage", "mean us", "share", "p50", "p99", "slowest 1 %", "by"];
    let number =
        |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| format!("{time:.1}"));
    let row = |guide: &str, name: &str, times: &Times, by: &str| {
        vec![
            guide.to_owned(),
            name.to_owned(),
            format!("{:.1}", times.mean),
            format!("{:.1} %", times.mean / result.whole.mean.max(f64::MIN_POSITIVE) * 100.0),
            number(times.p50),
            number(times.p99),
            format!("{:.1}", times.slowest),
            by.to_owned(),
        ]
    };
    let of_stage = |stage: &Stage| {
        let by = if stage.is_measured { "each request" } else { "what is left" };
        row(&stage.guide, &stage.name, &stage.times, by)
    };
    let mut rows: Vec<Vec<String>> = result.stages.iter().map(of_stage).collect();
    rows.push(row("", "whole", &result.whole, "each request"));
    Table { head: head.map(str::to_owned).into(), rows }
}
