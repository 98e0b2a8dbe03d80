//! A sizing in readable form.

mod html;
mod text;
mod topology;

pub use html::html;
pub use text::text;
pub use topology::topology;

use crate::candidate::{Candidate, Constraint};
use crate::sizing::Sizing;
use crate::units::{Bytes, duration, grouped, significant};

/// A share as percent.
fn percent(share: f64) -> String {
    format!("{} %", significant(share * 100.0))
}

/// `-m` in MiB: what memcached's flag counts in.
fn memory_flag(candidate: &Candidate) -> String {
    format!("-m {:.0}", (candidate.limit_bytes / f64::from(1 << 20)).ceil().max(1.0))
}

/// The flags of each server.
fn flags(candidate: &Candidate) -> String {
    let threads = candidate.threads.map_or_else(String::new, |cores| format!(" -t {cores}"));
    format!("{}{threads}", memory_flag(candidate))
}

/// Further facts about a candidate, one sentence each.
fn remarks(sizing: &Sizing, candidate: &Candidate) -> Vec<String> {
    let mut remarks = Vec::new();
    let needs = candidate.needs.iter().filter(|(constraint, _)| *constraint != candidate.binds);
    let others: Vec<String> = needs
        .map(|(constraint, servers)| format!("{} {}", constraint.name(), grouped(*servers)))
        .collect();
    let (_, most) = candidate
        .needs
        .iter()
        .find(|(c, _)| *c == candidate.binds)
        .copied()
        .unwrap_or((Constraint::Cpu, 0.0));
    remarks.push(format!(
        "{} binds: it needs {} servers; alone, others would need: {}.",
        candidate.binds.name(),
        grouped(most),
        others.join(", "),
    ));
    remarks.push(format!(
        "All servers together can do {} gets a second under the SLA; {} of items fit.",
        grouped(candidate.gets_max),
        Bytes(candidate.item_bytes),
    ));
    let cost = candidate.money.map_or_else(String::new, |money| {
        format!(", which cost {} a year", grouped(money.headroom))
    });
    remarks.push(format!(
        "Headroom: {} of {} servers{cost}. Latency below the SLA brings nobody anything; \
         `utilization` and `spares` change this.",
        grouped(candidate.headroom),
        grouped(candidate.servers),
    ));
    remarks.push(loss(sizing, candidate));
    if candidate.hot_key_copies > 1.0 {
        remarks.push(format!(
            "The hottest key has {} gets a second, more than one server may take: keep {} copies \
             of it (a replicated pool), or read it from the application's own memory.",
            grouped(sizing.demand.hot_key),
            grouped(candidate.hot_key_copies),
        ));
    }
    remarks.push(format!(
        "Gutter: {} {} for the keys of failed ones.",
        grouped(candidate.gutter),
        if candidate.gutter > 1.0 { "servers" } else { "server" },
    ));
    remarks
}

/// The reads that the cache leaves to the database, and whether it can serve them.
fn database(sizing: &Sizing) -> String {
    let hits = &sizing.hits;
    let (average, peak) = hits.database_reads;
    let mut text = format!(
        "{} reads a second are left on average, {} at the peak",
        grouped(average),
        grouped(peak)
    );
    if let Some((_, used)) = hits.database_used.filter(|(_, used)| *used > 1.0) {
        // Rounded up: a smaller ratio leaves too many.
        let enough = ((1.0 - (1.0 - hits.ratio) / used) * 1e4 - 1e-6).ceil() / 1e4;
        text.push_str(&format!(
            ": the database cannot serve these, {} of what it can at the peak; it needs a hit \
             ratio of {enough} (more memory, by hits.wanted or hits.memory)",
            percent(used)
        ));
    }
    text
}

fn loss(sizing: &Sizing, candidate: &Candidate) -> String {
    let loss = candidate.loss;
    let rest = loss.cpu_used.map_or_else(
        || "No other server remains.".to_owned(),
        |used| format!("The others would be used to {} of their gets.", percent(used)),
    );
    let database = match loss.database_used {
        Some(used) if used > 1.0 => format!(
            "The database would have to serve {} of what it can: it fails {}.",
            percent(used),
            match sizing.hits.database_used {
                Some((_, used)) if used > 1.0 => "with and without a gutter",
                _ => "without a gutter",
            }
        ),
        Some(used) => format!("The database would be used to {}.", percent(used)),
        None => String::new(),
    };
    let text = format!(
        "Loss of one server: {} of the items, and {} more reads of the database a second at the \
         peak; filled again after {}. {rest} {database}",
        percent(loss.share),
        grouped(loss.database_reads),
        duration(loss.refill_secs),
    );
    text.trim_end().to_owned()
}

/// The memory of a tier in a sentence.
fn hits(sizing: &Sizing) -> String {
    let hits = &sizing.hits;
    let by = match hits.law {
        None => {
            "by equally popular keys, the worst case, since nothing is known of them".to_owned()
        }
        Some(law) => match law.error {
            None => format!(
                "by a power law with exponent {}{}",
                significant(law.exponent),
                if law.exponent == crate::hits::GUIDES_EXPONENT { ", the guide's" } else { "" }
            ),
            Some(error) => format!(
                "by the measured curve; a power law with exponent {} is at most {} points off it",
                significant(law.exponent),
                significant(error * 100.0)
            ),
        },
    };
    format!(
        "{} with {} in all; {} with four times that ({by})",
        percent(hits.ratio),
        Bytes(hits.memory_bytes),
        percent(hits.ratio_of_four_times),
    )
}
