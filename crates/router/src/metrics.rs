//! `--metrics`: the numbers for Prometheus and the health of the proxy, over HTTP.

use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use metrics::supervisor::Watchdog;
use metrics::{
    CONNECTIONS_MAX, Check, End, Endpoint, Health, Kind, Page, Pages, Turns, supervisor,
};
use telemetry::{Exporter, Telemetry};
use upstream::{Count, Event, Report, State};

use crate::failure::Failure;
use crate::shared::Shared;
use crate::stats::{protocol_name, security_name};

/// Upper ends of the histograms' buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// The outputs of a running proxy for its operators, until this is dropped.
#[derive(Debug)]
pub(crate) struct Shown {
    health: Arc<Health>,
    window: Duration,
    /// Dropped before the watchdog, so that its pages end first.
    _endpoint: Option<Endpoint>,
    _exporter: Option<Exporter>,
    _watchdog: Watchdog,
}

impl Shown {
    /// Starts the endpoint, if configured, and systemd's notifications. The workers already run.
    /// `operators` is the endpoint's socket if systemd opened it.
    ///
    /// # Errors
    ///
    /// If the address of `--metrics` cannot be bound, or there is no thread.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        operators: Option<TcpListener>,
        telemetry: Option<Telemetry>,
        log: &Arc<impl Fn(&str) + Send + Sync + 'static>,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        let endpoint = match shared.options.metrics {
            None => None,
            Some(address) => {
                let status = Status {
                    shared: Arc::clone(shared),
                    health: Arc::clone(&health),
                    turns: Turns::default(),
                };
                let started =
                    operators.map_or_else(|| TcpListener::bind(address), Ok).and_then(|listener| {
                        Endpoint::start(listener, Arc::new(status), CONNECTIONS_MAX)
                    });
                let what = "cannot listen for --metrics";
                let endpoint = started.map_err(|error| Failure::transient(what, &error))?;
                log(&format!("metrics and health on http://{}/", endpoint.address()));
                Some(endpoint)
            }
        };
        let exporter = telemetry.map(|telemetry| {
            let (shared, log, turns) = (Arc::clone(shared), Arc::clone(log), Turns::default());
            telemetry.start(move || page(&shared, &turns), move |line| log(line))
        });
        let exporter =
            exporter.transpose().map_err(|error| Failure::transient("no exporter", &error))?;
        let (turns, watched) = (Turns::default(), Arc::clone(shared));
        let watchdog = Watchdog::start(None, move || workers(&watched, &turns).fault.is_none())
            .map_err(|error| Failure::transient("no watchdog thread", &error))?;
        health.start();
        if let Err(error) = supervisor::ready(false) {
            log(&format!("warning: the service manager was not told: {error}"));
        }
        let window = Duration::from_secs(shared.options.drain);
        Ok(Self { health, window, _endpoint: endpoint, _exporter: exporter, _watchdog: watchdog })
    }

    /// The way in which the proxy ends; `patience` is the time in addition to `--drain`.
    pub(crate) fn end(&self, patience: Duration) -> End {
        End { health: Arc::clone(&self.health), window: self.window, patience }
    }
}

/// The pages of a proxy.
struct Status {
    shared: Arc<Shared>,
    health: Arc<Health>,
    turns: Turns,
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Status").field("health", &self.health).finish_non_exhaustive()
    }
}

impl Pages for Status {
    fn metrics(&self) -> Page {
        page(&self.shared, &self.turns)
    }

    fn live(&self) -> Vec<Check> {
        vec![workers(&self.shared, &self.turns)]
    }

    /// Unavailable servers do not make the proxy unready: it fails over, and the other proxies see
    /// the same servers.
    fn ready(&self) -> Vec<Check> {
        let stats = self.shared.control.get().map(net::Control::stats).unwrap_or_default();
        let accepting = Check::that("accepting", stats.accepting_conns, || {
            format!("no new connections: {} are open", stats.curr_connections)
        });
        let workers = workers(&self.shared, &self.turns);
        vec![self.health.started(), self.health.staying(), accepting, workers]
    }

    fn started(&self) -> Vec<Check> {
        vec![self.health.started()]
    }
}

/// Checks that every worker turns, and wakes them for the next check.
fn workers(shared: &Shared, turns: &Turns) -> Check {
    let Some(control) = shared.control.get() else { return Check::new("workers", None) };
    let check = turns.look(&control.turns());
    control.wake();
    check
}

