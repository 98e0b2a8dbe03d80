//! A dead or silent collector blocks nothing: requests get replies, spans without room are dropped
//! and counted, and the programs exit as usual.

use std::net::{SocketAddr, TcpListener};

use rustix::process::Signal;
use testkit::process::free_port;
use testkit::{Router, Server};

use crate::{page, router, server};

/// Requests of the load: more than the maximum that waits for an exporter.
const REQUESTS: usize = 10_000;

/// The value of a sample on the page.
fn sample(address: SocketAddr, name: &str) -> u64 {
    let text = page(address);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).trim().parse().unwrap()
}

/// Traces all requests, and checks their replies. Returns the addresses of both pages.
fn load(url: &str) -> (Server, Router, [SocketAddr; 2]) {
    let pages = [0; 2].map(|_| SocketAddr::from(([127, 0, 0, 1], free_port())));
    let [of_server, of_router] = pages.map(|address| address.to_string());
    let server = server(url, &["--metrics", &of_server]);
    let more = ["--metrics", &of_router, "--trace-sample", "1/1"];
    let router = router(url, &[server.addr()], "\"PoolRoute|A\"", &more);
    let mut wire = router.connect();
    wire.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    for _ in 0..REQUESTS / 100 {
        wire.send(&b"get k\r\n".repeat(100));
        let replies = wire.read_exact(100 * b"VALUE k 0 1\r\nx\r\nEND\r\n".len());
        assert_eq!(replies, b"VALUE k 0 1\r\nx\r\nEND\r\n".repeat(100));
    }
    (server, router, pages)
}

fn end(mut server: Server, router: Router) {
    assert!(router.end_by(Signal::TERM).success());
    server.signal(Signal::TERM);
    let (is_well, log) = server.wait();
    assert!(is_well, "{log}");
}

#[test]
fn a_silent_collector_loses_only_spans() {
    // The kernel accepts the connections, and no process reads from them.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let (server, router, pages) = load(&url);
    for page in pages {
        let dropped = sample(page, "holdall_telemetry_spans_total{result=\"dropped\"}");
        assert!(dropped > 5_000, "{dropped}");
        assert_eq!(sample(page, "holdall_telemetry_spans_total{result=\"exported\"}"), 0);
    }
    end(server, router);
}

#[test]
fn a_dead_collector_loses_only_spans() {
    let url = format!("http://127.0.0.1:{}", free_port());
    let (server, router, pages) = load(&url);
    server.wait_for_log("does not take");
    for page in pages {
        let lost = ["dropped", "failed"].map(|result| {
            sample(page, &format!("holdall_telemetry_spans_total{{result=\"{result}\"}}"))
        });
        assert!(lost[0] > 1_000, "{lost:?}");
        let failed = "holdall_telemetry_exports_total{signal=\"traces\",result=\"failed\"}";
        assert!(sample(page, failed) > 0);
    }
    end(server, router);
}
