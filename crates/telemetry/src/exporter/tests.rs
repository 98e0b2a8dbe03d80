//! The exporter with collectors that are healthy, silent, down, and overloaded.

use super::*;
use crate::message::{Data, Number};
use metrics::Kind;
use spans::OpenSpan;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// Far beyond the duration of anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// A collector that answers each request with the next of `answers`, the last of them repeatedly.
/// Its requests come out of the channel: path and body.
fn collector(answers: Vec<&'static str>) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read_request(&mut stream);
            let status = answers.next_if(|_| true).unwrap_or("200 OK");
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            // A client that has the answer finds the request in the channel.
            if sender.send(request).is_err() {
                return;
            }
            let _ = stream.write_all(head.as_bytes());
        }
    });
    (url, receiver)
}

fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "the request ends early");
        bytes.extend_from_slice(&buffer[..len]);
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.unwrap().parse().unwrap();
        if bytes.len() >= end + 4 + length {
            let path = head.split(' ').nth(1).unwrap().to_owned();
            return (path, bytes[end + 4..].to_vec());
        }
    }
}

fn telemetry(url: &str, millis: &str) -> Telemetry {
    let variable = |name: &str| match name {
        "OTEL_METRIC_EXPORT_INTERVAL" | "OTEL_BSP_SCHEDULE_DELAY" => Some(millis.to_owned()),
        _ => None,
    };
    Telemetry::open(&Settings::read("test", Some(url), &variable).unwrap().unwrap()).unwrap()
}

fn page() -> Page {
    let mut page = Page::new("");
    page.single("hits_total", Kind::Counter, "Hits.", 7);
    page
}

fn span(spans: &Arc<Spans>) {
    OpenSpan::begin(spans, None, spans::Kind::Server, "get").end();
}

#[test]
fn metrics_and_spans_reach_the_collector() {
    let (url, sent) = collector(vec![]);
    let telemetry = telemetry(&url, "50");
    let export_counts = Arc::clone(telemetry.export_counts());
    span(telemetry.spans().unwrap());
    let _exporter = telemetry.start(page, |_| {}).unwrap();
    let (mut has_numbers, mut has_span) = (false, false);
    while !has_numbers || !has_span {
        let (path, body) = sent.recv_timeout(PATIENCE).unwrap();
        if path == "/v1/metrics" {
            let message = Metrics::decode(&body[..]).unwrap();
            let metric = &message.resource_metrics[0].scope_metrics[0].metrics[0];
            let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
            assert_eq!(sum.data_points[0].value, Some(Number::Int(7)));
            has_numbers = true;
        } else {
            assert_eq!(path, "/v1/traces");
            let message = Traces::decode(&body[..]).unwrap();
            let span = &message.resource_spans[0].scope_spans[0].spans[0];
            assert_eq!((&*span.name, span.trace_id.len()), ("get", 16));
            has_span = true;
        }
    }
    let mut shown = Page::new("");
    export_counts.write(&mut shown);
    let text = shown.into_text();
    assert!(text.contains("holdall_telemetry_spans_total{result=\"dropped\"} 0"), "{text}");
}

/// Each request of spans is followed by enough of them for the next one.
#[test]
fn metrics_are_sent_while_spans_are_many() {
    let (url, sent) = collector(vec![]);
    let telemetry = telemetry(&url, "1");
    let spans = Arc::clone(telemetry.spans().unwrap());
    let push = |count| (0..count).for_each(|_| span(&spans));
    push(2048);
    let _exporter = telemetry.start(page, |_| {}).unwrap();
    let paths = sent.iter().take(50).map(|(path, _)| path);
    let mut paths = paths.inspect(|_| push(512));
    assert!(paths.any(|path| path == "/v1/metrics"));
}

