//! Limits of namespaces, bytes in and bytes out: exact replies, and one for each request.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::Write;
use std::time::{Duration, Instant};

use net::Service;
use tempfile::NamedTempFile;

use super::Worker;
use super::reply_count_tests::{packet, packets};
use super::tests::{Client, worker};

/// A worker with these lines in its file of namespaces, and a connection.
pub(super) fn with_lines(lines: &str) -> (Worker, Client) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(lines.as_bytes()).unwrap();
    let mut worker = worker(&["-o", &format!("namespaces={}", file.path().display())]);
    let client = Client::new(&mut worker);
    (worker, client)
}

#[track_caller]
fn expect(worker: &mut Worker, client: &mut Client, sent: &[u8], want: &[u8]) {
    let got = client.send(worker, sent);
    assert_eq!(got.escape_ascii().to_string(), want.escape_ascii().to_string());
}

/// A turn later, with all tokens available.
fn refill(worker: &mut Worker) {
    let now = worker.context.now;
    worker.begin_turn(now + Duration::from_secs(2));
}

#[test]
fn a_store_beyond_the_quota_gets_its_own_error() {
    let (mut worker, mut client) = with_lines("prefix q: max-bytes=100\n");
    // 16 bytes of header and 3 of key.
    let value = "x".repeat(81);
    let set = |key: &str, value: &str| format!("set {key} 0 0 {}\r\n{value}\r\n", value.len());
    for (sent, want) in [
        (set("q:1", &value), "STORED\r\n"),
        (set("q:1", &value), "STORED\r\n"),
        (set("q:2", ""), "SERVER_ERROR max-bytes of the namespace reached\r\n"),
        ("add q:2 0 0 1 noreply\r\nx\r\nmn\r\n".to_owned(), "MN\r\n"),
        (
            "append q:1 0 0 1\r\nx\r\nms q:2 1\r\nx\r\n".to_owned(),
            "SERVER_ERROR max-bytes of the namespace reached\r\n\
             SERVER_ERROR max-bytes of the namespace reached\r\n",
        ),
        (
            "mg q:2 v N0\r\nma q:2 N0 J1\r\n".to_owned(),
            "SERVER_ERROR max-bytes of the namespace reached\r\n\
             SERVER_ERROR max-bytes of the namespace reached\r\n",
        ),
        (
            format!("replace q:1 0 0 82\r\n{value}y\r\n"),
            "SERVER_ERROR max-bytes of the namespace reached\r\n",
        ),
        ("mg q:1 s\r\n".to_owned(), "HD s81\r\n"),
        (set("other", &value), "STORED\r\n"),
        (set("q:1", &(value.clone() + "y")), "SERVER_ERROR max-bytes of the namespace reached\r\n"),
        ("mg q:1 s\r\ndelete q:1\r\n".to_owned(), "HD s81\r\nDELETED\r\n"),
        (set("q:2", ""), "STORED\r\n"),
    ] {
        expect(&mut worker, &mut client, sent.as_bytes(), want.as_bytes());
    }
    let mut client = Client::new(&mut worker);
    let extras = [0; 8];
    let sent = [packet(0x01, 1, &extras, b"q:1", &[b'x'; 81]), packet(0x0a, 2, b"", b"", b"")];
    assert_eq!(packets(&client.send(&mut worker, &sent.concat())), [(1, 0x82), (2, 0)]);
}

/// Also one in pieces, of which the first is in memory before the last is sent.
#[test]
fn a_quota_applies_to_a_value_received_in_pieces() {
    let (mut worker, mut client) = with_lines("prefix q: max-bytes=1k\n");
    expect(&mut worker, &mut client, b"set q:1 0 0 1\r\nx\r\n", b"STORED\r\n");
    let value = vec![b'v'; 40_000];
    expect(&mut worker, &mut client, b"set q:1 0 0 40000\r\n", b"");
    for part in value.chunks(7000) {
        expect(&mut worker, &mut client, part, b"");
    }
    let refused = b"SERVER_ERROR max-bytes of the namespace reached\r\n";
    expect(&mut worker, &mut client, b"\r\n", refused);
    let old = b"VALUE q:1 0 1\r\nx\r\nEND\r\nMN\r\n";
    expect(&mut worker, &mut client, b"get q:1\r\nmn\r\n", old);
}

