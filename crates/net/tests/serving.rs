//! The loop over real sockets: batches, splits, fairness, long replies, transports.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, fs, process, thread};

use common::{Client, FAIR_LINES, Running, eventually, one_worker};
use net::{CloseReason, Config, ConnState, Listen, ListenAddress};
use rustix::net::sockopt;
use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};

#[test]
fn the_replies_of_one_read_leave_in_one_write() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"echo 1\necho 2\necho 3\n");
    client.expect(b"echo 1\necho 2\necho 3\n");
    eventually("counted", || server.control.stats().bytes_written == 21);
    let stats = server.control.stats();
    assert_eq!((stats.reads, stats.writes), (1, 1));
    assert_eq!((stats.bytes_read, stats.bytes_written), (21, 21));
}

#[test]
fn bytes_cut_anywhere_give_the_same_replies() {
    let server = Running::start(&one_worker());
    let sent = b"echo one\necho\necho three\n";
    for cut in 0..=sent.len() {
        let mut client = server.client();
        client.send(&sent[..cut]);
        let read = (cut * sent.len() + cut) as u64;
        eventually("first part read", || server.control.stats().bytes_read == read);
        client.send(&sent[cut..]);
        client.expect(sent);
    }
    // Unconsumed rests are freed as soon as they are used up.
    eventually("no leftovers", || server.control.stats().buffered_bytes == 0);
}

#[test]
fn a_long_reply_arrives_whole_buffered_or_written_through() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"echo a\nbig 30000000\necho b\nthrough 30000000\necho c\n");
    // Unread for a while, so that the socket fills and the loop has to return many times.
    thread::sleep(Duration::from_millis(50));
    client.expect(b"echo a\n");
    let mut got = vec![0; 30_000_000];
    client.0.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == b'x'));
    client.expect(b"echo b\n");
    client.0.read_exact(&mut got).unwrap();
    assert!(got.iter().all(|&byte| byte == b'x'));
    client.expect(b"echo c\n");
    eventually("all given back", || server.control.stats().buffered_bytes == 0);
    // And the poller is armed for input again, not for room to write, which there always is.
    thread::sleep(Duration::from_millis(50));
    let before = server.control.stats().turns;
    thread::sleep(Duration::from_millis(100));
    assert_eq!(server.control.stats().turns, before);
}

#[test]
fn a_busy_connection_yields_to_the_others() {
    let server = Running::start(&one_worker());
    let (mut busy, mut other) = (server.client(), server.client());
    other.send(b"echo here\n");
    other.expect(b"echo here\n");
    busy.send(&b"slow\n".repeat(500));
    busy.expect(b"slow\n");
    other.send(b"echo between\n");
    other.expect(b"echo between\n");
    busy.expect(&b"slow\n".repeat(499));
    let lines = server.seen.lines.lock().unwrap();
    let place = lines.iter().position(|line| line == "echo between").unwrap();
    // It was sent when some turns of the busy one had passed, and is served one turn later.
    assert!(place < 20 * FAIR_LINES, "served after {place} lines");
    assert_eq!(server.control.stats().conn_yields, 49);
}

/// More than the read buffer holds: a yielding connection is read again only after its input.
#[test]
fn a_pipeline_longer_than_the_read_buffer_is_answered_whole() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    let sent: Vec<u8> = (0..50_000).flat_map(|i| format!("echo {i}\n").into_bytes()).collect();
    let (mut writer, bytes) = (client.0.try_clone().unwrap(), sent.clone());
    let writing = thread::spawn(move || writer.write_all(&bytes).unwrap());
    client.expect(&sent);
    writing.join().unwrap();
    assert_eq!(server.seen.most_in_a_turn.load(Ordering::SeqCst), FAIR_LINES);
}

#[test]
fn an_idle_loop_sleeps() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"echo\nech");
    client.expect(b"echo\n");
    let mut stuck = server.client();
    stuck.send(b"big 100000000\n");
    eventually("stuck", || {
        server.control.connections().iter().any(|c| c.state == ConnState::Writing)
    });
    thread::sleep(Duration::from_millis(50));
    let before = server.control.stats().turns;
    thread::sleep(Duration::from_millis(200));
    assert_eq!(server.control.stats().turns, before);
}

#[test]
fn closing_sends_the_last_reply_and_closing_at_once_does_not() {
    let server = Running::start(&one_worker());
    let mut polite = server.client();
    polite.send(b"echo 1\nquit\necho 2\n");
    assert_eq!(polite.rest(), b"echo 1\nbye\n");
    let mut rude = server.client();
    rude.send(b"echo 1\ndie\n");
    // The output of the same turn is still sent: the loop flushes before it checks the answer.
    assert!(rude.0.read_to_end(&mut Vec::new()).is_ok_and(|len| len == 0 || len == 7));
    eventually("both closed", || server.seen.closed.lock().unwrap().len() == 2);
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::Service; 2]);
}

