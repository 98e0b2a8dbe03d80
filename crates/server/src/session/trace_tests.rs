//! Spans of commands with an announced trace.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::sync::Arc;

use net::{CloseReason, Service as _};
use spans::{Span, Spans, Value, key_hash};
use telemetry::{Settings, Telemetry};

use super::Worker;
use super::tests::{Client, worker};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A worker whose spans wait in the queue.
fn traced_worker() -> (Worker, Arc<Spans>) {
    let worker = worker(&[]);
    let settings = Settings::read("serve", Some("http://127.0.0.1:1"), &|_| None);
    let telemetry = Telemetry::open(&settings.unwrap().unwrap()).unwrap();
    worker.context.shared.export(&telemetry);
    (worker, Arc::clone(telemetry.spans().unwrap()))
}

/// The spans of one connection's input, whole and split at each place, and its replies.
fn spans_of(sent: &str) -> (Vec<Span>, String) {
    let (mut worker, spans) = traced_worker();
    let mut first: Option<(Vec<Span>, String)> = None;
    for cut in 0..=sent.len() {
        let mut client = Client::new(&mut worker);
        let (before, behind) = sent.as_bytes().split_at(cut);
        let mut got = client.send(&mut worker, before);
        got.append(&mut client.send(&mut worker, behind));
        worker.close(client.session, CloseReason::Eof);
        worker.context.engine.flush_all(0).unwrap();
        let (spans, got) = (spans.take(), String::from_utf8(got).unwrap());
        let (known, reply) = first.get_or_insert_with(|| (spans.clone(), got.clone()));
        assert_eq!(*reply, got, "cut at {cut}");
        let facts = |spans: &[Span]| -> Vec<_> {
            spans.iter().map(|span| (span.name, span.attributes.clone(), span.error)).collect()
        };
        assert_eq!(facts(known), facts(&spans), "cut at {cut}");
    }
    first.unwrap()
}

fn outcome(span: &Span) -> Option<&str> {
    span.attributes.iter().find_map(|(name, value)| match value {
        Value::Text(text) if *name == "holdall.outcome" => Some(text.as_str()),
        _ => None,
    })
}

#[test]
fn the_command_after_a_trace_context_gets_a_span() {
    let (spans, replies) =
        spans_of(&format!("set k 0 0 1\r\nx\r\nmn traceparent {TRACE}\r\nget k\r\nget k\r\n"));
    assert_eq!(replies, "STORED\r\nMN\r\nVALUE k 0 1\r\nx\r\nEND\r\nVALUE k 0 1\r\nx\r\nEND\r\n");
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = &spans[0];
    assert_eq!(span.parent, Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31]));
    assert_eq!((span.context.trace[0], span.context.trace[15]), (0x0a, 0x9c));
    assert_eq!((span.name, outcome(span)), ("get", Some("hit")));
    assert!(span.attributes.contains(&("holdall.key.hash", key_hash(b"k"))));
    assert!(span.ended_ns >= span.began_ns);
}

#[test]
fn each_span_has_the_command_name_and_outcome() {
    let large = "v".repeat(100_000);
    for (command, expected) in [
        ("get none\r\n".to_owned(), ("get", Some("miss"))),
        ("gets none k\r\n".to_owned(), ("gets", Some("miss"))),
        ("gat 5 none\r\n".to_owned(), ("gat", Some("miss"))),
        ("lease-get none\r\n".to_owned(), ("lease-get", Some("miss"))),
        ("mg none v\r\n".to_owned(), ("get", Some("miss"))),
        ("mg bm9uZQ== b v\r\n".to_owned(), ("get", Some("miss"))),
        ("ms none 2 T0\r\nab\r\n".to_owned(), ("set", Some("done"))),
        (format!("set none 0 0 {}\r\n{large}\r\n", large.len()), ("set", Some("done"))),
        ("set none 0 0 1 noreply\r\na\r\n".to_owned(), ("set", None)),
        ("replace none 0 0 1\r\na\r\n".to_owned(), ("replace", Some("refused"))),
        ("md none\r\n".to_owned(), ("delete", Some("miss"))),
        ("delete none\r\n".to_owned(), ("delete", Some("miss"))),
        ("incr none 1\r\n".to_owned(), ("incr", Some("miss"))),
        ("touch none 1\r\n".to_owned(), ("touch", Some("miss"))),
    ] {
        // The value is too long for a split at each place.
        let (mut worker, spans) = traced_worker();
        let mut client = Client::new(&mut worker);
        let reply = client.send(&mut worker, format!("mn traceparent {TRACE}\r\n").as_bytes());
        assert_eq!(reply, b"MN\r\n");
        client.send(&mut worker, command.as_bytes());
        let spans = spans.take();
        assert_eq!(spans.len(), 1, "{command}: {spans:?}");
        assert_eq!((spans[0].name, outcome(&spans[0])), expected, "{command}");
        assert!(spans[0].attributes.contains(&("holdall.key.hash", key_hash(b"none"))));
    }
}

