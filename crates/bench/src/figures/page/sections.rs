//! The section of each result: machine, load, doubts, tables.

use std::fmt::Write as _;

use super::super::cpu;
use super::super::date::day;
use super::super::escape::escaped;
use super::super::maxima::{ScoreFile, SearchFile};
use super::super::stages;
use super::{Drawable, list};
use crate::hitrate::HitrateResult;
use crate::host::{CpuTimes, Host};
use crate::result::{OpResult, RunResult};
use crate::shell::shell;
use crate::stages::StagesResult;
use crate::sweep::SweepResult;
use crate::{load_words, time_series};

/// The text about a result before its charts.
pub(super) fn of(html: &mut String, result: &Drawable) {
    match result {
        Drawable::Run(run) => of_run(html, run),
        Drawable::Sweep(sweep) => of_sweep(html, sweep),
        Drawable::Hitrate(hitrate) => of_hitrate(html, hitrate),
        Drawable::Search(search) => of_search(html, search),
        Drawable::Score(score) => of_score(html, score),
        Drawable::Stages(result) => of_stages(html, result),
    }
}

fn of_run(html: &mut String, run: &RunResult) {
    head(html, &run.command, &run.host, run.started);
    load(html, run);
    list(html, &run.doubts());
    let ops = [("gets", &run.gets), ("sets", &run.sets), ("all", &run.total)];
    let rows = ops.into_iter().filter(|(_, op)| op.requests > 0);
    table(html, "", rows.map(|(name, op)| (name.to_owned(), op)));
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

/// Latency, with the machine's activity at that time.
fn seconds(html: &mut String, run: &RunResult) {
    if run.series.len() < 2 {
        return;
    }
    let _ = writeln!(
        html,
        "<h3>{}</h3><div class=\"wide\" tabindex=\"0\"><table><tr>",
        time_series::title(run)
    );
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
        "<h3>Threads</h3><div class=\"wide\" tabindex=\"0\"><table><tr><th>thread</th><th>user %</th><th>system %</th><th>waiting for a processor %</th>\
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
    let _ = write!(
        html,
        "<h3>Processors</h3><div class=\"wide\" tabindex=\"0\"><table><tr><th>processor</th>"
    );
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
    if let Some(point) = sweep.points.first() {
        load(html, &point.result);
    }
    list(html, &sweep.doubts());
    let rows = sweep.points.iter().map(|point| (point.at.to_string(), &point.result.total));
    table(html, sweep.over.label(), rows);
}

fn of_hitrate(html: &mut String, hitrate: &HitrateResult) {
    head(html, &hitrate.command, &hitrate.host, hitrate.started);
    list(html, &hitrate.doubts());
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
    let _ = write!(html, "<div class=\"wide\" tabindex=\"0\"><table><tr><th>percent missed</th>");
    for point in sizes {
        let _ = write!(html, "<th>{} MB</th>", point.memory_mb);
    }
    for curve in &hitrate.curves {
        let _ = write!(html, "</tr>\n<tr><td>{}</td>", escaped(&curve.name));
        for point in &curve.points {
            let mark = if point.failure.is_some() { " (cut short)" } else { "" };
            let resident = point.resident_mb().map(|mb| format!("<br>{mb:.0} MB resident"));
            let missed = hitrate.missed_percent(point);
            let missed = missed.map_or_else(|| "-".to_owned(), |missed| format!("{missed:.2}"));
            let _ = write!(html, "<td>{missed}{mark}{}</td>", resident.unwrap_or_default());
        }
    }
    let _ = writeln!(html, "</tr></table></div>");
}

fn of_search(html: &mut String, search: &SearchFile) {
    head(html, &search.command, &search.host, search.started);
    let (sla, found) = (&search.sla, &search.found);
    let words = match (found.holds, found.throughput) {
        (Some(holds), Some((median, least, most))) => format!(
            "{sla} holds at {holds:.0}: {median:.0} requests a second ({least:.0} to {most:.0})."
        ),
        _ if found.probes.is_empty() => "No point was measured.".to_owned(),
        _ => format!("{sla} holds nowhere."),
    };
    list(html, &found.doubts());
    let _ = writeln!(html, "<p>{}</p>", escaped(&words));
}

fn of_score(html: &mut String, file: &ScoreFile) {
    head(html, &file.command, &file.host, file.started);
    let watts =
        file.score.per_watt.map_or_else(|| "not measured".to_owned(), |each| format!("{each:.0}"));
    let _ = writeln!(
        html,
        "<div class=\"wide\" tabindex=\"0\"><table><tr><th>under {}</th><th>random keys</th><th>hot key</th><th>overall</th><th>per watt</th></tr>\
         <tr><td>gets a second</td><td>{:.0}</td><td>{:.0}</td><td>{:.0}</td><td>{watts}</td></tr></table></div>",
        escaped(&file.sla),
        file.maxima.random,
        file.maxima.hot,
        file.score.overall
    );
}

fn of_stages(html: &mut String, result: &StagesResult) {
    head(html, &result.command, &result.host, result.started);
    super::table(html, &stages::table(result));
}

fn head(html: &mut String, command: &[String], host: &Host, started: u64) {
    let date = day(started);
    let date = if date.is_empty() { String::new() } else { format!("; <time>{date}</time>") };
    let _ = writeln!(
        html,
        "<p>{}; {}{date}.</p><code>{}</code>",
        escaped(&host.describe()),
        escaped(&host.program()),
        escaped(&shell(command))
    );
}

/// The load in one line: its loop, its keys; and the servers' versions.
fn load(html: &mut String, run: &RunResult) {
    let _ = write!(html, "<p>{}.", escaped(&load_words::of(&run.spec)));
    for (address, version) in &run.server_versions {
        let _ = write!(html, " {} is version {}.", escaped(address), escaped(version));
    }
    let _ = writeln!(html, "</p>");
}

fn table<'a>(html: &mut String, first: &str, rows: impl Iterator<Item = (String, &'a OpResult)>) {
    let _ = writeln!(
        html,
        "<div class=\"wide\" tabindex=\"0\"><table><tr><th>{}</th><th>requests</th><th>a second</th><th>hits</th>\
         <th>mean us</th><th>p50</th><th>p99</th><th>p99.9</th><th>p99.99</th><th>max</th></tr>",
        escaped(first)
    );
    for (name, op) in rows {
        let latency = &op.latency;
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td>{:.0}</td><td>{}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td><td>{:.1}</td>\
             <td>{:.1}</td><td>{:.1}</td></tr>",
            escaped(&name),
            op.requests,
            op.rate,
            op.hits_shown(),
            latency.mean,
            latency.percentile(50.0),
            latency.percentile(99.0),
            latency.percentile(99.9),
            latency.percentile(99.99),
            latency.max
        );
    }
    let _ = writeln!(html, "</table></div>");
}
