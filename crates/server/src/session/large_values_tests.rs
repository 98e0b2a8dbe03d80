//! Large values in transfer, and their limits.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

use std::time::{Duration, Instant};

use net::{CloseReason, Flow, Input, Output, Peer, Service, SimulatedSocket};

use super::login_tests::File;
use super::tests::{Client, worker};
use super::{Session, Worker};
use crate::session::large_values::Need;

#[test]
fn large_values_are_received_and_sent_in_pieces() {
    let value: Vec<u8> =
        (0..700_000u32).map(|byte| byte.to_le_bytes()[0] ^ byte.to_le_bytes()[1]).collect();
    let mut worker = worker(&[]);
    for part in [1usize << 20, 65_535, 1000] {
        let mut client = Client::new(&mut worker);
        let mut sent = format!("set k 1 0 {}\r\n", value.len()).into_bytes();
        sent.extend_from_slice(&value);
        sent.extend_from_slice(b"\r\nappend k 0 0 3\r\n123\r\nget k\r\nmg k s v\r\ndelete k\r\n");
        let got: Vec<u8> =
            sent.chunks(part).flat_map(|bytes| client.send(&mut worker, bytes)).collect();
        let mut want =
            format!("STORED\r\nSTORED\r\nVALUE k 1 {}\r\n", value.len() + 3).into_bytes();
        want.extend_from_slice(&value);
        want.extend_from_slice(b"123\r\nEND\r\n");
        want.extend_from_slice(format!("VA {0} s{0}\r\n", value.len() + 3).as_bytes());
        want.extend_from_slice(&value);
        want.extend_from_slice(b"123\r\nDELETED\r\n");
        assert!(got == want, "a value changed on its way, in parts of {part}");
    }
}

/// Values to append are collected outside of the store; together they stay within the limit.
#[test]
fn the_memory_of_large_appends_is_bounded() {
    let mut worker = worker(&["-m", "64", "-t", "8"]);
    let part = vec![b'x'; 60_000];
    let before = worker.context.shared.engine.store().memory().buffers;
    let (mut refused, mut clients) = (0, Vec::new());
    for _ in 0..10 {
        let mut client = Client::new(&mut worker);
        let mut got = client.send(&mut worker, b"append k 0 0 1000000\r\n");
        for _ in 0..16 {
            got.append(&mut client.send(&mut worker, &part));
        }
        assert!(has_room(&worker, 0), "over the limit");
        let charged = worker.context.shared.engine.store().memory().buffers - before;
        assert!(charged >= 960_000, "{charged} bytes are counted in -m");
        if !got.is_empty() {
            assert_eq!(got, b"SERVER_ERROR out of memory storing object\r\n");
            refused += 1;
        }
        clients.push((client, got.is_empty()));
    }
    assert!((1..10).contains(&refused), "{refused} of 10");
    for (client, is_collected) in &mut clients {
        let end = [&part[..40_000], b"\r\nmn\r\n"].concat();
        let want: &[u8] = if *is_collected { b"NOT_STORED\r\nMN\r\n" } else { b"MN\r\n" };
        assert_eq!(client.send(&mut worker, &end), want);
    }
    let all = worker.context.shared.large_values_bytes_max;
    assert!(has_room(&worker, all), "something is still held");
    assert_eq!(worker.context.shared.engine.store().memory().buffers, before);
}

/// A client that announces much and sends little holds only the bytes that it has sent.
#[test]
fn unfinished_uploads_hold_only_the_bytes_sent() {
    let mut worker = worker(&["-m", "64", "-t", "1"]);
    let held = |worker: &Worker| {
        let memory = worker.context.shared.engine.store().memory();
        memory.arena + memory.buffers
    };
    let before = held(&worker);
    let mut clients = Vec::new();
    for len in [900, 16_000, 1_000_000] {
        for number in 0..100 {
            let mut client = Client::new(&mut worker);
            let set = format!("set {len}-{number} 0 0 {len}\r\nabc");
            assert_eq!(client.send(&mut worker, set.as_bytes()), b"");
            clients.push((client, len));
        }
    }
    // The heads of the large ones lie in one page.
    let more = held(&worker) - before;
    assert!(more < 128 << 10, "{more} bytes");
    for (client, len) in &mut clients {
        let rest = [&vec![b'd'; *len - 3][..], b"\r\n"].concat();
        assert_eq!(client.send(&mut worker, &rest), b"STORED\r\n");
    }
    let mut want = format!("VALUE 16000-99 0 16000\r\nabc{}\r\nEND\r\n", "d".repeat(15_997));
    assert_eq!(clients[0].0.send(&mut worker, b"get 16000-99\r\n"), want.as_bytes());
    want = format!("VALUE 1000000-99 0 1000000\r\nabc{}\r\nEND\r\n", "d".repeat(999_997));
    assert_eq!(clients[0].0.send(&mut worker, b"get 1000000-99\r\n"), want.as_bytes());
}