/// A regression: a get whose first word came separately left the trace to the next command.
#[test]
fn the_span_belongs_to_the_next_command_even_if_split() {
    for line in ["get k other", "mg k v"] {
        let (spans, _) = spans_of(&format!("mn traceparent {TRACE}\r\n{line}\r\nget other\r\n"));
        assert_eq!(spans.len(), 1, "{spans:?}");
        assert!(spans[0].attributes.contains(&("holdall.key.hash", key_hash(b"k"))));
    }
}

/// More keys than the server waits for.
#[test]
fn an_unfinished_get_has_a_span_with_its_first_key() {
    let (mut worker, spans) = traced_worker();
    let mut client = Client::new(&mut worker);
    client.send(&mut worker, format!("mn traceparent {TRACE}\r\n").as_bytes());
    let keys = "k ".repeat(10_000);
    let reply = client.send(&mut worker, format!("get {keys}").as_bytes());
    assert_eq!(reply, b"");
    assert_eq!(client.send(&mut worker, b"\r\n"), b"END\r\n");
    let spans = spans.take();
    assert_eq!(spans.len(), 1, "{spans:?}");
    assert!(spans[0].attributes.contains(&("holdall.key.hash", key_hash(b"k"))));
}

#[test]
fn an_error_is_the_reason_of_a_failed_span() {
    let (spans, replies) =
        spans_of(&format!("set k 0 0 1\r\nx\r\nmn traceparent {TRACE}\r\nincr k 1\r\n"));
    assert!(replies.ends_with("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n"));
    assert_eq!((spans.len(), spans[0].error), (1, Some("client_error")));
}

#[test]
fn unsampled_and_malformed_contexts_create_no_span() {
    let unsampled = format!("{}00", &TRACE[..53]);
    for words in [
        format!("traceparent {unsampled}"),
        format!("traceparent {}", &TRACE[1..]),
        "traceparent".to_owned(),
        format!("tracestate {TRACE}"),
        "leases traceparent".to_owned(),
    ] {
        let (spans, replies) = spans_of(&format!("mn {words}\r\nget none\r\n"));
        assert!(replies.starts_with("MN"), "{replies}");
        assert_eq!(spans, [], "{words}");
    }
    // The trace is for the command that follows, and this one has no key.
    let (spans, _) = spans_of(&format!("mn traceparent {TRACE}\r\nversion\r\nget none\r\n"));
    assert_eq!(spans, []);
    // The last one counts.
    let (spans, _) =
        spans_of(&format!("mn traceparent {TRACE}\r\nmn traceparent {unsampled}\r\nget none\r\n"));
    assert_eq!(spans, []);
}

#[test]
fn only_a_server_with_a_collector_accepts_trace_contexts() {
    let ask = |worker: &mut Worker| {
        let mut client = Client::new(worker);
        let reply = client.send(worker, b"mn leases traceparent\r\nmn leases\r\n");
        String::from_utf8(reply).unwrap()
    };
    let (mut traced, _) = traced_worker();
    assert_eq!(ask(&mut traced), "MN leases traceparent\r\nMN leases\r\n");
    let mut plain = worker(&[]);
    assert_eq!(ask(&mut plain), "MN leases\r\nMN leases\r\n");
    let mut client = Client::new(&mut plain);
    let sent = format!("mn traceparent {TRACE}\r\nget none\r\n");
    assert_eq!(client.send(&mut plain, sent.as_bytes()), b"MN\r\nEND\r\n");
    assert!(client.session.trace.is_none());
}

/// A datagram's sender may be anyone.
#[test]
fn trace_contexts_in_datagrams_are_ignored() {
    let (mut worker, spans) = traced_worker();
    let mut datagram = vec![0, 1, 0, 0, 0, 1, 0, 0];
    datagram.extend_from_slice(format!("mn traceparent {TRACE}\r\nget none\r\n").as_bytes());
    let mut reply = Vec::new();
    worker.datagram(&net::Peer::local(), &datagram, &mut reply);
    assert_eq!(&reply[8..], b"MN\r\nEND\r\n");
    assert_eq!(spans.take(), []);
}
