//! The report: one HTML page, drawn by the bench's code.

use anyhow::Result;
use bench::figures::chart::{Axes, lines};
use bench::figures::{Figure, Table, page_of_figures};

use crate::result::{ClusterTotal, Outcome, Second, share};

/// The page.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub(crate) fn page(outcome: &Outcome) -> Result<String> {
    let words = format!(
        "Two regions on one machine, by '{}' of version {}: {} reads in {:.0} s. The second table says what was done to them. After \
         everything was delivered, {} values were looked up in all caches, and {} were old.",
        outcome.command.join(" "),
        outcome.version,
        outcome.clusters.iter().map(|cluster| cluster.reads).sum::<u64>(),
        outcome.seconds.last().map_or(0.0, |second| second.at),
        outcome.looked_up,
        outcome.stale_left
    );
    let mut doubts = Vec::new();
    if outcome.stale_left > 0 {
        doubts.push(format!("{} old values are left in caches.", outcome.stale_left));
    }
    for cluster in outcome.clusters.iter().filter(|cluster| cluster.impossible > 0) {
        doubts.push(format!(
            "{}: {} reads showed what cannot have been.",
            cluster.name, cluster.impossible
        ));
    }
    let tables = [totals(&outcome.clusters), events(outcome)];
    Ok(page_of_figures("holdall demo", &words, &doubts, &tables, &figures(outcome)?))
}

fn totals(clusters: &[ClusterTotal]) -> Table {
    let head = [
        "cluster",
        "reads",
        "hits %",
        "from its database",
        "from the master",
        "failed",
        "fresh within 1 s %",
        "stale p99 ms",
        "p99.999",
        "max",
        "own writes seen %",
        "warm after reads",
    ];
    let row = |cluster: &ClusterTotal| {
        let hits = share(cluster.hits, cluster.reads).unwrap_or(0.0);
        vec![
            cluster.name.clone(),
            cluster.reads.to_string(),
            format!("{:.1}", hits * 100.0),
            cluster.from_database.to_string(),
            cluster.from_master.to_string(),
            (cluster.failed_reads + cluster.failed_writes).to_string(),
            format!("{:.4}", cluster.fresh_within_1s * 100.0),
            format!("{:.1}", cluster.stale_ms.p99),
            format!("{:.1}", cluster.stale_ms.p99999),
            format!("{:.1}", cluster.stale_ms.max),
            format!("{:.3}", cluster.own_fresh * 100.0),
            cluster.warm_after_reads.map_or_else(String::new, |reads| reads.to_string()),
        ]
    };
    Table { head: head.map(str::to_owned).into(), rows: clusters.iter().map(row).collect() }
}

/// One column, because only the first is left-aligned.
fn events(outcome: &Outcome) -> Table {
    let rows = outcome.events.iter().map(|(at, text)| vec![format!("{at:.1} s: {text}")]);
    Table { head: vec!["what happened".to_owned()], rows: rows.collect() }
}

/// Points of a number over time.
fn over_time(seconds: &[Second], pick: impl Fn(&Second) -> Option<f64>) -> Vec<(f64, f64)> {
    seconds.iter().filter_map(|second| Some((second.at, pick(second)?))).collect()
}

type Series<'n> = Vec<(&'n str, Vec<(f64, f64)>)>;

#[allow(clippy::cast_precision_loss, reason = "counts of one second")]
fn figures(outcome: &Outcome) -> Result<Vec<Figure>> {
    let seconds = &outcome.seconds;
    let of_clusters = |pick: &dyn Fn(&crate::result::ClusterSecond) -> Option<f64>| -> Series<'_> {
        let clusters = outcome.clusters.iter().enumerate();
        let of = |at: usize| over_time(seconds, |second| second.clusters.get(at).and_then(pick));
        clusters.map(|(at, cluster)| (cluster.name.as_str(), of(at))).collect()
    };
    let of_regions = |pick: &dyn Fn(&crate::result::RegionSecond) -> f64| -> Series<'static> {
        let of = |at: usize| over_time(seconds, |second| second.regions.get(at).map(pick));
        vec![("east (master)", of(0)), ("west (replica)", of(1))]
    };
    let figure = |title: &str, caption: &str, y: &str, series: Series<'_>, log_y: bool| {
        let svg = lines("seconds", y, &series, Axes { log_y, ..Axes::default() }, None)?;
        anyhow::Ok(Figure { title: title.to_owned(), caption: caption.to_owned(), svg })
    };
    Ok(vec![
        figure(
            "Hit ratio",
            "Reads that the cache answered, in each second, by cluster.",
            "percent",
            of_clusters(&|cluster| Some(cluster.hit_ratio()? * 100.0)),
            false,
        )?,
        figure(
            "Load of the databases",
            "Rows read in each second.",
            "queries a second",
            of_regions(&|region| region.queries as f64),
            false,
        )?,
        figure(
            "The stalest read",
            "How long the stalest version that a user was shown in each second had been replaced; seconds with fresh reads alone have no point.",
            "milliseconds",
            of_clusters(&|cluster| Some(cluster.stale_max_ms).filter(|ms| *ms > 0.0)),
            true,
        )?,
        figure(
            "Gutter",
            "Gets that the gutter answered for a server that was away, in each second.",
            "gets a second",
            of_clusters(&|cluster| Some(cluster.gutter_hits as f64)),
            false,
        )?,
        figure(
            "Invalidation",
            "From a change in the log to the acknowledged delete, 99th percentile.",
            "milliseconds",
            of_regions(&|region| region.delivery_p99_ms),
            false,
        )?,
        figure(
            "Replication",
            "How far the replica's database is behind.",
            "milliseconds",
            vec![(
                "replica",
                over_time(seconds, |second| Some(second.regions.get(1)?.behind_ms as f64)),
            )],
            false,
        )?,
    ])
}
