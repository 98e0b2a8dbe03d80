//! Bad clients and full servers cost bounded memory and do not delay other clients; also the end of
//! a server.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{env, process, thread};

use common::{Client, Running, eventually, one_worker};
use net::{CloseReason, Config, ConnState, Listen};
use socket2::SockRef;

/// Repeatedly requests far more than a socket holds, and reads nothing.
fn stuck(server: &Running) -> Client {
    let mut client = server.client();
    client.send(&b"big 10000000\n".repeat(2000));
    client
}

fn is_stuck(server: &Running, count: usize) -> bool {
    let infos = server.control.connections();
    infos.iter().filter(|info| info.state == ConnState::Writing).count() == count
}

#[test]
fn stalled_readers_hold_bounded_memory() {
    let server = Running::start(&one_worker());
    let mut clients: Vec<Client> = (0..4).map(|_| stuck(&server)).collect();
    eventually("all stuck", || is_stuck(&server, 4));
    for client in &mut clients {
        // All other bytes stay in the kernel.
        client.0.set_nonblocking(true).unwrap();
        while client.0.write(&b"big 10000000\n".repeat(1000)).is_ok() {}
    }
    let mut other = server.client();
    other.send(b"echo\n");
    other.expect(b"echo\n");
    let buffered = server.control.stats().buffered_bytes;
    let most = (net::INPUT_MAX + net::FLUSH_BYTES + 2000) as u64;
    assert!((1..=4 * most).contains(&buffered), "4 stuck clients hold {buffered} bytes");
    drop((clients, other));
    eventually("closed", || server.control.stats().curr_connections == 0);
    assert_eq!(server.seen.held.load(Ordering::SeqCst), 0);
    assert_eq!(server.control.stats().buffered_bytes, 0);
}

#[test]
fn above_the_buffer_limit_the_longest_stuck_are_closed() {
    // As much as six clients hold at most.
    let limit = 6 * (net::INPUT_MAX + net::FLUSH_BYTES + 2000);
    let server = Running::start(&Config { buffer_bytes_max: limit, ..one_worker() });
    let mut good = server.client();
    let mut clients = Vec::new();
    for _ in 0..30 {
        clients.push(stuck(&server));
        good.send(b"echo\n");
        good.expect(b"echo\n");
    }
    eventually("enough kicked", || {
        let stats = server.control.stats();
        let all_told = stats.curr_connections + stats.slow_kicks == 31;
        stats.slow_kicks > 0 && stats.buffered_bytes <= limit as u64 && all_told
    });
    let stats = server.control.stats();
    // Six stuck clients and the good one fit: one was closed only while there were more.
    assert!(stats.curr_connections >= 7, "only as many as needed: {} left", stats.curr_connections);
    good.send(b"echo\n");
    good.expect(b"echo\n");
}

/// Each socket takes its client's whole replies, so no buffer of the server holds any of them.
#[test]
fn replies_in_kernel_buffers_count_until_read() {
    let limit = 400_000;
    let config = Config { buffer_bytes_max: limit, counts_unread: true, ..one_worker() };
    let server = Running::start(&config);
    let mut reader = server.client();
    let mut clients = Vec::new();
    for _ in 0..30 {
        let mut client = server.client();
        SockRef::from(&client.0).set_recv_buffer_size(4096).unwrap();
        client.send(b"big 100000\n");
        clients.push(client);
        reader.send(b"big 100000\n");
        reader.0.read_exact(&mut [0; 100_000]).expect("who reads is served");
        // Then a client that does not read has done so for some time.
        thread::sleep(Duration::from_millis(3));
    }
    eventually("enough kicked", || {
        reader.send(b"echo\n");
        reader.expect(b"echo\n");
        let stats = server.control.stats();
        stats.slow_kicks >= 10 && stats.buffered_bytes <= limit as u64
    });
    assert!(server.control.stats().curr_connections > 3, "only as many as needed");
    drop(clients);
    eventually("nothing is counted of who has gone", || {
        reader.send(b"echo\n");
        reader.expect(b"echo\n");
        server.control.stats().buffered_bytes == 0
    });
}

/// Otherwise the kernel keeps them for a client that is no longer served.
#[test]
fn replies_to_clients_closed_for_not_reading_are_dropped() {
    let config = Config { stall_timeout: Some(Duration::from_millis(50)), ..one_worker() };
    let server = Running::start(&config);
    let mut client = stuck(&server);
    eventually("closed", || server.control.stats().slow_kicks == 1);
    let rest = client.0.read_to_end(&mut Vec::new());
    assert_eq!(rest.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
}

/// A client that sends `quit` and reads nothing answers the kernel's probes indefinitely.
#[test]
fn unread_replies_after_quit_are_dropped_from_the_kernel() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    SockRef::from(&client.0).set_recv_buffer_size(4096).unwrap();
    client.send(b"big 100000\nquit\n");
    eventually("closed", || server.seen.closed.lock().unwrap().len() == 1);
    let peer = client.0.local_addr().unwrap().port();
    assert!(kept_for(peer) > 50_000, "{} bytes", kept_for(peer));
    let mut reader = server.client();
    reader.send(b"big 100000\nquit\n");
    assert_eq!(reader.rest().len(), 100_004, "who reads receives all of it");
    eventually("dropped", || kept_for(peer) == 0);
}