#[test]
fn a_line_that_fills_the_read_buffer_ends_the_connection() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    // The server may close before all of it is written.
    let _ = client.0.write_all(&[b'x'; 70_000]);
    eventually("closed", || !server.seen.closed.lock().unwrap().is_empty());
    assert_eq!(server.seen.closed.lock().unwrap()[..], [CloseReason::InputOverflow]);
    assert_eq!(server.seen.held.load(Ordering::SeqCst), 0);
}

#[test]
fn a_waker_serves_a_silent_connection() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"wait\n");
    eventually("waiting", || !server.seen.wakers.lock().unwrap().is_empty());
    let waker = server.seen.wakers.lock().unwrap().remove(0);
    let seen = waker.clone();
    thread::spawn(move || seen.wake()).join().unwrap();
    client.expect(b"woken\n");
    drop(client);
    eventually("closed", || server.control.stats().curr_connections == 0);
    // Its connection is gone, and its slot belongs to another.
    let mut next = server.client();
    next.send(b"wait\n");
    eventually("waiting", || !server.seen.wakers.lock().unwrap().is_empty());
    waker.wake();
    next.send(b"echo\n");
    next.expect(b"woken\necho\n");
}

#[test]
fn a_thousand_connections_spread_over_the_workers() {
    let server = Running::start(&Config { workers: 2, ..Config::default() });
    let mut clients: Vec<Client> = (0..1000).map(|_| server.client()).collect();
    for round in 0..3 {
        for client in &mut clients {
            client.send(format!("echo {round}\n").as_bytes());
        }
        for client in &mut clients {
            client.expect(format!("echo {round}\n").as_bytes());
        }
    }
    let infos = server.control.connections();
    let on_first = infos.iter().filter(|info| info.worker == 0).count();
    assert_eq!((infos.len(), on_first), (1000, 500));
    let held = server.seen.held.load(Ordering::SeqCst);
    assert!((1..=1_000_000).contains(&held), "idle connections cost {held} bytes");
    assert_eq!(server.control.stats().buffered_bytes, 0);
    drop(clients);
    eventually("all closed", || server.control.stats().curr_connections == 0);
    assert_eq!(server.seen.held.load(Ordering::SeqCst), 0);
}

#[test]
fn a_connection_can_be_inspected() {
    let tcp = vec!["127.0.0.1:0".parse().unwrap(), "[::1]:0".parse().unwrap()];
    let listen = Listen { tcp, backlog: 8, ..Listen::default() };
    let server = Running::listen(&listen, &one_worker());
    let second = server.control.tcp_addresses().nth(1).unwrap();
    let mut client = Client::to(second);
    client.send(b"echo\n");
    client.expect(b"echo\n");
    let info = server.control.connections().remove(0);
    assert_eq!(info.peer.remote, Some(client.0.local_addr().unwrap()));
    assert_eq!(*info.peer.listener, ListenAddress::Tcp(second, 1));
    assert_eq!(info.peer.to_string(), format!("tcp6:{}", client.0.local_addr().unwrap()));
    assert_eq!((info.state, info.state.to_string()), (ConnState::Reading, "conn_read".to_owned()));
    assert!(info.idle < Duration::from_secs(5));
}

#[test]
fn accepted_sockets_do_not_delay_small_replies_and_notice_dead_peers() {
    let server = Running::start(&one_worker());
    let mut client = server.client();
    client.send(b"echo\n");
    client.expect(b"echo\n");
    // The accepted socket itself, by its number in this process.
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let fd = server.control.connections()[0].fd;
    let socket = pidfd_getfd(own, fd, PidfdGetfdFlags::empty()).unwrap();
    assert!(sockopt::tcp_nodelay(&socket).unwrap());
    assert!(sockopt::socket_keepalive(&socket).unwrap());
}

#[test]
fn a_unix_socket_replaces_only_a_stale_socket() {
    let path = env::temp_dir().join(format!("net-test-{}.sock", process::id()));
    let unix = Some((path.clone(), 0o700));
    let listen = Listen { unix, backlog: 8, ..Listen::default() };
    // Dropping a listener leaves its file: stale.
    drop(UnixListener::bind(&path).unwrap());
    let server = Running::listen(&listen, &one_worker());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"echo unix\n").unwrap();
    let mut got = [0; 10];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"echo unix\n");
    let info = server.control.connections().remove(0);
    assert_eq!(info.peer.to_string(), format!("unix:{}", path.display()));

    let error = listen.bind().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    drop(server);
    assert!(!path.exists(), "the file is removed with the server");
    fs::write(&path, "precious").unwrap();
    assert_eq!(listen.bind().unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
}

