//! A sizing for the terminal.

use std::fmt::Write as _;

use super::{database, flags, hits, percent, remarks};
use crate::candidate::Candidate;
use crate::money::Cheapest;
use crate::sizing::Sizing;
use crate::units::{Bytes, duration, grouped, significant};

/// The columns of candidates.
const HEADS: [&str; 10] =
    ["platform", "servers", "binds", "CPU", "NIC", "memory", "flags", "loss", "refilled", "a year"];

/// The whole result as lines of text.
#[must_use]
pub fn text(sizing: &Sizing) -> String {
    let mut out = String::new();
    for (name, line) in facts(sizing) {
        let _ = writeln!(out, "{name:<10}{line}");
    }
    out.push('\n');
    table(&mut out, sizing);
    let Some(best) = sizing.candidates.get(sizing.cheapest) else { return out };
    let by = match sizing.cheapest_by {
        Cheapest::Money => "cheapest",
        Cheapest::Watts => "fewest watts",
        Cheapest::Servers => "fewest servers",
    };
    let _ = writeln!(
        out,
        "\n{}: {}, {} x holdall serve {}",
        by,
        best.platform.name,
        grouped(best.servers),
        flags(best)
    );
    for remark in remarks(sizing, best) {
        let _ = writeln!(out, "  {remark}");
    }
    out
}

/// The lines above the table, each with its name.
pub(super) fn facts(sizing: &Sizing) -> Vec<(&'static str, String)> {
    let (demand, items) = (&sizing.demand, &sizing.items);
    let mut facts = vec![
        (
            "scenario",
            format!(
                "{}: servers used to {} at the peak, {} spare, at most {} of the items on one",
                sizing.scenario.name(),
                percent(sizing.limits.utilization),
                grouped(sizing.limits.spares),
                percent(sizing.limits.max_loss),
            ),
        ),
        (
            "load",
            format!(
                "{} gets a second on average, {} at the peak with the growth",
                grouped(demand.average),
                grouped(demand.peak)
            ),
        ),
    ];
    if let Some(rule) = sizing.rule {
        facts.push((
            "guide",
            format!(
                "one cache server for four web servers: {}, each with {} gets a second",
                grouped(rule.servers),
                grouped(rule.gets_each)
            ),
        ));
    }
    facts.push((
        "items",
        format!(
            "{} of {} + {} bytes, {} bytes of memory each: {} for all",
            grouped(items.number),
            significant(items.key_bytes),
            significant(items.value_bytes),
            significant(items.item_bytes),
            Bytes(items.all_bytes),
        ),
    ));
    facts.push(("hits", hits(sizing)));
    facts.push(("database", database(sizing)));
    facts
}

fn table(out: &mut String, sizing: &Sizing) {
    let rows: Vec<[String; 10]> = sizing.candidates.iter().map(row).collect();
    let widths: Vec<usize> = (0..HEADS.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].len());
            cells.chain([HEADS[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: [&str; 10]| {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            // Names on the left, numbers on the right.
            let _ = match column {
                0 | 2 | 6 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    };
    line(HEADS);
    rows.iter().for_each(|row| line(row.each_ref().map(String::as_str)));
}

fn row(candidate: &Candidate) -> [String; 10] {
    [
        candidate.platform.name.clone(),
        grouped(candidate.servers),
        candidate.binds.name().to_owned(),
        percent(candidate.used.cpu),
        percent(candidate.used.nic),
        percent(candidate.used.memory),
        flags(candidate),
        percent(candidate.loss.share),
        duration(candidate.loss.refill_secs),
        match (candidate.money, candidate.watts) {
            (Some(money), _) => grouped(money.total),
            (None, Some(watts)) => format!("{} W", grouped(watts)),
            (None, None) => "-".to_owned(),
        },
    ]
}