/// Bytes that the kernel keeps for the client with this port, by `/proc/net/tcp`.
fn kept_for(client_port: u16) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let of_client = sockets.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.get(2)?.ends_with(&format!(":{client_port:04X}")).then(|| words[4].to_owned())
    });
    of_client.map(|queues| usize::from_str_radix(&queues[..8], 16).unwrap()).sum()
}

/// The clients without a login have just moved; the three have not for longest.
#[test]
fn unauthenticated_clients_are_closed_before_those_that_logged_in() {
    let server = Running::start(&Config { buffer_bytes_max: 400_000, ..one_worker() });
    let mut known: Vec<Client> = (0..3).map(|_| server.client()).collect();
    for client in &mut known {
        client.send(b"login\n");
        client.expect(b"login\n");
        client.send(&b"big 10000000\n".repeat(2000));
    }
    eventually("all stuck", || is_stuck(&server, 3));
    let mut others = Vec::new();
    for _ in 0..30 {
        others.push(stuck(&server));
    }
    eventually("enough kicked", || {
        let stats = server.control.stats();
        stats.slow_kicks > 10 && stats.buffered_bytes <= 400_000
    });
    for client in &mut known {
        let mut all = vec![0; 20_000_000];
        client.0.read_exact(&mut all).expect("a client that has logged in was closed");
    }
}

#[test]
fn a_full_server_sends_its_rejection_and_closes() {
    let rejection = Some(&b"full\n"[..]);
    let server = Running::start(&Config { max_connections: 2, rejection, ..one_worker() });
    let (mut first, second) = (server.client(), server.client());
    eventually("two", || server.control.stats().curr_connections == 2);
    assert_eq!(server.client().rest(), b"full\n");
    assert_eq!(server.control.stats().rejected_connections, 1);
    first.send(b"echo\n");
    first.expect(b"echo\n");
    drop(second);
    eventually("one", || server.control.stats().curr_connections == 1);
    let mut third = server.client();
    third.send(b"echo\n");
    third.expect(b"echo\n");
}

/// The places of clients without a login are for others, once they had time to log in. Each of the
/// two workers has two of the places.
#[test]
fn a_full_server_gives_places_without_a_login_to_others() {
    let config = Config {
        workers: 2,
        max_connections: 4,
        login_timeout: Some(Duration::from_secs(60)),
        rejection: Some(b"full\n"),
        ..Config::default()
    };
    let server = Running::start(&config);
    let mut known: Vec<Client> = Vec::new();
    let mut silent: Vec<Client> = (0..4).map(|_| server.client()).collect();
    eventually("four", || server.control.stats().curr_connections == 4);
    thread::sleep(Duration::from_millis(1100));
    for client in &mut silent {
        // Requests without a login do not keep the place.
        client.send(b"echo\n");
        client.expect(b"echo\n");
    }
    for _ in 0..4 {
        let mut client = server.client();
        client.send(b"login\n");
        client.expect(b"login\n");
        known.push(client);
    }
    for client in &mut silent {
        assert_eq!(client.rest(), b"");
    }
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::NoLogin; 4]);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(server.client().rest(), b"full\n", "all have logged in");
    for client in &mut known {
        client.send(b"echo\n");
        client.expect(b"echo\n");
    }
    let stats = server.control.stats();
    assert_eq!((stats.total_connections, stats.rejected_connections), (8, 1));
    assert_eq!(stats.curr_connections, 4);
}

#[test]
fn a_new_connection_without_a_login_keeps_its_place() {
    let login_timeout = Some(Duration::from_secs(60));
    let config =
        Config { max_connections: 1, login_timeout, rejection: Some(b"full\n"), ..one_worker() };
    let server = Running::start(&config);
    let counts = || {
        let stats = server.control.stats();
        (stats.total_connections, stats.rejected_connections)
    };
    for _ in 0..100 {
        let (opened, refused) = counts();
        let begun = Instant::now();
        let first = server.client();
        eventually("the first", || counts() == (opened + 1, refused));
        let second = server.client();
        eventually("the second", || counts().0 + counts().1 == opened + refused + 2);
        // On a busy machine, the first may have had its second before the other came.
        if begun.elapsed() < Duration::from_secs(1) {
            assert_eq!(counts(), (opened + 1, refused + 1), "a new one gave its place away");
            return;
        }
        drop((first, second));
        eventually("none", || server.control.stats().curr_connections == 0);
    }
    panic!("two connections take more than a second");
}

