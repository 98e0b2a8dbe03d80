//! A run as plain lines.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use crate::result::Outcome;
use crate::stage::Stage;

/// Prints a line; a closed pipe is no failure.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints the events after the first `printed`.
pub(crate) fn events(stage: &Stage, printed: &mut usize) {
    for (at, text) in stage.events.iter().skip(*printed) {
        print_line(&format!("{at:6.1} s  {text}"));
    }
    *printed = stage.events.len();
}

/// The last second, after its events.
pub(crate) fn second(stage: &Stage, printed: &mut usize) {
    events(stage, printed);
    let Some(second) = stage.seconds.back() else { return };
    let mut line = format!("{:6.1} s ", second.at);
    for (cluster, frontend) in second.clusters.iter().zip(&stage.frontends) {
        let _ = write!(line, " {}", frontend.name);
        match cluster.hit_ratio() {
            Some(ratio) => {
                let _ = write!(line, " {:.0} %", ratio * 100.0);
            }
            None => line.push_str(" -"),
        }
        if cluster.gutter_hits > 0 {
            let _ = write!(line, " (gutter {})", cluster.gutter_hits);
        }
        if cluster.failed > 0 {
            let _ = write!(line, " ({} failed)", cluster.failed);
        }
    }
    let queries: u64 = second.regions.iter().map(|region| region.queries).sum();
    let stalest = second.clusters.iter().map(|cluster| cluster.stale_max_ms).fold(0.0, f64::max);
    let behind = second.regions.last().map_or(0, |region| region.behind_ms);
    let _ =
        write!(line, "  {queries} queries, stalest {stalest:.0} ms, replica {behind} ms behind");
    print_line(&line);
}

/// The figures of the whole run.
pub(crate) fn summary(outcome: &Outcome) -> String {
    let mut text = format!(
        "\n{:10} {:>9} {:>7} {:>9} {:>8} {:>8} {:>11} {:>9} {:>9} {:>9} {:>9}\n",
        "cluster",
        "reads",
        "hits %",
        "database",
        "master",
        "failed",
        "in 1 s %",
        "p99 ms",
        "p99.99+",
        "max ms",
        "own %"
    );
    for cluster in &outcome.clusters {
        let hits = crate::result::share(cluster.hits, cluster.reads).unwrap_or(0.0);
        let _ = writeln!(
            text,
            "{:10} {:>9} {:>7.1} {:>9} {:>8} {:>8} {:>11.4} {:>9.1} {:>9.1} {:>9.1} {:>9.3}",
            cluster.name,
            cluster.reads,
            hits * 100.0,
            cluster.from_database,
            cluster.from_master,
            cluster.failed_reads + cluster.failed_writes,
            cluster.fresh_within_1s * 100.0,
            cluster.stale_ms.p99,
            cluster.stale_ms.p99999,
            cluster.stale_ms.max,
            cluster.own_fresh * 100.0
        );
    }
    for cluster in &outcome.clusters {
        if let (Some(reads), Some(secs)) = (cluster.warm_after_reads, cluster.warm_after_secs) {
            let _ = writeln!(
                text,
                "{} had 90 % of the warm hit ratio after {reads} reads, {secs:.1} s",
                cluster.name
            );
        }
        if cluster.impossible > 0 {
            let _ = writeln!(text, "{}: {} IMPOSSIBLE READS", cluster.name, cluster.impossible);
        }
    }
    let _ = writeln!(
        text,
        "after everything was delivered: {} values looked up, {} old",
        outcome.looked_up, outcome.stale_left
    );
    text
}