#[test]
fn ttl_limits_apply_in_every_protocol() {
    let (mut worker, mut client) = with_lines("prefix t: default-ttl=30 max-ttl=60\n");
    for (sent, want) in [
        ("set t:1 0 0 1\r\nx\r\nmg t:1 t\r\n", "STORED\r\nHD t30\r\n"),
        ("set t:1 0 50 1\r\nx\r\nmg t:1 t\r\n", "STORED\r\nHD t50\r\n"),
        ("set t:1 0 500 1\r\nx\r\nmg t:1 t\r\n", "STORED\r\nHD t60\r\n"),
        ("touch t:1 10\r\nmg t:1 t\r\n", "TOUCHED\r\nHD t10\r\n"),
        ("touch t:1 0\r\nmg t:1 t\r\n", "TOUCHED\r\nHD t60\r\n"),
        ("gat 900 t:1\r\nmg t:1 t\r\n", "VALUE t:1 0 1\r\nx\r\nEND\r\nHD t60\r\n"),
        ("mg t:1 T20 t\r\nmg t:1 T900 t\r\n", "HD t20\r\nHD t60\r\n"),
        ("ms t:2 1\r\n5\r\nmg t:2 t\r\n", "HD\r\nHD t30\r\n"),
        ("ms t:2 1 T900\r\n5\r\nmg t:2 t\r\n", "HD\r\nHD t60\r\n"),
        ("ma t:2 T900 t\r\nincr t:2 1\r\nmg t:2 t\r\n", "HD t60\r\n7\r\nHD t60\r\n"),
        ("ma t:3 N0 t\r\nmg t:3 t\r\n", "HD t30\r\nHD t30\r\n"),
        ("mg t:4 N900 t\r\nmg t:4 t\r\n", "HD t60 W\r\nHD t60 Z\r\n"),
        ("md t:2 x\r\nmg t:2 t s\r\n", "HD\r\nHD t30 s0\r\n"),
        (
            "set o 0 0 1\r\nx\r\nmg o t\r\ntouch o 900\r\nmg o t\r\n",
            "STORED\r\nHD t-1\r\nTOUCHED\r\nHD t900\r\n",
        ),
    ] {
        expect(&mut worker, &mut client, sent.as_bytes(), want.as_bytes());
    }
    let ttl = |worker: &mut Worker, sent: Vec<u8>| {
        let mut binary = Client::new(worker);
        assert_eq!(packets(&binary.send(worker, &sent)), [(1, 0)]);
        let mut client = Client::new(worker);
        String::from_utf8(client.send(worker, b"mg t:5 t\r\n")).unwrap()
    };
    let exptime = |secs: u32| [&[0; 4][..], &secs.to_be_bytes()].concat();
    let set = |secs| packet(0x01, 1, &exptime(secs), b"t:5", b"v");
    assert_eq!(ttl(&mut worker, set(0)), "HD t30\r\n");
    assert_eq!(ttl(&mut worker, set(900)), "HD t60\r\n");
    let touch = |opcode, secs: u32| packet(opcode, 1, &secs.to_be_bytes(), b"t:5", b"");
    assert_eq!(ttl(&mut worker, touch(0x1c, 7)), "HD t7\r\n");
    assert_eq!(ttl(&mut worker, touch(0x1d, 900)), "HD t60\r\n");
    assert_eq!(ttl(&mut worker, touch(0x1c, 0)), "HD t60\r\n");
    let mut count = [0; 20];
    count[16..].copy_from_slice(&900u32.to_be_bytes());
    assert_eq!(ttl(&mut worker, packet(0x04, 1, b"", b"t:5", b"")), "EN\r\n");
    assert_eq!(ttl(&mut worker, packet(0x05, 1, &count, b"t:5", b"")), "HD t60\r\n");
}

