//! `stats` and its kinds, by mcrouter's names.
//!
//! Names of mcrouter's that this program cannot report truthfully are left out; docs/router.md has
//! the list. It adds some of memcached's names.

mod commands;
pub(crate) mod files;
mod memcached;
mod process;

use std::fmt::{Display, Write};
use std::sync::atomic::Ordering;
use std::time::Instant;

use proto::Error;
use proto::reply::{END, write_stat};
use sampling::QUANTILES;
use upstream::{Count, Event, Failure, Protocol, Report, Snapshot, State};

use crate::history::Moment;
use crate::shared::{Names, Shared, unix_secs};

/// The kind of `stats` to which a line belongs. `stats`, `all` and `detailed` have every line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    /// `count`: since the start.
    Count,
    /// `cmd-error`
    Error,
    /// `ods`: mcrouter's values for monitoring systems.
    Ods,
    /// No other: text, and values that mcrouter lacks.
    Own,
}

/// The lines of a reply.
#[derive(Debug, Default)]
pub(crate) struct Lines(Vec<(Kind, String, String)>);

impl Lines {
    fn put(&mut self, kind: Kind, name: impl Into<String>, value: impl Display) {
        self.0.push((kind, name.into(), value.to_string()));
    }

    /// Fractions have at most six decimals, and none if they are whole.
    fn put_fraction(&mut self, kind: Kind, name: impl Into<String>, value: f64) {
        self.put(kind, name, (value * 1e6).round() / 1e6);
    }

    fn write(&self, out: &mut Vec<u8>, wanted: impl Fn(Kind) -> bool) {
        for (_, name, value) in self.0.iter().filter(|(kind, ..)| wanted(*kind)) {
            write_stat(out, name.as_bytes(), value.as_bytes());
        }
    }

    /// Names and values of kind `ods`.
    fn ods(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.0.iter().filter(|(kind, ..)| *kind == Kind::Ods);
        lines.map(|(_, name, value)| (name.as_str(), value.as_str()))
    }
}

/// The current counts, and their increase in the window.
struct Numbers {
    now: Moment,
    then: Moment,
    window: Snapshot,
    secs: f64,
}

impl Numbers {
    /// The rate per second in the window.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.secs
    }

    /// The increase of a total of servers in the window; negative after the removal of servers.
    fn fresh(&self, field: fn(&upstream::Totals) -> u64) -> u64 {
        field(&self.now.totals).saturating_sub(field(&self.then.totals))
    }
}