/// An hour is between two exports: data that arrives was sent at the end.
#[test]
fn shutdown_sends_pending_data() {
    let (url, sent) = collector(vec![]);
    let telemetry = telemetry(&url, "3600000");
    let spans = Arc::clone(telemetry.spans().unwrap());
    let exporter = telemetry.start(page, |_| {}).unwrap();
    span(&spans);
    drop(exporter);
    let paths: Vec<String> = sent.try_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/v1/metrics", "/v1/traces"]);
}

#[test]
fn spans_refused_by_an_overloaded_collector_are_resent() {
    let (url, sent) = collector(vec!["503 Service Unavailable"]);
    let variable = |name: &str| match name {
        "OTEL_METRICS_EXPORTER" => Some("none".to_owned()),
        "OTEL_BSP_SCHEDULE_DELAY" => Some("10".to_owned()),
        _ => None,
    };
    let settings = Settings::read("test", Some(&url), &variable).unwrap().unwrap();
    let telemetry = Telemetry::open(&settings).unwrap();
    let export_counts = Arc::clone(telemetry.export_counts());
    span(telemetry.spans().unwrap());
    let (said, lines) = mpsc::channel();
    let log = move |line: &str| {
        let _ = said.send(line.to_owned());
    };
    let _exporter = telemetry.start(page, log).unwrap();
    let first = sent.recv_timeout(PATIENCE).unwrap();
    assert_eq!(sent.recv_timeout(PATIENCE).unwrap(), first);
    let line = lines.recv_timeout(PATIENCE).unwrap();
    assert!(line.contains("does not take spans: status 503"), "{line}");
    assert!(lines.recv_timeout(PATIENCE).unwrap().ends_with("takes spans again"));
    // Relaxed: the log was called after the count.
    assert_eq!(export_counts.spans_failed.load(Ordering::Relaxed), 0);
}

#[test]
fn rejected_exports_are_counted_and_not_resent() {
    let (url, sent) = collector(vec!["400 Bad Request"]);
    let telemetry = telemetry(&url, "3600000");
    let export_counts = Arc::clone(telemetry.export_counts());
    let spans = Arc::clone(telemetry.spans().unwrap());
    let exporter = telemetry.start(page, |_| {}).unwrap();
    span(&spans);
    drop(exporter);
    let paths: Vec<String> = sent.try_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/v1/metrics", "/v1/traces"]);
    // Relaxed: the thread has ended.
    assert_eq!(
        export_counts.spans_exported.load(Ordering::Relaxed),
        1,
        "the second answer was 200"
    );
}

/// No collector accepts, so that a request hangs: spans are still queued or dropped, and the end
/// waits no longer than documented.
#[test]
fn a_silent_collector_loses_only_spans_beyond_the_queue() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let telemetry = telemetry(&url, "1");
    let export_counts = Arc::clone(telemetry.export_counts());
    let spans = Arc::clone(telemetry.spans().unwrap());
    let exporter = telemetry.start(page, |_| {}).unwrap();
    (0..10_000).for_each(|_| span(&spans));
    assert!(spans.dropped() > 5_000, "{}", spans.dropped());
    drop(exporter);
    // Relaxed: a count.
    assert_eq!(export_counts.spans_exported.load(Ordering::Relaxed), 0);
}

#[test]
fn the_log_does_not_show_the_collectors_password() {
    let (url, sent) = collector(vec!["401 Unauthorized"]);
    let telemetry = telemetry(&url.replace("//", "//user:secret@"), "10");
    let (said, lines) = mpsc::channel();
    let log = move |line: &str| {
        let _ = said.send(line.to_owned());
    };
    let _exporter = telemetry.start(page, log).unwrap();
    sent.recv_timeout(PATIENCE).unwrap();
    let line = lines.recv_timeout(PATIENCE).unwrap();
    let shown = url.replace("//", "//***@");
    let refusal = "does not take metrics: status 401 Unauthorized";
    assert_eq!(line, format!("warning: {shown}/v1/metrics {refusal}"));
}
