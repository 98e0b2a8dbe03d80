//! Metrics and spans of server, proxy and invalidator in a real OpenTelemetry Collector.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod away;
mod collector;
mod numbers;
mod traces;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use testkit::{Kind, Launch, Router, Server};

/// A server that exports to `url` frequently.
fn server(url: &str, args: &[&str]) -> Server {
    let launch = Launch::new(Kind::Holdall).args(&["--otlp", url]).args(args);
    OFTEN.iter().fold(launch, |launch, (name, value)| launch.env(name, value)).start()
}

/// A proxy that exports frequently, with this route over pools `A`, `B`, .. of one server each.
fn router(url: &str, servers: &[SocketAddr], route: &str, args: &[&str]) -> Router {
    let variables = OFTEN.map(|(name, value)| format!("{name}={value}"));
    let program: Vec<&str> = ["env"].into_iter().chain(variables.iter().map(|s| &**s)).collect();
    let args = [&["--otlp", url, "--asynclog-disable"], args].concat();
    Router::under(&program, &testkit::router::config(servers, route), &args)
}

/// Variables for frequent exports.
const OFTEN: [(&str, &str); 2] =
    [("OTEL_METRIC_EXPORT_INTERVAL", "100"), ("OTEL_BSP_SCHEDULE_DELAY", "100")];

/// The page of metrics.
fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    body.to_owned()
}