/// A mean, or 0 without values.
fn mean(sum: u64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

impl Shared {
    /// The answer to `stats` with these words.
    pub(crate) fn stats(&self, words: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        match words.trim_ascii() {
            b"" | b"all" | b"detailed" => self.lines().write(&mut out, |_| true),
            b"count" => self.lines().write(&mut out, |kind| kind == Kind::Count),
            b"ods" => self.lines().write(&mut out, |kind| kind == Kind::Ods),
            b"cmd-error" => self.lines().write(&mut out, |kind| kind == Kind::Error),
            // For the additions of programs that embed mcrouter.
            b"external" => {}
            b"servers" => self.servers(&mut out),
            b"suspect_servers" => self.suspects(&mut out),
            b"settings" => memcached::settings(&mut out, self),
            // A proxy has no items.
            b"items" => {}
            b"slabs" => memcached::slabs(&mut out, &self.registry.traffic()),
            b"latency" => self.recent.stats(&self.registry, &mut out),
            b"version" => write_stat(&mut out, b"mcrouter-version", self.version.as_bytes()),
            // As memcached: libmemcached takes `CLIENT_ERROR` here for success.
            _ => return Error::Command.line().to_vec(),
        }
        out.extend_from_slice(END);
        out
    }

    /// Every line except those of servers.
    fn lines(&self) -> Lines {
        let mut lines = Lines::default();
        let now = Moment::of(&self.registry);
        let then = self.history.oldest().unwrap_or_else(|| now.clone());
        let (window, secs) = (now.traffic.since(&then.traffic), now.secs_since(&then));
        let numbers = Numbers { now, then, window, secs };
        self.program(&mut lines);
        process::lines(&mut lines);
        self.connections(&mut lines, &numbers.now.traffic);
        self.configuration(&mut lines);
        commands::lines(&mut lines, &numbers);
        requests(&mut lines, &numbers);
        results(&mut lines, &numbers);
        failovers(&mut lines, &numbers);
        waiting(&mut lines, &numbers);
        destinations(&mut lines, &numbers);
        self.durations(&mut lines);
        self.asynclog(&mut lines, &numbers);
        lines
    }

    /// Quantiles of the last minutes, in addition to the means of [`destinations`].
    fn durations(&self, lines: &mut Lines) {
        for (quantile, name) in QUANTILES {
            if let Some(us) = self.recent.quantile_us(quantile) {
                lines.put_fraction(Kind::Own, format!("duration_{name}_us"), us);
            }
        }
    }

    fn program(&self, lines: &mut Lines) {
        lines.put(Kind::Own, "version", self.version);
        lines.put(Kind::Own, "commandargs", &self.arguments);
        lines.put(Kind::Own, "pid", std::process::id());
        lines.put(Kind::Own, "parent_pid", std::os::unix::process::parent_id());
        lines.put(Kind::Own, "time", unix_secs());
        lines.put(Kind::Ods, "uptime", self.started.elapsed().as_secs());
        lines.put(Kind::Ods, "num_proxies", self.options.num_proxies);
        let (watchers, sent, skipped) = self.watchers.counts();
        for (name, count) in self.logins.iter().flat_map(|logins| logins.counts()) {
            lines.put(Kind::Own, name, count);
        }
        lines.put(Kind::Own, "log_watchers", watchers);
        lines.put(Kind::Own, "log_watcher_sent", sent);
        lines.put(Kind::Own, "log_watcher_skipped", skipped);
    }

    fn connections(&self, lines: &mut Lines, traffic: &Snapshot) {
        let stats = self.control.get().map(net::Control::stats).unwrap_or_default();
        memcached::lines(lines, &stats, traffic);
        lines.put(Kind::Own, "num_clients", stats.curr_connections);
        lines.put(Kind::Ods, "num_client_connections", stats.curr_connections);
        lines.put(Kind::Own, "num_clients_moved", stats.moved);
        lines.put(Kind::Own, "num_clients_dropped", stats.slow_kicks);
        lines.put(Kind::Own, "client_memory", self.budget.held());
        lines.put(Kind::Own, "copy_memory", self.budget.asides().held());
        lines.put(Kind::Own, "copies_dropped", traffic.event(Event::CopyDropped));
        let reports = self.registry.report();
        let tls: Vec<&Report> = reports.iter().filter(|report| report.is_encrypted).collect();
        let all: Vec<&Report> = reports.iter().collect();
        for (prefix, reports) in [("num_servers", &all), ("num_ssl_servers", &tls)] {
            let count =
                |holds: fn(&Report) -> bool| reports.iter().filter(|report| holds(report)).count();
            lines.put(Kind::Ods, prefix, reports.len());
            // Each server has one of these states, so their counts add up to that of all.
            for (state, count) in [
                ("new", count(|report| report.state == State::New)),
                ("up", count(|report| report.state == State::Up && report.totals.connected > 0)),
                ("down", count(|report| is_tko(report.state))),
                (
                    "closed",
                    count(|report| report.state == State::Up && report.totals.connected == 0),
                ),
            ] {
                lines.put(Kind::Ods, format!("{prefix}_{state}"), count);
            }
        }
        let count = |state: State| all.iter().filter(|report| report.state == state).count();
        let (soft, hard) = (count(State::SoftTko), count(State::HardTko));
        lines.put(Kind::Ods, "num_suspect_servers", soft + hard);
        lines.put(Kind::Ods, "num_soft_tko_count", soft);
        lines.put(Kind::Ods, "num_hard_tko_count", hard);
        let sum = |of: &[&Report], field: fn(&Report) -> u64| -> u64 {
            of.iter().map(|report| field(report)).sum()
        };
        lines.put(Kind::Ods, "num_connections_opened", sum(&all, |one| one.totals.connects));
        lines.put(Kind::Ods, "num_connections_closed", sum(&all, |one| one.totals.closes));
        lines.put(Kind::Ods, "num_ssl_connections_opened", sum(&tls, |one| one.totals.connects));
        lines.put(Kind::Ods, "num_ssl_connections_closed", sum(&tls, |one| one.totals.closes));
        lines.put(Kind::Ods, "num_connect_retries", sum(&all, |one| one.totals.connect_retries));
        let retried = sum(&all, |one| one.totals.connects_retried);
        lines.put(Kind::Ods, "num_connect_success_after_retrying", retried);
    }

    fn configuration(&self, lines: &mut Lines) {
        let current = self.current();
        // Relaxed: counts, which order nothing else.
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        lines.put(Kind::Ods, "config_age", current.since.elapsed().as_secs());
        lines.put(Kind::Ods, "config_last_attempt", load(&self.config.last_attempt));
        lines.put(Kind::Ods, "config_last_success", load(&self.config.last_success));
        lines.put(Kind::Ods, "config_failures", load(&self.config.failures));
        lines.put(Kind::Ods, "config_full_attempt", load(&self.config.attempts));
        lines.put(Kind::Ods, "configs_from_disk", load(&self.config.from_disk));
        lines.put(Kind::Own, "config_generation", current.generation);
    }

    /// Results of failed deletes; names with `request` and `rate` are mcrouter's.
    fn asynclog(&self, lines: &mut Lines, numbers: &Numbers) {
        let counts = self.deletes.get().map(routes::Deletes::counts).unwrap_or_default();
        lines.put(Kind::Ods, "asynclog_requests", counts.kept);
        let spooled = numbers.window.event(Event::Spooled);
        let kept = numbers.window.event(Event::SpooledWell);
        lines.put_fraction(Kind::Ods, "asynclog_requests_rate", numbers.rate(spooled));
        lines.put_fraction(Kind::Ods, "asynclog_spool_success_rate", numbers.rate(kept));
        let us = numbers.window.event(Event::SpooledUs);
        lines.put_fraction(Kind::Ods, "asynclog_duration_us", mean(us, spooled));
        for (name, count) in [
            ("asynclog_failures", counts.failed),
            ("asynclog_replayed", counts.replayed),
            ("asynclog_refused", counts.refused),
            ("asynclog_expired", counts.expired),
            ("asynclog_lost", counts.lost),
            ("asynclog_pending", counts.pending),
            ("asynclog_bytes", counts.bytes),
            ("asynclog_marked", counts.marked),
            ("asynclog_unmarkable", counts.unmarkable),
        ] {
            lines.put(Kind::Own, name, count);
        }
    }

    /// One line per knocked-out server.
    fn suspects(&self, out: &mut Vec<u8>) {
        let names = self.current().names;
        for report in self.registry.report().iter().filter(|report| is_tko(report.state)) {
            let line = format!("status:tko num_failures:{}", report.tko_count);
            write_stat(out, short_name(report, &names).as_bytes(), line.as_bytes());
        }
    }

    /// One line per server.
    fn servers(&self, out: &mut Vec<u8>) {
        let names = self.current().names;
        for report in self.registry.report() {
            let totals = report.totals;
            let mut line = format!(
                "avg_latency_us:{:.3} pending_reqs:{} inflight_reqs:{}",
                totals.latency_us,
                totals.unsent,
                totals.pending.saturating_sub(totals.unsent)
            );
            let state = match report.state {
                State::New => "new",
                State::Up if totals.connected == 0 => "closed",
                State::Up => "up",
                State::SoftTko | State::HardTko => "down",
            };
            let knocked_out = match report.state {
                State::HardTko => " hard_tko;",
                State::SoftTko => " soft_tko;",
                State::New | State::Up => "",
            };
            // Writing into a string does not fail.
            let _ = write!(line, "{knocked_out} {state}:1;");
            let results = [
                ("found", totals.found),
                ("notfound", totals.not_found),
                ("timeout", totals.timeouts),
                ("tko", totals.tko),
                ("error", totals.failed),
                ("udp", totals.udp_asked),
                ("udp_lost", totals.udp_lost),
                ("udp_reordered", totals.udp_reordered),
            ];
            for (result, count) in results.iter().filter(|(_, count)| *count > 0) {
                let _ = write!(line, " {result}:{count}");
            }
            write_stat(out, server_name(&report, &names).as_bytes(), line.as_bytes());
        }
    }
}

/// A server in mcrouter's form: `host:port:protocol:security:compression-timeout`.
fn server_name(report: &Report, names: &Names) -> String {
    let (name, timeout) = (short_name(report, names), report.timeout);
    let (protocol, security) = (protocol_name(report), security_name(report));
    format!("{name}:{protocol}:{security}:notcompressed-{}", timeout.as_millis())
}

/// The protocol of a server's connections, by mcrouter's name.
pub(crate) fn protocol_name(report: &Report) -> &'static str {
    match report.protocol {
        Protocol::Binary => "binary",
        Protocol::Text => "ascii",
    }
}

