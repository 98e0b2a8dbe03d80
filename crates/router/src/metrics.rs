//! `--metrics`: the numbers for Prometheus, `GET /metrics` over HTTP, on threads of their own.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use metrics::{Kind, Page};
use upstream::{Report, State};

use crate::shared::Shared;

/// The longest head of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 8192;

/// The time that a reader has for its request, and then for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that are served at a time. One more is closed.
const CONNECTIONS_MAX: usize = 16;

/// Upper ends of the histograms' buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// Answers on `address` until the program ends. Returns the address as bound.
///
/// # Errors
///
/// When the address cannot be bound, or there is no thread.
pub(crate) fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let shared = Arc::clone(shared);
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        // Each connection's thread has a clone, so the count is that of open connections.
        let open = Arc::new(());
        loop {
            match listener.accept() {
                Ok((stream, _)) if Arc::strong_count(&open) <= CONNECTIONS_MAX => {
                    let (shared, place) = (Arc::clone(&shared), Arc::clone(&open));
                    let serve = move || {
                        // A reader that is slow or goes away gets nothing.
                        drop(answer(&stream, &shared));
                        drop(place);
                    };
                    // Without a thread the connection is closed.
                    drop(thread::Builder::new().name("metrics".to_owned()).spawn(serve));
                }
                Ok(_) => {}
                // Out of files: others may close some.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn answer(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    let request = head(stream)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(metrics::respond(&request, || page(shared)).as_bytes())
}

/// Reads the head of a request to its end: closing before that would reset the connection under
/// the answer.
fn head(mut stream: &TcpStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = vec![0; REQUEST_BYTES_MAX];
    let mut len = 0;
    while !bytes[..len].ends_with(b"\r\n\r\n") && !bytes[..len].ends_with(b"\n\n") {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || len == bytes.len() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes[len..])? {
            0 => break,
            read => len += read,
        }
    }
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

/// The text that Prometheus reads.
fn page(shared: &Shared) -> String {
    let mut page = Page::new("holdall_route_");
    let stats = shared.control.get().map(net::Control::stats).unwrap_or_default();
    let current = shared.current();
    // Relaxed: a count, which orders nothing else.
    let failures = shared.config.failures.load(Ordering::Relaxed);
    for (name, kind, value) in [
        ("uptime_seconds", Kind::Gauge, shared.started.elapsed().as_secs()),
        ("client_connections", Kind::Gauge, stats.curr_connections),
        ("config_age_seconds", Kind::Gauge, current.since.elapsed().as_secs()),
        ("config_failures_total", Kind::Counter, failures),
    ] {
        page.kind(name, kind);
        page.sample(name, &[], value);
    }
    servers(&mut page, shared);
    durations(&mut page, shared);
    page.into_text()
}

fn servers(page: &mut Page, shared: &Shared) {
    let reports = shared.registry.report();
    let names: Vec<_> = reports
        .iter()
        .map(|report| (report.address.to_string(), report.timeout.as_millis().to_string()))
        .collect();
    let mut each =
        |name: &str, kind: Kind, values: &dyn Fn(&Report) -> Vec<(&'static str, u64)>| {
            page.kind(name, kind);
            for (report, (server, timeout)) in reports.iter().zip(&names) {
                for (result, value) in values(report) {
                    let labels =
                        [("server", server.as_str()), ("timeout_ms", timeout), ("result", result)];
                    let count = if result.is_empty() { 2 } else { 3 };
                    page.sample(name, &labels[..count], value);
                }
            }
        };
    let is_up = |report: &Report| !matches!(report.state, State::SoftTko | State::HardTko);
    each("server_up", Kind::Gauge, &|report| vec![("", u64::from(is_up(report)))]);
    each("requests_inflight", Kind::Gauge, &|report| vec![("", report.totals.pending)]);
    each("requests_total", Kind::Counter, &|report| vec![("", report.totals.asked)]);
    each("results_total", Kind::Counter, &|report| {
        let totals = &report.totals;
        vec![
            ("found", totals.found),
            ("not_found", totals.not_found),
            ("timeout", totals.timeouts),
            ("tko", totals.tko),
            ("error", totals.failed),
        ]
    });
}

/// A histogram for each server and pool.
fn durations(page: &mut Page, shared: &Shared) {
    page.kind("request_duration_seconds", Kind::Histogram);
    for (place, times_us) in shared.registry.latencies() {
        let server = place.server.to_string();
        let labels = [("pool", place.pool.as_ref()), ("server", server.as_str())];
        let buckets = BUCKETS_US.map(|us| (us as f64 / 1e6, up_to(&times_us, us)));
        let sum = times_us.mean() * times_us.len() as f64 / 1e6;
        page.histogram("request_duration_seconds", &labels, buckets, sum, times_us.len());
    }
}

/// The number of replies that took at most `us` microseconds, within a bucket's width of one
/// percent.
fn up_to(times_us: &Histogram<u64>, us: u64) -> u64 {
    times_us.count_between(0, us)
}
