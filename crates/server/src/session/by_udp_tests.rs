//! Requests by UDP, bytes in and bytes out.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use net::{DatagramFate, Peer, Service};

use super::tests::{Client, worker};

#[test]
fn datagrams_are_answered_up_to_their_limit() {
    let mut worker = worker(&[]);
    let value = "v".repeat(100);
    let mut client = Client::new(&mut worker);
    client.send(&mut worker, format!("set k 0 0 100\r\n{value}\r\n").as_bytes());
    let mut ask = |request: &[u8], limit: usize| {
        let mut reply = Vec::new();
        worker.serve_datagram(&Peer::local(), request, limit, &mut reply);
        String::from_utf8(reply).unwrap()
    };
    assert_eq!(ask(b"get k", 1400), "", "the line has no end");
    assert_eq!(
        ask(b"get x\r\nget k\r\n", 1400),
        format!("END\r\nVALUE k 0 100\r\n{value}\r\nEND\r\n")
    );
    let many = "get".to_owned() + &" k".repeat(600) + "\r\n";
    assert_eq!(ask(many.as_bytes(), 1400), "SERVER_ERROR reply too large for UDP\r\n");
}

/// Even without an amplification limit, the frame's datagram count limits a reply by UDP.
#[test]
fn replies_without_an_amplification_limit_are_still_bounded() {
    let mut worker = worker(&["-m", "64", "-o", "udp_amplification=0"]);
    let mut client = Client::new(&mut worker);
    let set = [b"set k 0 0 1000000\r\n", &vec![b'x'; 1_000_000][..], b"\r\n"].concat();
    assert_eq!(client.send(&mut worker, &set), b"STORED\r\n");
    let mut reply = Vec::new();
    let limit = worker.context.shared.udp_reply_bytes_max(7);
    worker.serve_datagram(&Peer::local(), b"get k\r\n", limit, &mut reply);
    assert_eq!(reply.len(), 1_000_000 + b"VALUE k 0 1000000\r\n\r\nEND\r\n".len());
    let request = [&b"get"[..], &b" k".repeat(1000), b"\r\n"].concat();
    reply.clear();
    worker.serve_datagram(&Peer::local(), &request, limit, &mut reply);
    assert!(reply.starts_with(b"SERVER_ERROR reply too large"));
    assert!(reply.capacity() < 200_000_000, "{}", reply.capacity());
}

/// The right to renew a stale item goes to a reader that certainly receives it.
#[test]
fn a_udp_get_does_not_win_a_stale_item() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    let stored = client.send(&mut worker, b"set k 0 0 1\r\nv\r\nmd k I T30\r\n");
    assert_eq!(stored, b"STORED\r\nHD\r\n");
    let mut reply = Vec::new();
    worker.serve_datagram(&Peer::local(), b"mg k v\r\n", 1400, &mut reply);
    assert_eq!(reply, b"VA 1 X\r\nv\r\n");
    assert_eq!(client.send(&mut worker, b"mg k v\r\n"), b"VA 1 X W\r\nv\r\n");
    reply.clear();
    worker.serve_datagram(&Peer::local(), b"mg k v\r\n", 1400, &mut reply);
    assert_eq!(reply, b"VA 1 Z X\r\nv\r\n");
}

/// A small request gets an error, and does not make the worker copy a megabyte for it.
#[test]
fn a_value_too_large_for_a_datagram_is_not_copied() {
    let mut worker = worker(&["-m", "64"]);
    let mut client = Client::new(&mut worker);
    let set = [b"set k 0 0 1000000\r\n", &vec![b'x'; 1_000_000][..], b"\r\n"].concat();
    assert_eq!(client.send(&mut worker, &set), b"STORED\r\n");
    for request in [&b"get k\r\n"[..], b"gets none k k\r\n", b"mg k v\r\n"] {
        let mut reply = Vec::new();
        worker.serve_datagram(&Peer::local(), request, 1400, &mut reply);
        assert_eq!(reply, b"SERVER_ERROR reply too large for UDP\r\n");
        assert!(reply.capacity() < 64 * 1024, "{} bytes were copied", reply.capacity());
    }
}

