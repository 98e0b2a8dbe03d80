//! `--metrics`: the numbers for Prometheus, `GET /metrics` over HTTP, on a thread of its own.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use upstream::State;

use crate::shared::Shared;

/// The longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 8192;

/// How long a reader has to ask and to read, each.
const PATIENCE: Duration = Duration::from_secs(5);

/// Upper ends of the histograms' buckets, in microseconds.
const BUCKETS_US: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];

/// Answers on `address` until the program ends. Returns where it listens.
///
/// # Errors
///
/// When the address is not to be had.
pub(crate) fn start(shared: &Arc<Shared>, address: SocketAddr) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let shared = Arc::clone(shared);
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        loop {
            match listener.accept() {
                // Whoever asks slowly or goes away gets nothing.
                Ok((stream, _)) => drop(answer(&stream, &shared)),
                // Out of files: others may close some.
                Err(_) => thread::sleep(Duration::from_millis(100)),
            }
        }
    })?;
    Ok(bound)
}

fn answer(mut stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.take(REQUEST_BYTES_MAX));
    let (mut request, mut line) = (String::new(), String::new());
    lines.read_line(&mut request)?;
    // The head is read to its end, or closing would reset the connection under the answer.
    while lines.read_line(&mut line)? > 0 && !line.trim_end().is_empty() {
        line.clear();
    }
    let mut words = request.split_ascii_whitespace();
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET"), Some("/metrics")) => ("200 OK", text(shared)),
        _ => ("404 Not Found", "only GET /metrics is here\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// The text that Prometheus reads.
fn text(shared: &Shared) -> String {
    let mut text = String::new();
    let stats = shared.control.get().map(net::Control::stats).unwrap_or_default();
    let current = shared.current();
    // Relaxed: a count, which orders nothing else.
    let failures = shared.config.failures.load(std::sync::atomic::Ordering::Relaxed);
    gauge(&mut text, "uptime_seconds", shared.started.elapsed().as_secs());
    gauge(&mut text, "client_connections", stats.curr_connections);
    gauge(&mut text, "config_age_seconds", current.since.elapsed().as_secs());
    head(&mut text, "config_failures_total", "counter");
    // Writing into a string does not fail.
    let _ = writeln!(text, "holdall_route_config_failures_total {failures}");
    servers(&mut text, shared);
    durations(&mut text, shared);
    text
}

fn head(text: &mut String, name: &str, kind: &str) {
    let _ = writeln!(text, "# TYPE holdall_route_{name} {kind}");
}

fn gauge(text: &mut String, name: &str, value: u64) {
    head(text, name, "gauge");
    let _ = writeln!(text, "holdall_route_{name} {value}");
}

fn servers(text: &mut String, shared: &Shared) {
    let reports = shared.registry.report();
    let label = |report: &upstream::Report| {
        let server = escaped(&report.address.to_string());
        format!("server=\"{server}\",timeout_ms=\"{}\"", report.timeout.as_millis())
    };
    head(text, "server_up", "gauge");
    for report in &reports {
        let is_up = !matches!(report.state, State::SoftTko | State::HardTko);
        let _ = writeln!(text, "holdall_route_server_up{{{}}} {}", label(report), u8::from(is_up));
    }
    head(text, "requests_inflight", "gauge");
    for report in &reports {
        let name = "holdall_route_requests_inflight";
        let _ = writeln!(text, "{name}{{{}}} {}", label(report), report.totals.pending);
    }
    head(text, "requests_total", "counter");
    for report in &reports {
        let name = "holdall_route_requests_total";
        let _ = writeln!(text, "{name}{{{}}} {}", label(report), report.totals.asked);
    }
    head(text, "results_total", "counter");
    for report in &reports {
        let totals = &report.totals;
        let results = [
            ("found", totals.found),
            ("not_found", totals.not_found),
            ("timeout", totals.timeouts),
            ("tko", totals.tko),
            ("error", totals.failed),
        ];
        for (result, count) in results {
            let name = "holdall_route_results_total";
            let _ = writeln!(text, "{name}{{{},result=\"{result}\"}} {count}", label(report));
        }
    }
}

/// A histogram for each server and pool.
fn durations(text: &mut String, shared: &Shared) {
    let name = "request_duration_seconds";
    head(text, name, "histogram");
    for (place, times_us) in shared.registry.latencies() {
        let (pool, server) = (escaped(&place.pool), escaped(&place.server.to_string()));
        let labels = format!("pool=\"{pool}\",server=\"{server}\"");
        let full = format!("holdall_route_{name}");
        for us in BUCKETS_US {
            let (end, count) = (us as f64 / 1e6, below(&times_us, us));
            let _ = writeln!(text, "{full}_bucket{{{labels},le=\"{end}\"}} {count}");
        }
        let count = times_us.len();
        let sum = times_us.mean() * count as f64 / 1e6;
        let _ = writeln!(text, "{full}_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{full}_sum{{{labels}}} {sum:.6}");
        let _ = writeln!(text, "{full}_count{{{labels}}} {count}");
    }
}

/// Answers that took at most so long, within a bucket's width of one percent.
fn below(times_us: &Histogram<u64>, us: u64) -> u64 {
    times_us.count_between(0, us)
}

/// A label's value: backslashes, quotes and line ends are escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