/// The security of a server's connections, by mcrouter's name.
pub(crate) fn security_name(report: &Report) -> &'static str {
    if report.is_encrypted { "tls" } else { "plain" }
}

/// A server as written in the configuration; a removed one by its address.
fn short_name(report: &Report, names: &Names) -> String {
    names.get(&report.address).cloned().unwrap_or_else(|| report.address.to_string())
}

/// Requests of clients: since the start, and per second.
fn requests(lines: &mut Lines, numbers: &Numbers) {
    let counts = |of: &Snapshot| {
        let (replied, errors) = (of.replies(), of.event(Event::RepliedError));
        [of.sum(Count::Asked), replied, errors, replied.saturating_sub(errors)]
    };
    let names = ["request_sent", "request_replied", "request_error", "request_success"];
    let (all, fresh) = (counts(&numbers.now.traffic), counts(&numbers.window));
    for ((name, all), fresh) in names.into_iter().zip(all).zip(fresh) {
        lines.put(Kind::Count, format!("{name}_count"), all);
        lines.put_fraction(Kind::Ods, name, numbers.rate(fresh));
    }
    let errors = numbers.window.event(Event::RepliedError);
    lines.put_fraction(Kind::Ods, "final_result_error", numbers.rate(errors));
    let [asked, replied, ..] = all;
    let waiting = numbers.now.traffic.event(Event::Waiting);
    let outstanding = asked.saturating_sub(replied);
    lines.put(Kind::Ods, "proxy_reqs_processing", outstanding.saturating_sub(waiting));
    lines.put(Kind::Ods, "proxy_reqs_waiting", waiting);
    lines.put(Kind::Ods, "proxy_request_num_outstanding", outstanding);
    lines.put(Kind::Ods, "dev_null_requests", numbers.now.traffic.event(Event::DevNull));
}