#[test]
fn a_rate_limited_request_gets_one_reply_and_skips_its_data() {
    const REACHED: &str = "SERVER_ERROR max-requests-per-second of the namespace reached\r\n";
    let (mut worker, mut client) = with_lines("prefix r: max-requests-per-second=2\n");
    expect(
        &mut worker,
        &mut client,
        b"set r:1 0 0 1\r\nx\r\nadd r:2 0 0 1\r\ny\r\n",
        b"STORED\r\nSTORED\r\n",
    );
    for (sent, reply) in [
        ("get r:2\r\n", REACHED),
        ("gat 0 r:2\r\n", REACHED),
        ("get other r:2 other\r\n", REACHED),
        ("lease-get r:2\r\n", REACHED),
        ("add r:2 0 0 9\r\nget r:1\r\n\r\n", REACHED),
        ("add r:2 0 0 1 noreply\r\nz\r\n", ""),
        ("append r:2 0 0 1\r\nz\r\n", REACHED),
        ("incr r:2 1\r\n", REACHED),
        ("incr r:2 1 noreply\r\n", ""),
        ("touch r:2 1\r\n", REACHED),
        ("mg r:2 v\r\n", REACHED),
        ("mg r:2 v q\r\n", REACHED),
        ("ms r:3 9 q\r\nget r:1\r\n\r\n", REACHED),
        ("ma r:2 q\r\n", REACHED),
        ("me r:2\r\n", REACHED),
        ("md r:3 q\r\n", "NF\r\n"),
        ("delete r:3\r\n", "NOT_FOUND\r\n"),
        ("flush_prefix r:4\r\n", "OK\r\n"),
        ("get other\r\nversion\r\n", "END\r\nVERSION 1.6.45\r\n"),
    ] {
        expect(
            &mut worker,
            &mut client,
            format!("{sent}mn\r\n").as_bytes(),
            format!("{reply}MN\r\n").as_bytes(),
        );
    }
    refill(&mut worker);
    // The keys before the first refused one are answered. Each key counts.
    expect(
        &mut worker,
        &mut client,
        b"get r:1 r:2 r:1 r:2\r\n",
        format!("VALUE r:1 0 1\r\nx\r\nVALUE r:2 0 1\r\ny\r\n{REACHED}").as_bytes(),
    );
    // A refused store leaves the old value.
    for sent in [&b"set r:1 0 0 1\r\nz\r\n"[..], b"ms r:2 1 I\r\nz\r\n", b"add r:2 0 0 1\r\nz\r\n"]
    {
        expect(&mut worker, &mut client, sent, REACHED.as_bytes());
    }
    refill(&mut worker);
    let both = b"VALUE r:1 0 1\r\nx\r\nVALUE r:2 0 1\r\ny\r\nEND\r\n";
    expect(&mut worker, &mut client, b"get r:1 r:2\r\n", both);
}

/// A hold-off is refused for its rate; the delete is not.
#[test]
fn a_rate_limited_hold_off_leaves_the_delete() {
    const REACHED: &str =
        "SERVER_ERROR deleted, but max-requests-per-second does not allow the hold-off\r\n";
    let mut lines = NamedTempFile::new().unwrap();
    lines.write_all(b"prefix r: max-requests-per-second=3\n").unwrap();
    let namespaces = format!("delete_hold_off,namespaces={}", lines.path().display());
    let mut worker = worker(&["-o", &namespaces]);
    worker.begin_turn(Instant::now());
    let mut client = Client::new(&mut worker);
    for (sent, want) in [
        // Both take one token.
        ("set r:1 0 0 1\r\nx\r\nmd r:2 H60\r\ndelete r:3 60\r\n", "STORED\r\nNF\r\nNOT_FOUND\r\n"),
        ("md r:1 C1 H60 q\r\nmn\r\n", "EX\r\nMN\r\n"),
        ("md r:1 H60 q\r\nmd r:4 H60\r\n", REACHED),
        ("delete r:1 60\r\ndelete r:1 60 noreply\r\nmn\r\n", REACHED),
        ("md r:1 H0\r\nmd r:1\r\ndelete r:1\r\n", "NF\r\nNF\r\nNOT_FOUND\r\n"),
        ("md other H60\r\nget other\r\n", "NF\r\nEND\r\n"),
    ] {
        let want = match sent {
            _ if sent.starts_with("md r:1 H60 q") => want.repeat(2),
            _ if sent.ends_with("noreply\r\nmn\r\n") => format!("{want}MN\r\n"),
            _ => want.to_owned(),
        };
        expect(&mut worker, &mut client, sent.as_bytes(), want.as_bytes());
    }
    refill(&mut worker);
    let adds = b"add r:1 0 0 1\r\ny\r\nadd r:2 0 0 1\r\ny\r\nadd r:3 0 0 1\r\ny\r\n";
    expect(&mut worker, &mut client, adds, b"STORED\r\nNOT_STORED\r\nNOT_STORED\r\n");
}

#[test]
fn a_rate_limited_binary_request_gets_one_reply() {
    let (mut worker, mut text) = with_lines("prefix r: max-requests-per-second=2\n");
    let all = b"set r:1 0 0 1\r\nx\r\nget r:1\r\n";
    expect(&mut worker, &mut text, all, b"STORED\r\nVALUE r:1 0 1\r\nx\r\nEND\r\n");
    let mut client = Client::new(&mut worker);
    let extras = [0; 8];
    for (sent, want) in [
        (packet(0x00, 1, b"", b"r:1", b""), &[(1, 0x85)][..]),
        (packet(0x09, 1, b"", b"r:1", b""), &[]),
        (packet(0x01, 1, &extras, b"r:1", &[b'v'; 300]), &[(1, 0x85)]),
        (packet(0x11, 1, &extras, b"r:1", b"v"), &[(1, 0x85)]),
        (packet(0x0e, 1, b"", b"r:1", b"v"), &[(1, 0x85)]),
        (packet(0x05, 1, &[0; 20], b"r:1", b""), &[(1, 0x85)]),
        // The key exists: the refused stores have left it.
        (packet(0x04, 1, b"", b"r:1", b""), &[(1, 0)]),
        (packet(0x00, 1, b"", b"o", b""), &[(1, 0x01)]),
    ] {
        let sent = [sent, packet(0x0a, 2, b"", b"", b"")].concat();
        let want = [want, &[(2, 0)]].concat();
        assert_eq!(packets(&client.send(&mut worker, &sent)), want, "{}", sent.escape_ascii());
    }
}

