//! The page around the figures: one file, no script, light and dark, from a phone's width up.

use std::fmt::Write as _;

use anyhow::Result;

use super::maxima::ScoreFile;
use super::{Drawable, Figure, cpu};
use crate::hitrate::HitrateResult;
use crate::host::{CpuTimes, Host};
use crate::result::RunResult;
use crate::search::Found;
use crate::shell::shell;
use crate::sweep::SweepResult;
use crate::time_series;

pub(super) const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--faint:#eaeef2}\
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--paper:#0d1117;--line:#3d444d;--faint:#21262d}\
figure svg{filter:invert(.92) hue-rotate(180deg)}}\
body{margin:0 auto;max-width:60rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper)}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem;border-top:1px solid var(--line);padding-top:1rem}\
h3{font-size:1rem;margin:1.5rem 0 .25rem}figure{margin:1.5rem 0}figure svg{width:100%;max-width:40rem;height:auto;display:block}\
figcaption{color:var(--soft);font-size:.9rem}figcaption b{color:var(--ink)}\
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}\
th,td{padding:.3rem 1.25rem .3rem 0;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}\
th{border-bottom:1px solid var(--line);font-weight:600}td{border-bottom:1px solid var(--faint)}\
code{display:block;overflow-x:auto;white-space:pre;font-size:.85rem;padding:.5rem;border:1px solid var(--line);border-radius:6px}\
.doubt{border-left:4px solid #d55e00;padding-left:.75rem}";

/// A page: its title, what is said of it, what failed, figures of the whole, and the results, each
/// with its name.
///
/// # Errors
///
/// When a figure cannot be drawn.
pub fn page_of(
    title: &str,
    words: &str,
    failures: &[String],
    summary: &[Figure],
    results: &[(String, Drawable)],
) -> Result<String> {
    let mut html = begin(title, words);
    list(&mut html, failures.to_vec());
    figures(&mut html, summary);
    for (name, result) in results {
        let _ = writeln!(html, "<section><h2>{}</h2>", escaped(name));
        match result {
            Drawable::Run(run) => of_run(&mut html, run),
            Drawable::Sweep(sweep) => of_sweep(&mut html, sweep),
            Drawable::Hitrate(hitrate) => of_hitrate(&mut html, hitrate),
            Drawable::Search(search) => {
                head(&mut html, &search.command, &search.host, 0);
                of_search(&mut html, &search.sla, &search.found);
            }
            Drawable::Score(score) => of_score(&mut html, score),
        }
        figures(&mut html, &result.figures()?);
        let _ = writeln!(html, "</section>");
    }
    let _ = writeln!(html, "</body></html>");
    Ok(html)
}

/// A table: names of columns, and rows of as many texts.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Names of columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// A page of tables and figures that are no results of the bench.
#[must_use]
pub fn page_of_figures(
    title: &str,
    words: &str,
    doubts: &[String],
    tables: &[Table],
    drawn: &[Figure],
) -> String {
    let mut html = begin(title, words);
    list(&mut html, doubts.to_vec());
    for table in tables {
        let row = |html: &mut String, cells: &[String], tag: &str| {
            let cells = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
            let _ = writeln!(html, "<tr>{}</tr>", cells.collect::<String>());
        };
        let _ = writeln!(html, "<div class=\"wide\"><table>");
        row(&mut html, &table.head, "th");
        table.rows.iter().for_each(|cells| row(&mut html, cells, "td"));
        let _ = writeln!(html, "</table></div>");
    }
    figures(&mut html, drawn);
    let _ = writeln!(html, "</body></html>");
    html
}

/// The page's head, its title and the first words.
fn begin(title: &str, words: &str) -> String {
    let mut html = String::new();
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{0}</title><style>{STYLE}</style></head><body>\n<h1>{0}</h1>\n<p>{1}</p>\n",
        escaped(title),
        escaped(words)
    );
    html
}

/// Figures with their captions.
pub(super) fn figures(html: &mut String, figures: &[Figure]) {
    for figure in figures {
        let _ = writeln!(
            html,
            "<figure role=\"img\" aria-label=\"{0}\">{1}<figcaption><b>{0}.</b> {2}</figcaption></figure>",
            escaped(&figure.title),
            figure.svg,
            escaped(&figure.caption)
        );
    }
}