/// mcrouter's names of failures of servers, and which failures each has.
const RESULTS: [(&str, &[Failure]); 8] = [
    ("connect_error", &[Failure::ConnectError]),
    ("connect_timeout", &[Failure::ConnectTimeout]),
    ("data_timeout", &[Failure::Timeout]),
    ("busy", &[Failure::Busy, Failure::TryAgain]),
    ("tko", &[Failure::Tko]),
    ("client_error", &[Failure::ClientError]),
    ("local_error", &[Failure::LocalError]),
    ("remote_error", &[Failure::RemoteError, Failure::Shutdown]),
];

/// Failures of servers: of first choices, and of all (`_all`).
fn results(lines: &mut Lines, numbers: &Numbers) {
    let deadline: (&str, &[Failure]) = ("deadline_exceeded_error", &[Failure::DeadlineExceeded]);
    let every: (&str, &[Failure]) = ("error", &Failure::ALL);
    for (name, failures) in [every, deadline].into_iter().chain(RESULTS) {
        let count = |of: &Snapshot, what: fn(Failure) -> Count| -> u64 {
            failures.iter().map(|failure| of.get(what(*failure))).sum()
        };
        let both = |of: &Snapshot| {
            let first = count(of, Count::Result);
            [first, first + count(of, Count::ResultAside)]
        };
        let (all, fresh) = (both(&numbers.now.traffic), both(&numbers.window));
        for ((suffix, all), fresh) in ["", "_all"].into_iter().zip(all).zip(fresh) {
            lines.put(Kind::Count, format!("result_{name}{suffix}_count"), all);
            lines.put_fraction(Kind::Ods, format!("result_{name}{suffix}"), numbers.rate(fresh));
        }
    }
}