fn has_room(worker: &Worker, bytes: usize) -> bool {
    let (values, now) = (&worker.context.large_values, worker.context.now);
    values.with(|account| account.make_room(Need::Receive(bytes), now))
}

/// A client that stops in the middle of a large value keeps its memory only until others need it.
#[test]
fn a_stalled_sender_makes_room_for_others() {
    let mut worker = worker(&["-m", "64", "-t", "8"]);
    let start = Instant::now();
    let limit = worker.context.shared.large_values_bytes_max;
    let mut stuck: Vec<Client> = Vec::new();
    let part = vec![b'x'; 900_000];
    while stuck.len() * part.len() < limit - 1_000_000 {
        let mut client = Client::new(&mut worker);
        let head = format!("set stuck{} 0 0 1000000\r\n", stuck.len());
        assert_eq!(client.send(&mut worker, head.as_bytes()), b"");
        assert_eq!(client.send(&mut worker, &part), b"");
        stuck.push(client);
    }
    worker.begin_turn(start + Duration::from_secs(100));
    let mut client = Client::new(&mut worker);
    let mut last = Vec::new();
    for try_number in 0..100 {
        let mut sent = b"set good 0 0 1000000\r\n".to_vec();
        sent.extend_from_slice(&part);
        last = client.send(&mut worker, &sent);
        last.append(&mut client.send(&mut worker, &part[..100_000]));
        last.append(&mut client.send(&mut worker, b"\r\n"));
        if last == b"STORED\r\n" {
            break;
        }
        assert!(try_number < 99, "{}", last.escape_ascii());
        // As the loop does when the session's waker was used.
        for client in &mut stuck {
            client.send(&mut worker, b"");
        }
        for client in stuck.extract_if(.., |client| client.is_closed) {
            worker.close(client.session, CloseReason::Service);
        }
    }
    assert_eq!(last, b"STORED\r\n");
}

/// Stores are counted by the class of their memory, and together.
#[test]
fn stores_are_counted_by_class() {
    let mut worker = worker(&[]);
    let mut client = Client::new(&mut worker);
    client
        .send(&mut worker, b"set a 0 0 1\r\nx\r\nappend a 0 0 1\r\ny\r\nappend no 0 0 1\r\ny\r\n");
    client.send(&mut worker, b"add a 0 0 1\r\nx\r\n");
    client.send(&mut worker, &[b"set b 0 0 9000\r\n", &[b'z'; 9000][..], b"\r\n"].concat());
    let count = |text: Vec<u8>, end: &str| {
        let text = String::from_utf8(text).unwrap();
        let values =
            text.lines().filter_map(|line| line.split_once(end)).map(|(_, value)| value.to_owned());
        values.filter(|value| value != "0").collect::<Vec<_>>()
    };
    assert_eq!(count(client.send(&mut worker, b"stats slabs\r\n"), ":cmd_set "), ["3", "1"]);
    assert_eq!(count(client.send(&mut worker, b"stats\r\n"), "STAT cmd_set "), ["5"]);
}

/// A connection with a socket, which takes only the bytes that it has room for.
struct Connection {
    session: Session,
    socket: SimulatedSocket,
    left: Vec<u8>,
}

impl Connection {
    fn new(worker: &mut Worker, number: u32) -> Self {
        let mut socket = SimulatedSocket::new(number);
        socket.room = ROOM;
        Self { session: worker.open(&Peer::local()), socket, left: Vec::new() }
    }

    /// Sends bytes, and returns the reason for which the server stops.
    fn send(&mut self, worker: &mut Worker, bytes: &[u8]) -> Flow {
        self.left.extend_from_slice(bytes);
        let left = std::mem::take(&mut self.left);
        let (mut input, mut scratch) = (Input::new(&left), Vec::new());
        let mut output = Output::to_simulated(&mut scratch, &mut self.socket);
        let flow = worker.serve(&mut self.session, &mut input, &mut output);
        output.flush();
        self.left = input.bytes().to_vec();
        flow
    }