#[test]
fn stats_prefixes_shows_namespaces_and_their_limits() {
    let (mut worker, mut client) =
        with_lines("prefix a: max-bytes=1k max-ttl=60\nprefix * max-requests-per-second=7\n");
    client.send(&mut worker, b"set a:1 0 0 1\r\nx\r\nget a:1 a:2 b\r\nmg a:1\r\ndelete b\r\n");
    expect(
        &mut worker,
        &mut client,
        b"stats prefixes\r\n",
        b"STAT prefix:a::items 1\r\nSTAT prefix:a::bytes 20\r\nSTAT prefix:a::requests 4\r\n\
          STAT prefix:a::gets 3\r\nSTAT prefix:a::hits 2\r\nSTAT prefix:a::sets 1\r\n\
          STAT prefix:a::deletes 0\r\nSTAT prefix:a::refused_rate 0\r\n\
          STAT prefix:a::refused_bytes 0\r\nSTAT prefix:a::evicted 0\r\n\
          STAT prefix:a::max_bytes 1024\r\nSTAT prefix:a::default_ttl 0\r\n\
          STAT prefix:a::max_ttl 60\r\nSTAT prefix:a::max_requests_per_second 0\r\n\
          STAT prefix:*:items 0\r\nSTAT prefix:*:bytes 0\r\nSTAT prefix:*:requests 2\r\n\
          STAT prefix:*:gets 1\r\nSTAT prefix:*:hits 0\r\nSTAT prefix:*:sets 0\r\n\
          STAT prefix:*:deletes 1\r\nSTAT prefix:*:refused_rate 0\r\n\
          STAT prefix:*:refused_bytes 0\r\nSTAT prefix:*:evicted 0\r\n\
          STAT prefix:*:max_bytes 0\r\nSTAT prefix:*:default_ttl 0\r\n\
          STAT prefix:*:max_ttl 0\r\nSTAT prefix:*:max_requests_per_second 7\r\nEND\r\n",
    );
    let mut without = super::tests::worker(&[]);
    let mut client = Client::new(&mut without);
    expect(&mut without, &mut client, b"stats prefixes\r\n", b"END\r\n");
}

/// With `begin_turn` at one moment, so that no token is added between two requests.
#[test]
fn users_have_their_own_limits_and_counts() {
    const REACHED: &[u8] = b"SERVER_ERROR max-requests-per-second of the user reached\r\n";
    let (mut users, mut lines) = (NamedTempFile::new().unwrap(), NamedTempFile::new().unwrap());
    users.write_all(b"me:secret\nyou:secret\n").unwrap();
    lines.write_all(b"user me max-requests-per-second=1\nprefix a:\n").unwrap();
    let namespaces = format!("delete_hold_off,namespaces={}", lines.path().display());
    let mut worker = worker(&["-Y", &users.path().display().to_string(), "-o", &namespaces]);
    worker.begin_turn(Instant::now());
    let [mut me, mut you] = ["me secret", "you secret"].map(|token| {
        let mut client = Client::new(&mut worker);
        let login = format!("set auth 0 0 {}\r\n{token}\r\n", token.len());
        expect(&mut worker, &mut client, login.as_bytes(), b"STORED\r\n");
        client
    });
    expect(&mut worker, &mut me, b"get a:1\r\n", b"END\r\n");
    expect(&mut worker, &mut me, b"get a:1\r\nmn\r\n", &[REACHED, b"MN\r\n"].concat());
    expect(&mut worker, &mut me, b"delete a:1\r\n", b"NOT_FOUND\r\n");
    // The delete is executed, so the namespace counts it as well.
    let refused =
        b"SERVER_ERROR deleted, but max-requests-per-second does not allow the hold-off\r\n";
    expect(&mut worker, &mut me, b"md a:1 H60\r\n", refused);
    expect(&mut worker, &mut you, b"get a:1 a:2\r\n", b"END\r\n");
    let stats = String::from_utf8(me.send(&mut worker, b"stats prefixes\r\n")).unwrap();
    let of_me = "STAT user:me:requests 4\r\nSTAT user:me:refused_rate 2\r\n\
                 STAT user:me:max_requests_per_second 1\r\n";
    assert!(stats.starts_with(of_me) && stats.contains("prefix:a::requests 5\r\n"), "{stats}");
}