#[test]
fn a_datagram_is_answered_or_dropped() {
    let udp = vec!["127.0.0.1:0".parse().unwrap()];
    let listen = Listen { udp, udp_sockets: 2, backlog: 8, ..Listen::default() };
    let server = Running::listen(&listen, &Config { workers: 2, ..Config::default() });
    let ListenAddress::Udp(address, 0) = *server.control.listeners()[0] else { panic!("no UDP") };
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.connect(address).unwrap();
    let mut got = [0; 2000];
    client.send(b"echo\n").unwrap();
    let len = client.recv(&mut got).unwrap();
    assert_eq!(&got[..len], b"echo\n");

    // Both without an answer; only the second was a request.
    client.send(b"drop it\n").unwrap();
    client.send(b"mute it\n").unwrap();
    client.send(b"big 1400\n").unwrap();
    assert_eq!(client.recv(&mut got).unwrap(), 1400);
    let count = || server.control.stats();
    eventually("dropped", || count().udp_dropped == 2 && count().udp_requests == 3);

    client.send(b"big 3000\n").unwrap();
    let lens: Vec<usize> = (0..3).map(|_| client.recv(&mut got).unwrap()).collect();
    assert_eq!(lens, [1400, 1400, 200]);
}

/// A sender at a port where servers listen is no client, whatever its address.
#[test]
fn a_datagram_from_a_port_of_a_server_is_dropped() {
    let udp = vec!["127.0.0.1:0".parse().unwrap()];
    let listen = Listen { udp, udp_sockets: 1, backlog: 8, ..Listen::default() };
    let server = Running::listen(&listen, &Config { workers: 1, ..Config::default() });
    let ListenAddress::Udp(address, 0) = *server.control.listeners()[0] else { panic!("no UDP") };
    let other = UdpSocket::bind(("127.0.0.2", address.port())).unwrap();
    other.send_to(b"echo\n", address).unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    client.send_to(b"echo\n", address).unwrap();
    assert_eq!(client.recv(&mut [0; 100]).unwrap(), 5);
    let stats = server.control.stats();
    assert_eq!((stats.udp_requests, stats.udp_dropped), (1, 1));
}

/// More datagrams than one system call takes, from several senders, over IPv4 and IPv6: each gets
/// its own answer.
#[test]
fn a_burst_of_datagrams_is_answered_one_by_one() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let udp = vec![address.parse().unwrap()];
        let listen = Listen { udp, udp_sockets: 1, backlog: 8, ..Listen::default() };
        let server = Running::listen(&listen, &Config { workers: 1, ..Config::default() });
        let ListenAddress::Udp(to, 0) = *server.control.listeners()[0] else { panic!("no UDP") };
        let clients: Vec<UdpSocket> = (0..5).map(|_| UdpSocket::bind(address).unwrap()).collect();
        for id in 0..20u8 {
            for (number, client) in clients.iter().enumerate() {
                client.send_to(format!("echo {id} {number}\n").as_bytes(), to).unwrap();
            }
        }
        for (number, client) in clients.iter().enumerate() {
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            for id in 0..20u8 {
                let mut got = [0; 100];
                let (len, from) = client.recv_from(&mut got).unwrap();
                let want = format!("echo {id} {number}\n");
                assert_eq!((&got[..len], from), (want.as_bytes(), to));
            }
        }
        assert_eq!(server.control.stats().udp_requests, 100);
    }
}

/// A reply longer than the kernel splits from one message arrives whole and in order.
#[test]
fn a_reply_of_many_datagrams_arrives_in_order() {
    let udp = vec!["127.0.0.1:0".parse().unwrap()];
    let listen = Listen { udp, udp_sockets: 1, backlog: 8, ..Listen::default() };
    let server = Running::listen(&listen, &Config { workers: 1, ..Config::default() });
    let ListenAddress::Udp(address, 0) = *server.control.listeners()[0] else { panic!("no UDP") };
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The second one comes when it is known whether the kernel splits.
    for _ in 0..2 {
        client.send_to(b"big 70000\n", address).unwrap();
        let (mut got, mut bytes) = ([0; 2000], 0);
        for sequence in 0..50 {
            let len = client.recv(&mut got).unwrap();
            assert!(got[..len].iter().all(|byte| *byte == sequence), "datagram {sequence}");
            bytes += len;
        }
        assert_eq!(bytes, 70_000);
    }
}

/// The kernel refuses to split if a datagram is longer than the path's MTU. The test has its own
/// network namespace.
#[test]
fn a_reply_is_split_if_the_kernel_cannot() {
    if env::var_os("SHORT_PATH").is_some() {
        let set = Command::new("ip").args("link set lo mtu 1300 up".split(' ')).status().unwrap();
        assert!(set.success());
        return a_reply_of_many_datagrams_arrives_in_order();
    }
    let mut inner = Command::new("unshare");
    inner.args(["--map-root-user", "--net"]).arg(env::current_exe().unwrap());
    inner.args(["--exact", "a_reply_is_split_if_the_kernel_cannot"]).env("SHORT_PATH", "1");
    let output = inner.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("test result: ok. 1 passed"), "{said}");
}