fn failovers(lines: &mut Lines, numbers: &Numbers) {
    for (name, event) in [
        ("failover_all", Event::Failover),
        ("failover_all_failed", Event::FailoverFailed),
        ("failover_rate_limited", Event::FailoverLimited),
        ("failover_inorder_policy", Event::FailoverInOrder),
        ("failover_inorder_policy_failed", Event::FailoverInOrderFailed),
        ("failover_least_failures_policy", Event::FailoverLeastFailures),
        ("failover_least_failures_policy_failed", Event::FailoverLeastFailuresFailed),
        ("failover_deterministic_order_policy", Event::FailoverDeterministic),
        ("failover_deterministic_order_policy_failed", Event::FailoverDeterministicFailed),
        ("failover_rendezvous_policy", Event::FailoverRendezvous),
        ("failover_rendezvous_policy_failed", Event::FailoverRendezvousFailed),
        ("before_latency_injected", Event::DelayedBefore),
        ("after_latency_injected", Event::DelayedAfter),
        ("total_latency_injected", Event::DelayedTotal),
    ] {
        lines.put_fraction(Kind::Ods, name, numbers.rate(numbers.window.event(event)));
    }
    let traffic = &numbers.now.traffic;
    for (name, event) in [
        ("failover_all_failed_count", Event::FailoverFailed),
        ("redirected_lease_set_count", Event::LeaseSetRedirected),
    ] {
        lines.put(Kind::Count, name, traffic.event(event));
    }
    for (name, event) in [
        ("num_fail_open_state_entered", Event::FailOpenEntered),
        ("num_fail_open_state_exited", Event::FailOpenExited),
    ] {
        lines.put(Kind::Ods, name, traffic.event(event));
    }
}

/// Requests that had to wait for an `OutstandingLimitRoute`.
fn waiting(lines: &mut Lines, numbers: &Numbers) {
    let gets = [Event::QueuedGets, Event::QueuedGetsAhead, Event::QueuedGetsUs];
    let updates = [Event::QueuedUpdates, Event::QueuedUpdatesAhead, Event::QueuedUpdatesUs];
    for (name, events) in [("get", gets), ("update", updates)] {
        let [queued, ahead, us] = events.map(|event| numbers.window.event(event));
        let name = |what: &str| format!("outstanding_route_{name}_{what}");
        lines.put_fraction(Kind::Ods, name("reqs_queued"), numbers.rate(queued));
        lines.put_fraction(Kind::Ods, name("avg_queue_size"), mean(ahead, queued));
        lines.put_fraction(Kind::Ods, name("avg_wait_time_sec"), mean(us, queued) / 1e6);
    }
}

/// The traffic to servers.
fn destinations(lines: &mut Lines, numbers: &Numbers) {
    let totals = &numbers.now.totals;
    lines.put(Kind::Ods, "destination_pending_reqs", totals.unsent);
    let inflight = totals.pending.saturating_sub(totals.unsent);
    lines.put(Kind::Ods, "destination_inflight_reqs", inflight);
    let (asked, writes) = (numbers.fresh(|sum| sum.asked), numbers.fresh(|sum| sum.writes));
    lines.put_fraction(Kind::Ods, "destination_requests_sum", numbers.rate(asked));
    lines.put_fraction(Kind::Ods, "destination_batches_sum", numbers.rate(writes));
    lines.put_fraction(Kind::Ods, "destination_batch_size", mean(asked, writes));
    lines.put_fraction(Kind::Ods, "num_socket_writes", numbers.rate(writes));
    let partial = numbers.fresh(|sum| sum.partial_writes);
    lines.put_fraction(Kind::Ods, "num_socket_partial_writes", numbers.rate(partial));
    let (got, get_us) = (numbers.fresh(|sum| sum.got), numbers.fresh(|sum| sum.get_us));
    let (updated, update_us) =
        (numbers.fresh(|sum| sum.updated), numbers.fresh(|sum| sum.update_us));
    lines.put_fraction(Kind::Ods, "duration_us", mean(get_us + update_us, got + updated));
    lines.put_fraction(Kind::Ods, "duration_get_us", mean(get_us, got));
    lines.put_fraction(Kind::Ods, "duration_update_us", mean(update_us, updated));
    lines.put(Kind::Own, "destination_writes", totals.writes);
    lines.put(Kind::Own, "broken_replies", totals.broken);
    lines.put(Kind::Own, "udp_gets_lost", totals.udp_lost);
    lines.put(Kind::Own, "udp_gets_reordered", totals.udp_reordered);
    lines.put(Kind::Own, "udp_datagrams_late", totals.udp_late);
}

const fn is_tko(state: State) -> bool {
    matches!(state, State::SoftTko | State::HardTko)
}

/// Returns true if files and rates are due again.
pub(crate) fn is_due(last: Option<Instant>, period: std::time::Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= period)
}