/// The current numbers.
fn page(shared: &Shared, turns: &Turns) -> Page {
    let mut page = Page::new("holdall_route_");
    let stats = shared.control.get().map(net::Control::stats).unwrap_or_default();
    let current = shared.current();
    // Relaxed: a count, which orders nothing else.
    let failures = shared.config.failures.load(Ordering::Relaxed);
    let copy_bytes = shared.budget.asides().held() as u64;
    let copies_dropped = shared.registry.traffic().event(Event::CopyDropped);
    let (age, config_age) = (shared.started.elapsed().as_secs(), current.since.elapsed().as_secs());
    for (name, kind, value, help) in [
        ("uptime_seconds", Kind::Gauge, age, "Time since the start."),
        ("client_connections", Kind::Gauge, stats.curr_connections, "Open connections of clients."),
        (
            "client_connections_total",
            Kind::Counter,
            stats.total_connections,
            "Connections of clients accepted.",
        ),
        (
            "client_connections_rejected_total",
            Kind::Counter,
            stats.rejected_connections,
            "Connections of clients refused.",
        ),
        ("client_read_bytes_total", Kind::Counter, stats.bytes_read, "Bytes from clients."),
        ("client_written_bytes_total", Kind::Counter, stats.bytes_written, "Bytes to clients."),
        ("copy_bytes", Kind::Gauge, copy_bytes, "Memory of copies that no client waits for."),
        ("copies_dropped_total", Kind::Counter, copies_dropped, "Copies for which was no room."),
        ("config_age_seconds", Kind::Gauge, config_age, "Time since a configuration was taken."),
        ("config_failures_total", Kind::Counter, failures, "Configurations that were refused."),
    ] {
        page.single(name, kind, help, value);
    }
    if let Some(control) = shared.control.get() {
        let hung = turns.hung(&control.turns());
        control.wake();
        page.single("threads_hung", Kind::Gauge, "Workers whose event loop has stopped.", hung);
    }
    reloads(&mut page, shared);
    let listeners = shared.control.get().map(net::Control::listener_stats).unwrap_or_default();
    metrics::listeners(&mut page, listeners.iter().map(net::ListenerStats::named));
    replies(&mut page, shared);
    kept_deletes(&mut page, shared);
    certificate(&mut page, shared);
    logins(&mut page, shared);
    servers(&mut page, &shared.registry.report());
    durations(&mut page, shared);
    if let Some(export_counts) = shared.export_counts.get() {
        export_counts.write(&mut page);
    }
    metrics::process(&mut page, "route");
    page
}

/// The outcomes of the last readings of reloaded files.
fn reloads(page: &mut Page, shared: &Shared) {
    let mut parts = vec![("routes", &shared.config.read)];
    parts.extend(shared.logins.iter().map(|logins| ("users", &logins.read)));
    parts.extend(shared.certificates.get().map(|read| ("certificates", read)));
    metrics::reloads(page, &parts);
}

/// The certificate that clients see, if any port uses TLS.
fn certificate(page: &mut Page, shared: &Shared) {
    let Some(acceptor) = shared.acceptor.get() else { return };
    let name = "tls_certificate_not_after_timestamp_seconds";
    let help = "Unix time at which the certificate expires.";
    page.single(name, Kind::Gauge, help, acceptor.not_after());
}

/// The logins of clients, if they must log in.
fn logins(page: &mut Page, shared: &Shared) {
    let Some(logins) = &shared.logins else { return };
    for (count, name, help) in [
        (crate::logins::Count::Login, "logins_total", "Logins tried."),
        (crate::logins::Count::LoginRefused, "login_errors_total", "Logins refused."),
        (crate::logins::Count::Denied, "access_denied_total", "Requests without the right."),
    ] {
        page.single(name, Kind::Counter, help, logins.counted(count));
    }
}

/// Answers to clients, by the final outcome of the request.
fn replies(page: &mut Page, shared: &Shared) {
    let traffic = shared.registry.traffic();
    let name = "replies_total";
    let help = "Replies to clients: ok, or the failure that the client reads.";
    page.family(name, Kind::Counter, help);
    page.sample(name, &[("result", "ok")], traffic.event(Event::RepliedWell));
    for failure in upstream::Failure::ALL {
        let count = traffic.get(Count::RepliedFailure(failure));
        page.sample(name, &[("result", failure.name())], count);
    }
}