#[test]
fn a_full_server_lets_clients_wait() {
    let config = Config { max_connections: 2, rejection: None, ..one_worker() };
    let server = Running::start(&config);
    for _ in 0..20 {
        let (first, second, mut third) = (server.client(), server.client(), server.client());
        third.send(b"echo\n");
        eventually("full", || {
            let stats = server.control.stats();
            stats.curr_connections == 2 && !stats.accepting_conns
        });
        third.0.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        assert!(third.0.read(&mut [0; 1]).is_err(), "served beyond the limit");
        third.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        drop(first);
        third.expect(b"echo\n");
        drop((second, third));
        eventually("empty", || server.control.stats().curr_connections == 0);
    }
    eventually("accepting", || server.control.stats().accepting_conns);
    let stats = server.control.stats();
    assert_eq!(stats.rejected_connections, 0);
    assert!(stats.listen_disabled_num >= 20 && stats.time_in_listen_disabled_us > 0);
}

#[test]
fn idle_connections_are_closed_and_active_ones_are_not() {
    let idle_timeout = Some(Duration::from_millis(800));
    let server = Running::start(&Config { idle_timeout, ..one_worker() });
    let (mut active, mut idle) = (server.client(), server.client());
    let started = Instant::now();
    let idle = thread::spawn(move || (idle.rest(), started.elapsed()));
    while !idle.is_finished() || started.elapsed() < Duration::from_secs(2) {
        active.send(b"echo\n");
        active.expect(b"echo\n");
        thread::sleep(Duration::from_millis(20));
    }
    let (got, after) = idle.join().unwrap();
    assert_eq!(got, b"");
    assert!(after >= Duration::from_millis(790), "closed after {after:?}");
    assert_eq!(server.control.stats().idle_kicks, 1);
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::Idle]);
}

#[test]
fn listening_clients_are_exempt_from_the_idle_timeout() {
    let idle_timeout = Some(Duration::from_millis(300));
    let server = Running::start(&Config { idle_timeout, ..one_worker() });
    let (mut listening, mut idle) = (server.client(), server.client());
    listening.send(b"listen\n");
    listening.expect(b"listen\n");
    assert_eq!(idle.rest(), b"");
    // The same time again, and the one that listens is still served.
    thread::sleep(Duration::from_millis(600));
    listening.send(b"echo\n");
    listening.expect(b"echo\n");
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::Idle]);
}

#[test]
fn unix_socket_clients_are_exempt_from_the_idle_timeout() {
    let path = env::temp_dir().join(format!("net-limits-{}.sock", process::id()));
    let listen = Listen { unix: Some((path.clone(), 0o700)), backlog: 8, ..Listen::default() };
    let idle_timeout = Some(Duration::from_millis(300));
    let server = Running::listen(&listen, &Config { idle_timeout, ..one_worker() });
    let mut client = UnixStream::connect(&path).unwrap();
    thread::sleep(Duration::from_millis(900));
    client.write_all(b"echo\n").unwrap();
    let mut got = [0; 5];
    client.read_exact(&mut got).unwrap();
    assert_eq!((&got, server.control.stats().idle_kicks), (b"echo\n", 0));
}

/// Silent clients, and active ones that never log in, give their places to others.
#[test]
fn clients_without_a_login_are_closed() {
    let login_timeout = Some(Duration::from_millis(300));
    let server = Running::start(&Config { login_timeout, ..one_worker() });
    let (mut known, mut silent, mut talking) = (server.client(), server.client(), server.client());
    known.send(b"login\n");
    known.expect(b"login\n");
    talking.send(b"echo\n");
    talking.expect(b"echo\n");
    assert_eq!((silent.rest(), talking.rest()), (Vec::new(), Vec::new()));
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::NoLogin; 2]);
    thread::sleep(Duration::from_millis(900));
    known.send(b"echo\n");
    known.expect(b"echo\n");
}

#[test]
fn a_stalled_client_is_closed_and_an_idle_one_is_not() {
    let stall_timeout = Some(Duration::from_millis(200));
    let server = Running::start(&Config { stall_timeout, ..one_worker() });
    let (mut idle, stalled) = (server.client(), stuck(&server));
    eventually("kicked", || server.control.stats().slow_kicks == 1);
    idle.send(b"echo\n");
    idle.expect(b"echo\n");
    drop(stalled);
}

