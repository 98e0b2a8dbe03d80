//! Spans: one trace from a client through two proxies to a server, and the receivers of a context.

use std::collections::BTreeSet;

use testkit::{Kind, Launch, Server, eventually};

use crate::collector::{Collector, Span};
use crate::{router, server};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

const CALLER: &str = "b7ad6b7169203331";

/// A server that logs its requests.
fn verbose(kind: Kind) -> Server {
    Launch::new(kind).args(&["-vv"]).start()
}

fn children<'s>(spans: &'s [Span], parent: &str) -> Vec<&'s Span> {
    spans.iter().filter(|span| span.parent == parent).collect()
}

/// The only span below `parent`.
#[track_caller]
fn child<'s>(spans: &'s [Span], parent: &str) -> &'s Span {
    let found = children(spans, parent);
    assert_eq!(found.len(), 1, "{parent}: {spans:#?}");
    found[0]
}

#[test]
fn a_trace_spans_client_proxies_and_server() {
    let collector = Collector::start();
    let server = server(&collector.url(), &[]);
    let inner = router(&collector.url(), &[server.addr()], "\"PoolRoute|A\"", &[]);
    let outer = router(&collector.url(), &[inner.addr()], "\"PoolRoute|A\"", &[]);
    let mut wire = outer.connect();
    wire.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    let announced = format!("mn traceparent 00-{TRACE}-{CALLER}-01\r\nget k none\r\n");
    wire.expect(announced.as_bytes(), b"MN\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    wire.expect(b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
    // Two keys, each with two spans in each proxy and one in the server.
    let spans = collector.until(|spans| spans.len() >= 10);
    assert_eq!(spans.len(), 10, "{spans:#?}");
    assert!(spans.iter().all(|span| span.trace == TRACE && span.name == "get"), "{spans:#?}");
    let roots = children(&spans, CALLER);
    assert_eq!(roots.len(), 2);
    let mut outcomes = BTreeSet::new();
    for outer_asked in roots {
        let outer_asks = child(&spans, &outer_asked.id);
        let inner_asked = child(&spans, &outer_asks.id);
        let inner_asks = child(&spans, &inner_asked.id);
        let served = child(&spans, &inner_asks.id);
        let chain = [outer_asked, outer_asks, inner_asked, inner_asks, served];
        assert_eq!(chain.map(|span| span.kind), [2, 3, 2, 3, 2]);
        let services = chain.map(|span| &*span.service);
        let [route, serve] = ["holdall-route", "holdall-serve"];
        assert_eq!(services, [route, route, route, route, serve]);
        assert_eq!(outer_asks.attributes["server.port"], inner.addr().port().to_string());
        assert_eq!(inner_asks.attributes["server.port"], server.addr().port().to_string());
        assert_eq!(inner_asks.attributes["holdall.pool"], "A");
        let hashes: BTreeSet<_> =
            chain.iter().map(|span| &span.attributes["holdall.key.hash"]).collect();
        assert_eq!(hashes.len(), 1, "{chain:#?}");
        assert!(chain.iter().all(|span| span.outcome() == served.outcome()), "{chain:#?}");
        assert!(chain.iter().all(|span| span.began_ns <= span.ended_ns));
        assert!(served.began_ns >= outer_asked.began_ns, "{chain:#?}");
        outcomes.insert(served.outcome().to_owned());
        let text = format!("{chain:?}");
        assert!(!text.contains("\"k\"") && !text.contains("none"), "no key: {text}");
    }
    assert_eq!(outcomes, ["hit", "miss"].map(str::to_owned).into());
}

#[test]
fn a_proxy_samples_traces_and_records_a_span_per_server() {
    let collector = Collector::start();
    let servers = [server(&collector.url(), &[]), server(&collector.url(), &[])];
    let addresses = servers.each_ref().map(Server::addr);
    let route = r#"{"type": "AllSyncRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}"#;
    let router = router(&collector.url(), &addresses, route, &["--trace-sample", "1/1"]);
    let mut wire = router.connect();
    for _ in 0..3 {
        wire.expect(b"set k 0 0 1\r\nx\r\n", b"STORED\r\n");
    }
    // A request with an unsampled context is not traced.
    let unwanted = format!("mn traceparent 00-{TRACE}-{CALLER}-00\r\nget k\r\n");
    wire.expect(unwanted.as_bytes(), b"MN\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    wire.expect(b"get k\r\n", b"VALUE k 0 1\r\nx\r\nEND\r\n");
    let spans = collector.until(|spans| spans.len() >= 20);
    assert_eq!(spans.len(), 20, "{spans:#?}");
    let roots = children(&spans, "");
    assert_eq!(roots.len(), 4);
    let traces: BTreeSet<_> = roots.iter().map(|root| &root.trace).collect();
    assert_eq!(traces.len(), 4);
    for root in roots {
        let asks = children(&spans, &root.id);
        let ports: BTreeSet<_> = asks.iter().map(|span| &span.attributes["server.port"]).collect();
        assert_eq!(ports.len(), 2, "{asks:#?}");
        for ask in asks {
            let served = child(&spans, &ask.id);
            assert_eq!((&*served.service, &served.trace), ("holdall-serve", &root.trace));
        }
    }
}

/// Every command to each kind of server that collects no spans: no server gets a context, and every
/// reply is the same as without tracing.
#[test]
fn servers_that_collect_no_spans_never_get_a_context() {
    let collector = Collector::start();
    for server in [verbose(Kind::Memcached), verbose(Kind::Holdall)] {
        let traced = ["--trace-sample", "1/1"];
        let router = router(&collector.url(), &[server.addr()], "\"PoolRoute|A\"", &traced);
        let mut wire = router.connect();
        let before = collector.spans().len();
        for (request, reply) in [
            ("get k\r\n", "END\r\n"),
            ("set k 1 0 1\r\nx\r\n", "STORED\r\n"),
            ("get k none\r\n", "VALUE k 1 1\r\nx\r\nEND\r\n"),
            ("mg k v f\r\n", "VA 1 f1\r\nx\r\n"),
            ("ms k 1\r\n5\r\n", "HD\r\n"),
            ("incr k 1\r\n", "6\r\n"),
            ("touch k 0\r\n", "TOUCHED\r\n"),
            ("gat 0 k\r\n", "VALUE k 0 1\r\n6\r\nEND\r\n"),
            ("append k 0 0 1\r\ny\r\n", "STORED\r\n"),
            ("delete k\r\n", "DELETED\r\n"),
        ] {
            wire.expect(request.as_bytes(), reply.as_bytes());
            let announced = format!("mn traceparent 00-{TRACE}-{CALLER}-01\r\n");
            wire.expect(announced.as_bytes(), b"MN\r\n");
            wire.expect(b"get absent\r\n", b"END\r\n");
        }
        // Another thread of the server writes its log.
        eventually("every command in the log", || server.log().matches("get absent").count() >= 10);
        let log = server.log();
        assert!(!log.contains("mn traceparent"), "{log}");
        // The proxy's spans still exist: 21 requests, each with one to the server.
        let spans = collector.until(|spans| spans.len() >= before + 42);
        assert!(spans.iter().all(|span| span.service == "holdall-route"), "{spans:#?}");
        assert_eq!(spans.len(), before + 42);
    }
}