/// Failed deletes on the disk, and their ends.
fn kept_deletes(page: &mut Page, shared: &Shared) {
    let counts = shared.deletes.get().map(routes::Deletes::counts).unwrap_or_default();
    let help = "Failed deletes on the disk that wait for their server.";
    page.single("kept_deletes_pending", Kind::Gauge, help, counts.pending);
    let help = "Bytes of these deletes on the disk.";
    page.single("kept_deletes_bytes", Kind::Gauge, help, counts.bytes);
    let name = "kept_deletes_total";
    let help = "Failed deletes by their end; failed: not kept, and the client read the error.";
    page.family(name, Kind::Counter, help);
    for (result, count) in [
        ("replayed", counts.replayed),
        ("refused", counts.refused),
        ("expired", counts.expired),
        ("lost", counts.lost),
        ("failed", counts.failed),
    ] {
        page.sample(name, &[("result", result)], count);
    }
}

/// A series for each server as it is used: all in which uses differ is in the labels.
fn servers(page: &mut Page, reports: &[Report]) {
    let names: Vec<_> = reports
        .iter()
        .map(|report| (report.address.to_string(), report.timeout.as_millis().to_string()))
        .collect();
    type Values<'v> = &'v dyn Fn(&Report) -> Vec<(&'static str, u64)>;
    let mut each = |name: &str, kind: Kind, help: &str, values: Values<'_>| {
        page.family(name, kind, help);
        for (report, (server, timeout)) in reports.iter().zip(&names) {
            for (result, value) in values(report) {
                let labels = [
                    ("server", server.as_str()),
                    ("protocol", protocol_name(report)),
                    ("security", security_name(report)),
                    ("timeout_ms", timeout),
                    ("result", result),
                ];
                let count = labels.len() - usize::from(result.is_empty());
                page.sample(name, &labels[..count], value);
            }
        }
    };
    let is_up = |report: &Report| !matches!(report.state, State::SoftTko | State::HardTko);
    let help = "1 while the server is asked; 0 while it is knocked out.";
    each("server_up", Kind::Gauge, help, &|report| vec![("", u64::from(is_up(report)))]);
    let help = "Times that the server was knocked out.";
    each("server_knockouts_total", Kind::Counter, help, &|report| vec![("", report.tko_count)]);
    let help = "Requests that wait for a reply.";
    each("requests_inflight", Kind::Gauge, help, &|report| vec![("", report.totals.pending)]);
    let help = "Requests sent.";
    each("requests_total", Kind::Counter, help, &|report| vec![("", report.totals.asked)]);
    each(
        "results_total",
        Kind::Counter,
        "Replies of servers, and what stood for them.",
        &|report| {
            let totals = &report.totals;
            vec![
                ("found", totals.found),
                ("not_found", totals.not_found),
                ("timeout", totals.timeouts),
                ("tko", totals.tko),
                ("error", totals.failed),
            ]
        },
    );
}

/// A histogram for each server and pool.
fn durations(page: &mut Page, shared: &Shared) {
    let help = "Time from a request to the server's reply, or to its timeout.";
    page.family("request_duration_seconds", Kind::Histogram, help);
    for (place, times_us) in shared.registry.latencies() {
        let server = place.server.to_string();
        let labels = [("pool", place.pool.as_ref()), ("server", server.as_str())];
        let buckets = BUCKETS_US.map(|us| (us as f64 / 1e6, up_to(&times_us, us)));
        let sum = times_us.mean() * times_us.len() as f64 / 1e6;
        let cells = times_us
            .iter_recorded()
            .map(|step| (step.value_iterated_to() as f64 / 1e6, step.count_since_last_iteration()));
        // A time below a microsecond counts at its end.
        let cells = cells.map(|(secs, count)| (secs.max(1e-6), count));
        let name = "request_duration_seconds";
        page.histogram(name, &labels, buckets, cells, sum, times_us.len());
    }
}

/// The number of replies that took at most `us` microseconds, within a bucket's width of one
/// percent.
fn up_to(times_us: &Histogram<u64>, us: u64) -> u64 {
    times_us.count_between(0, us)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use upstream::{Protocol, Totals};

    use super::*;

    #[test]
    fn each_use_of_a_server_has_separate_series() {
        let address = upstream::Address::from(std::net::SocketAddr::from(([127, 0, 0, 1], 1)));
        let uses = [(Protocol::Text, false), (Protocol::Binary, false), (Protocol::Text, true)];
        let reports = uses.map(|(protocol, is_encrypted)| Report {
            address: address.clone(),
            timeout: Duration::from_secs(1),
            protocol,
            is_encrypted,
            state: State::Up,
            tko_count: 0,
            tko_reason: String::new(),
            totals: Totals::default(),
        });
        let mut page = Page::new("holdall_route_");
        servers(&mut page, &reports);
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let series: BTreeSet<&str> =
            lines.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
        assert_eq!((series.len(), lines.len()), (27, 27), "{text}");
    }
}