    /// Takes all, is served as the loop would, and returns the beginning of its replies.
    fn finish(&mut self, worker: &mut Worker) -> String {
        self.socket.room = usize::MAX;
        while self.send(worker, b"") == Flow::Yield {}
        let bytes = std::mem::take(&mut self.socket.taken);
        self.socket.room = ROOM;
        bytes[..bytes.len().min(20)].escape_ascii().to_string()
    }
}

/// Bytes that a connection's socket has room for.
const ROOM: usize = 1 << 10;

/// A worker whose share of large values in transfer is enough for one value of [`store_large`].
fn worker_for_one(flags: &[&str]) -> Worker {
    worker(&[&["-m", "64", "-t", "1", "-I", "8m"], flags].concat())
}

fn store_large(worker: &mut Worker, client: &mut Client, key: &str) {
    let head = format!("set {key} 0 0 7000000\r\n").into_bytes();
    let set = [&head[..], &vec![b'v'; 7_000_000], b"\r\n"].concat();
    assert_eq!(client.send(worker, &set), b"STORED\r\n");
}

/// The number of connections that the loop would resume now.
fn count_resumed(worker: &mut Worker) -> usize {
    let mut resumed = Vec::new();
    worker.after_turn(&mut resumed);
    resumed.len()
}

/// However a wait ends, the next one has all its patience.
#[test]
fn each_wait_of_a_connection_has_all_its_patience() {
    let mut worker = worker_for_one(&[]);
    let mut now = Instant::now();
    let mut client = Client::new(&mut worker);
    store_large(&mut worker, &mut client, "a");
    let mut waiting = Connection::new(&mut worker, 1);
    let ends: [(&[u8], &[u8], &str); 6] = [
        (b"get b\r\n", b"", "VALUE b 0 7000000\\r\\n"),
        (b"get b\r\n", b"delete b\r\n", "END\\r\\n"),
        (b"get b\r\n", b"set b 0 0 1\r\nx\r\n", "VALUE b 0 1\\r\\nx\\r\\nEN"),
        (b"mg b v\r\n", b"", "VA 7000000\\r\\nvvvvvvvv"),
        (b"mg b v\r\n", b"delete b\r\n", "EN\\r\\n"),
        (b"mg b v\r\n", b"set b 0 0 1\r\nx\r\n", "VA 1\\r\\nx\\r\\n"),
    ];
    for (get, meanwhile, want) in ends {
        store_large(&mut worker, &mut client, "b");
        let mut holder = Connection::new(&mut worker, 2);
        assert_eq!(holder.send(&mut worker, b"get a\r\n"), Flow::Blocked);
        assert_eq!(waiting.send(&mut worker, get), Flow::Wait, "{}", get.escape_ascii());
        client.send(&mut worker, meanwhile);
        worker.close(holder.session, CloseReason::Eof);
        assert_eq!(count_resumed(&mut worker), 1);
        let got = waiting.finish(&mut worker);
        assert!(got.starts_with(want), "{got}");
        assert_eq!(waiting.session.waits_until, None);
        // Longer than a wait.
        now += Duration::from_secs(60);
        worker.begin_turn(now);
    }
}

/// Otherwise it would learn that there is a large value, and others would make room for it.
#[test]
fn a_client_waits_only_for_values_that_it_may_read() {
    let users = File::new("all:1\nlim:2\n");
    let rights = File::new("all readwrite *\nlim read own\n");
    let flags = format!("rights={}", rights.text());
    let mut worker = worker_for_one(&["-Y", users.text(), "-o", &flags]);
    let mut client = Client::new(&mut worker);
    assert_eq!(client.send(&mut worker, b"set x 0 0 5\r\nall 1\r\n"), b"STORED\r\n");
    for key in ["a", "other", "own"] {
        store_large(&mut worker, &mut client, key);
    }
    let mut holder = Connection::new(&mut worker, 1);
    assert_eq!(holder.send(&mut worker, b"set x 0 0 5\r\nall 1\r\nget a\r\n"), Flow::Blocked);
    let gets: [&[u8]; 7] = [
        b"get other\r\n",
        b"gets other\r\n",
        b"gat 9 own\r\n",
        b"lease-get own\r\n",
        b"mg other v\r\n",
        b"get own\r\n",
        b"mg own v\r\n",
    ];
    let waits = gets.map(|get| {
        let mut limited = Connection::new(&mut worker, 2);
        limited.send(&mut worker, b"set x 0 0 5\r\nlim 2\r\n");
        let waits = limited.send(&mut worker, get) == Flow::Wait;
        worker.close(limited.session, CloseReason::Eof);
        waits
    });
    assert_eq!(waits, [false, false, false, false, false, true, true]);
}