fn of_run(html: &mut String, run: &RunResult) {
    head(html, &run.command, &run.host, run.started);
    doubts(html, run);
    table(
        html,
        "",
        [("gets", run), ("sets", run), ("all", run)].into_iter().filter_map(|(name, run)| {
            let op = match name {
                "gets" => &run.gets,
                "sets" => &run.sets,
                _ => &run.total,
            };
            (op.requests > 0).then(|| (name.to_owned(), op))
        }),
    );
    for agent in &run.agents {
        let _ = writeln!(
            html,
            "<p>Agent {}: {} requests, its busiest thread {:.0} % of a processor; {}, {} processors.</p>",
            escaped(&agent.address),
            agent.requests,
            agent.busiest_thread * 100.0,
            escaped(&agent.host.cpu),
            agent.host.cpus
        );
    }
    seconds(html, run);
    threads(html, run);
}

/// Latency beside what the machine did meanwhile.
fn seconds(html: &mut String, run: &RunResult) {
    if run.series.len() < 2 {
        return;
    }
    let _ = writeln!(html, "<h3>{}</h3><div class=\"wide\"><table><tr>", time_series::title(run));
    time_series::COLUMNS.iter().for_each(|name| {
        let _ = write!(html, "<th>{name}</th>");
    });
    for row in time_series::rows(run) {
        let _ = write!(html, "</tr>\n<tr>");
        row.iter().for_each(|cell| {
            let _ = write!(html, "<td>{cell}</td>");
        });
    }
    let _ = writeln!(html, "</tr></table></div>");
}

/// The CPU time of each thread.
fn threads(html: &mut String, run: &RunResult) {
    let Some(series) = run.cpu_series.as_ref().filter(|series| !series.threads.is_empty()) else {
        return;
    };
    let seconds = series.seconds();
    let _ = writeln!(
        html,
        "<h3>Threads</h3><div class=\"wide\"><table><tr><th>thread</th><th>user %</th><th>system %</th><th>waiting for a processor %</th>\
         <th>switches a second</th></tr>"
    );
    for thread in &series.threads {
        let whole = &thread.whole;
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.0}</td></tr>",
            escaped(&cpu::name(thread)),
            cpu::percent(whole.user, seconds),
            cpu::percent(whole.system, seconds),
            whole.waited_us as f64 / 1e4 / seconds.max(1e-9),
            whole.switches as f64 / seconds.max(1e-9)
        );
    }
    let _ = writeln!(html, "</table></div>");
    let _ = write!(html, "<h3>Processors</h3><div class=\"wide\"><table><tr><th>processor</th>");
    for (name, _) in CpuTimes::default().shares() {
        let _ = write!(html, "<th>{name} %</th>");
    }
    for (number, times) in series.processors.iter().enumerate() {
        let _ = write!(html, "</tr>\n<tr><td>{number}</td>");
        for (_, share) in times.shares() {
            let _ = write!(html, "<td>{share:.1}</td>");
        }
    }
    let _ = writeln!(html, "</tr></table></div>");
}

fn of_sweep(html: &mut String, sweep: &SweepResult) {
    let started = sweep.points.first().map_or(0, |point| point.result.started);
    head(html, &sweep.command, &sweep.host, started);
    if let Some(server) = &sweep.server {
        let _ = writeln!(
            html,
            "<p>Each point had a server of its own:</p><code>{}</code>",
            escaped(server)
        );
    }
    let early = sweep.failure.iter().map(|why| format!("the sweep ended early: {why}"));
    list(html, early.collect());
    for point in &sweep.points {
        doubts(html, &point.result);
    }
    let rows = sweep.points.iter().map(|point| (point.at.to_string(), &point.result.total));
    table(html, sweep.over.label(), rows);
}

fn of_hitrate(html: &mut String, hitrate: &HitrateResult) {
    head(html, &hitrate.command, &hitrate.host, hitrate.started);
    list(html, hitrate.doubts());
    let footprint = &hitrate.footprint;
    let _ = writeln!(
        html,
        "<p>{}; {} requests, {} keys, {} MB of keys and values; counted after {} requests.</p>",
        escaped(&hitrate.workload.source.describe()),
        footprint.requests,
        footprint.keys,
        footprint.bytes >> 20,
        hitrate.workload.warm_up
    );
    for curve in hitrate.curves.iter().filter(|curve| !curve.command.is_empty()) {
        let _ = writeln!(html, "<code>{}</code>", escaped(&shell(&curve.command)));
    }
    let sizes = hitrate.curves.first().map(|curve| curve.points.as_slice()).unwrap_or_default();
    let _ = write!(html, "<div class=\"wide\"><table><tr><th>percent missed</th>");
    for point in sizes {
        let _ = write!(html, "<th>{} MB</th>", point.memory_mb);
    }
    for curve in &hitrate.curves {
        let _ = write!(html, "</tr>\n<tr><td>{}</td>", escaped(&curve.name));
        for point in &curve.points {
            let mark = if point.failure.is_some() { " (cut short)" } else { "" };
            let _ = write!(html, "<td>{:.2}{mark}</td>", point.counts.miss_ratio() * 100.0);
        }
    }
    let _ = writeln!(html, "</tr></table></div>");
}