#[test]
fn draining_finishes_read_requests_and_refuses_new_ones() {
    let server = Running::start(&one_worker());
    let address = server.address();
    let (mut idle, mut long, mut busy) = (server.client(), server.client(), server.client());
    idle.send(b"echo\n");
    idle.expect(b"echo\n");
    long.send(b"big 20000000\necho end\n");
    busy.send(&b"slow\n".repeat(100));
    busy.expect(b"slow\n");
    eventually("long reply under way", || is_stuck(&server, 1));
    server.control.drain(Duration::from_secs(20));
    assert_eq!(idle.rest(), b"");
    assert_eq!(busy.rest(), b"slow\n".repeat(99));
    eventually("refused", || TcpStream::connect(address).is_err());
    let got = long.rest();
    assert_eq!(got.len(), 20_000_009);
    assert!(got.ends_with(b"xecho end\n"));
    let seen = server.join();
    assert_eq!(seen.closed.lock().unwrap()[..], [CloseReason::Drain; 3]);
    assert_eq!(seen.held.load(Ordering::SeqCst), 0);
}

/// Closing a socket with unread input resets it, and the replies in the kernel are lost.
#[test]
fn replies_arrive_though_more_requests_came_than_were_read() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"big 20000000\n");
    eventually("stuck", || is_stuck(&server, 1));
    // More than one read takes.
    let line = [&b"echo "[..], &[b'y'; 1018], b"\n"].concat();
    client.send(&line.repeat(100));
    server.control.drain(Duration::from_secs(60));
    let got = client.rest();
    let (big, lines) = got.split_at(20_000_000);
    assert!(big.iter().all(|byte| *byte == b'x'));
    assert_eq!(lines, line.repeat(lines.len() / line.len()));
    drop(client);
    let seen = server.join();
    assert_eq!(seen.closed.lock().unwrap()[..], [CloseReason::Drain]);
    assert_eq!(seen.held.load(Ordering::SeqCst), 0);
}

/// A service that closes a connection leaves the same behind.
#[test]
fn the_last_reply_arrives_though_more_requests_came() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"big 20000000\nquit\n");
    eventually("stuck", || is_stuck(&server, 1));
    client.send(&b"echo\n".repeat(20_000));
    let got = client.rest();
    assert_eq!(got.len(), 20_000_004);
    assert!(got.ends_with(b"xbye\n"));
}

#[test]
fn draining_ends_at_its_deadline() {
    let server = Running::start(&one_worker());
    let mut stuck = stuck(&server);
    eventually("stuck", || is_stuck(&server, 1));
    let started = Instant::now();
    server.control.drain(Duration::from_millis(200));
    let seen = server.join();
    assert!(started.elapsed() >= Duration::from_millis(190), "{:?}", started.elapsed());
    assert_eq!(seen.closed.lock().unwrap()[..], [CloseReason::Drain]);
    // Closed with unread input, so the end is a reset.
    let _ = stuck.0.read_to_end(&mut Vec::new());
}

#[test]
fn stopping_closes_everything_at_once() {
    let server = Running::start(&Config { workers: 2, ..Config::default() });
    let clients: Vec<Client> = (0..10).map(|_| server.client()).collect();
    eventually("ten", || server.control.stats().curr_connections == 10);
    server.control.stop();
    assert_eq!(server.join().closed.lock().unwrap().len(), 10);
    for mut client in clients {
        assert_eq!(client.rest(), b"");
    }
}

#[test]
fn workers_are_pinned_and_a_missing_core_is_an_error() {
    let server = Running::start(&Config { workers: 2, affinity: Some(vec![0]), ..one_worker() });
    let mut found = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let status =
            std::fs::read_to_string(task.unwrap().path().join("status")).unwrap_or_default();
        if status.starts_with("Name:\tworker-") && status.contains("Cpus_allowed_list:\t0\n") {
            found += 1;
        }
    }
    assert!(found >= 2, "{found} workers on core 0");
    drop(server);
    let config = Config { affinity: Some(vec![1000]), ..one_worker() };
    let sockets = Listen::default().bind().unwrap();
    let make = |_, _: &net::Control| -> NoService { NoService };
    let error = net::start(sockets, &config, std::sync::Arc::new(net::Unbudgeted), make);
    assert!(error.unwrap_err().to_string().contains("core 1000"));
}

struct NoService;

impl net::Service for NoService {
    type Session = ();
    fn begin_turn(&mut self, _now: Instant) {}
    fn before_park(&mut self) {}
    fn open(&mut self, _peer: &net::Peer) {}
    fn serve(
        &mut self,
        (): &mut (),
        _input: &mut net::Input<'_>,
        _output: &mut net::Output<'_>,
    ) -> net::Flow {
        net::Flow::CloseNow
    }
    fn datagram(&mut self, _: &net::Peer, _: &[u8], _: &mut Vec<u8>) -> net::DatagramFate {
        net::DatagramFate::Dropped
    }
    fn close(&mut self, (): (), _reason: CloseReason) {}
}