/// The sender of a datagram may be anyone: none of its requests changes anything.
#[test]
fn only_retrievals_are_served_over_udp() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    assert_eq!(client.send(&mut worker, b"set k 0 0 1\r\nv\r\n"), b"STORED\r\n");
    let mut ask = |request: &[u8]| {
        let mut reply = Vec::new();
        worker.serve_datagram(&Peer::local(), request, 1400, &mut reply);
        reply
    };
    let value = b"VALUE k 0 1\r\nv\r\nEND\r\n";
    assert_eq!(ask(b"get k\r\n"), value);
    assert_eq!(ask(b"mg k v\r\nmn\r\n"), b"VA 1\r\nv\r\nMN\r\n");
    assert!(ask(b"version\r\n").starts_with(b"VERSION "));
    let refused = b"CLIENT_ERROR only get, gets, mg, mn and version are served by UDP\r\n";
    for request in [
        "set k 0 0 1\r\nx\r\n",
        "delete k\r\n",
        "gat 1 k\r\n",
        "mg k T1\r\n",
        "mg new N0 v\r\n",
        "md k\r\n",
        "incr k 1\r\n",
        "touch k 1\r\n",
        "flush_all\r\n",
        "stats\r\n",
        "watch\r\n",
        "verbosity 1\r\n",
        "shutdown\r\n",
    ] {
        assert_eq!(ask(request.as_bytes()), refused, "{request:?}");
    }
    let delete = [&b"\x80\x04\0\x01\0\0\0\0\0\0\0\x01"[..], &[0; 12], b"k"].concat();
    assert_eq!(ask(&delete)[..8], *b"\x81\x04\0\0\0\0\0\x81");
    assert_eq!(ask(b"get k\r\n"), value);
}

/// After one forged datagram, two servers that answered each other's answers would do so endlessly.
#[test]
fn a_reply_datagram_gets_no_reply() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    assert_eq!(client.send(&mut worker, b"set k 0 0 7\r\nmn\r\nx\r\n\r\n"), b"STORED\r\n");
    let mut ask = |payload: &[u8]| {
        let mut reply = Vec::new();
        let datagram = [b"\x12\x34\0\0\0\x01\0\0", payload].concat();
        let fate = worker.datagram(&Peer::local(), &datagram, &mut reply);
        assert_eq!(fate == DatagramFate::Dropped, reply.is_empty(), "{}", payload.escape_ascii());
        reply.get(proto::udp::FRAME_BYTES..).unwrap_or_default().to_vec()
    };
    let delete = [&b"\x80\x04\0\x01\0\0\0\0\0\0\0\x01"[..], &[0; 12], b"k"].concat();
    let noop = [&b"\x80\x0a"[..], &[0; 22]].concat();
    let many = b"get k\r\n".repeat(100);
    for request in [
        &b"get k\r\n"[..],
        b"get none\r\n",
        b"gets k\r\n",
        b"mg k v t f\r\n",
        b"mg k k q Omn\r\nmn\r\n",
        b"mg none\r\n",
        b"mn\r\n",
        b"version\r\n",
        b"set k 0 0 1\r\nx\r\n",
        b"delete k\r\n",
        &delete,
        &noop,
        &many,
    ] {
        let answer = ask(request);
        assert_ne!(answer, b"", "{}", request.escape_ascii());
        assert_eq!(ask(&answer), b"", "answered {}", answer.escape_ascii());
    }
    let no_requests: [&[u8]; 8] = [
        b"x\r\n",
        b"\r\n",
        b"ERROR\r\nget k\r\n",
        b"SERVER_ERROR reply too large for UDP\r\n",
        b"SERVER_ERROR out of memory\r\n",
        b"CLIENT_ERROR bad command line format\r\n",
        b"STAT pid 1\r\nEND\r\n",
        b"\x16\x03\x01\0\x05hello",
    ];
    for payload in no_requests {
        assert_eq!(ask(payload), b"", "{}", payload.escape_ascii());
    }
    assert_eq!(ask(b"mn\r\nx\r\nmn\r\n"), b"MN\r\n", "what follows no request is dropped");
}

/// The second claims not to be the first of its request, the third not to be the only one.
#[test]
fn only_datagrams_with_a_whole_request_are_served() {
    let mut worker = worker(&[]);
    for (datagram, want) in [
        (&b"\x12\x34\0\0\0\x01\0\0mn\r\n"[..], &b"\x12\x34\0\0\0\x01\0\0MN\r\n"[..]),
        (b"\x12\x34\0\x01\0\x01\0\0mn\r\n", b""),
        (b"\x12\x34\0\0\0\x02\0\0mn\r\n", b""),
        (b"\x12\x34\0\0\0\x01\0", b""),
    ] {
        let mut reply = Vec::new();
        let fate = worker.datagram(&Peer::local(), datagram, &mut reply);
        assert_eq!(reply, want, "{}", datagram.escape_ascii());
        assert_eq!(fate == DatagramFate::Dropped, want.is_empty());
    }
}