fn of_search(html: &mut String, sla: &str, found: &Found) {
    let words = match (found.holds, found.throughput) {
        (Some(holds), Some((median, least, most))) => format!(
            "{sla} holds at {holds:.0}: {median:.0} requests a second ({least:.0} to {most:.0})."
        ),
        _ => format!("{sla} holds nowhere."),
    };
    let _ = writeln!(html, "<p>{}</p>", escaped(&words));
}

fn of_score(html: &mut String, file: &ScoreFile) {
    head(html, &file.command, &file.host, 0);
    let watts =
        file.score.per_watt.map_or_else(|| "not measured".to_owned(), |each| format!("{each:.0}"));
    let _ = writeln!(
        html,
        "<div class=\"wide\"><table><tr><th>under {}</th><th>random keys</th><th>hot key</th><th>overall</th><th>per watt</th></tr>\
         <tr><td>gets a second</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{watts}</td></tr></table></div>",
        escaped(&file.sla),
        file.maxima.random,
        file.maxima.hot,
        file.score.overall
    );
}

fn head(html: &mut String, command: &[String], host: &Host, started: u64) {
    let _ = writeln!(
        html,
        "<p>{}; {} processors, {} MB, {}; holdall {}; <time>{}</time></p><code>{}</code>",
        escaped(if host.cpu.is_empty() { "unknown processor" } else { &host.cpu }),
        host.cpus,
        host.memory_mb,
        escaped(&host.kernel),
        escaped(&host.version),
        day(started),
        escaped(&shell(command))
    );
}

fn doubts(html: &mut String, run: &RunResult) {
    list(html, run.doubts());
}

pub(super) fn list(html: &mut String, doubts: Vec<String>) {
    for doubt in doubts {
        let _ = writeln!(html, "<p class=\"doubt\">{}</p>", escaped(&doubt));
    }
}

fn table<'a>(
    html: &mut String,
    first: &str,
    rows: impl Iterator<Item = (String, &'a crate::result::OpResult)>,
) {
    let _ = writeln!(
        html,
        "<div class=\"wide\"><table><tr><th>{}</th><th>requests</th><th>a second</th><th>mean us</th><th>p50</th>\
         <th>p99</th><th>p99.9</th><th>max</th></tr>",
        escaped(first)
    );
    for (name, op) in rows {
        let latency = &op.latency;
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.0}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td>\
             <td>{:.1}</td></tr>",
            escaped(&name),
            op.requests,
            op.rate,
            latency.mean,
            latency.percentile(50.0),
            latency.percentile(99.0),
            latency.percentile(99.9),
            latency.max
        );
    }
    let _ = writeln!(html, "</table></div>");
}

/// Text that a browser shows as it is.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The day of a time in seconds since 1970, in UTC. Empty for 0, which stands for no time, and
/// behind the year 9999.
fn day(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let years = if seconds == 0 { 0..0 } else { 1970..10_000_u64 };
    for year in years {
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let february = if is_leap { 29 } else { 28 };
        for (month, len) in (1..).zip([31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
            if days < len {
                return format!("{year}-{month:02}-{:02}", days + 1);
            }
            days -= len;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, wanted) in [
            (0, ""),
            (1, "1970-01-01"),
            (86_400 * 59, "1970-03-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (4_107_542_400, "2100-03-01"),
            (1_767_225_599, "2025-12-31"),
            (253_402_300_799, "9999-12-31"),
            (253_402_300_800, ""),
            (u64::MAX, ""),
        ] {
            assert_eq!(day(seconds), wanted, "{seconds}");
        }
    }

    #[test]
    fn what_a_file_says_is_text_and_no_markup() {
        assert_eq!(escaped("<b a=\"x\">&"), "&lt;b a=&quot;x&quot;&gt;&amp;");
    }
}
