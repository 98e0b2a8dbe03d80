//! Bad input gives an error or ends that connection: never a crash, a hang, a spinning thread, or a
//! wrong answer to another client.
//!
//! After each named input the server must serve a new connection and one that existed before.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

use e2e::hostile::{self, Input};
use e2e::mutate;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;
use testkit::process::free_port;
use testkit::process::raise_open_files;
use testkit::{Kind, Launch, Rng, Server, Wire, rng};

/// Published inputs that end Debian's memcached 1.6.18: they cannot be tested there.
const FATAL_TO_OLD: [&str; 3] = ["opaque-too-long", "admin-watch", "shutdown"];

/// Sends every input on a separate connection, which stays open to the end of the group.
fn survive(args: &[&str], inputs: Vec<Input>) {
    assert!(raise_open_files(4096) >= 4096);
    let mut server = Server::under_test(&[&["-c", "3000"], args].concat());
    let mut bystander = server.connect();
    // Items to dump, watch and count.
    for number in 0..2000 {
        let line = format!("set item{number} 0 0 100 noreply\r\n{}\r\n", "i".repeat(100));
        bystander.send(line.as_bytes());
    }
    let (count, mut held, mut faults) = (inputs.len(), Vec::new(), Vec::new());
    for input in inputs {
        if server.kind() == Kind::Memcached
            && FATAL_TO_OLD.iter().any(|name| input.name.contains(name))
        {
            continue;
        }
        let mut wire = server.connect();
        wire.send_for(&input.bytes, Duration::from_millis(500));
        faults.extend(input.fault(&wire.read_for(Duration::from_millis(8))));
        server.assert_alive(&input.name);
        bystander.expect(
            b"set mine 0 0 2\r\nok\r\nget mine\r\n",
            b"STORED\r\nVALUE mine 0 2\r\nok\r\nEND\r\n",
        );
        held.push(wire);
    }
    let start = server.cpu_time();
    thread::sleep(Duration::from_secs(1));
    let busy = server.cpu_time() - start;
    let rss = server.rss_bytes() >> 20;
    eprintln!("{count} inputs survived; {busy:?} used in a second afterwards, {rss} MiB resident");
    drop(held);
    server.assert_alive("all the hostile connections left");
    bystander.assert_quiet(Duration::from_millis(50));
    assert!(busy < Duration::from_millis(200), "something spins: {busy:?} in a second");
    let faults: Vec<_> = faults.into_iter().filter(|_| server.kind() == Kind::Holdall).collect();
    assert!(faults.is_empty(), "wrong answers:\n{}", faults.join("\n"));
    let promised = 64 * 103 / 100 + 16;
    assert!(rss <= promised || server.kind() == Kind::Memcached, "{rss} MiB resident at -m 64");
}

#[test]
fn text_input() {
    survive(&[], hostile::text::inputs());
}

#[test]
fn meta_input() {
    survive(&[], hostile::meta::inputs());
}

#[test]
fn binary_input() {
    survive(&[], hostile::binary::inputs());
}

#[test]
fn admin_input() {
    survive(&[], hostile::admin::inputs());
}

/// CVE-2013-0179 and related bugs: printed data must be handled as carefully as served data.
#[test]
fn a_verbose_server_survives_bad_input() {
    let mut inputs = hostile::text::inputs();
    inputs.extend(hostile::meta::inputs());
    inputs.extend(hostile::binary::inputs());
    inputs.retain(|input| input.bytes.len() < 20_000);
    survive(&["-vv"], inputs);
}

/// Valid streams with bytes flipped, removed, doubled and cut, on many connections in turn.
#[test]
fn mutated_streams() {
    let seed = rng::seed_from_env();
    let mut server = Server::under_test(&[]);
    let mut bystander = server.connect();
    let known = rng::known_seeds(include_str!("../seeds.txt"), "mutated_streams").into_iter();
    for (turn, seed) in known.chain((0..3000).map(|turn| seed.wrapping_add(turn))).enumerate() {
        let mut rng = Rng::new(seed);
        let stream = mutate::stream(&mut rng);
        // 1.6.18 does not survive an opaque of more than 31 bytes.
        if server.kind() == Kind::Memcached && stream.windows(2).any(|two| two == b" O") {
            continue;
        }
        let mut wire = server.connect();
        wire.send_for(&stream, Duration::from_millis(500));
        wire.finish_sending();
        if turn % 10 == 0 {
            wire.read_for(Duration::from_millis(5));
            server.assert_alive(&format!("stream {turn}, seed {seed}"));
            bystander.expect(b"set mine 0 0 2\r\nok\r\n", b"STORED\r\n");
        }
    }
    server.assert_alive(&format!("seed {seed}"));
}

/// CVE-2009-1255: no reply contains an address of the process.
#[test]
fn statistics_contain_no_memory_addresses() {
    let server = Server::under_test(&[]);
    for group in ["maps", "malloc", "", "settings", "conns"] {
        let mut wire = server.connect();
        wire.send(format!("stats {group}\r\n").as_bytes());
        let text = String::from_utf8_lossy(&wire.read_for(Duration::from_millis(200))).into_owned();
        assert!(
            !text.contains("0x") && !text.contains("r-xp") && !text.contains("7f"),
            "stats {group}: {text}"
        );
    }
}

/// 32ea7d8b5: a watcher that does not read, while the whole cache is replaced.
#[test]
fn stalled_watchers_are_dropped_or_skipped() {
    if Kind::under_test() == Kind::Memcached {
        return; // ends 1.6.18, as published
    }
    let mut server = Server::under_test(&[]);
    let mut watchers: Vec<Wire> =
        (0..10).map(|_| Wire::connect_narrow(server.addr(), 4096)).collect();
    watchers
        .iter_mut()
        .for_each(|wire| wire.expect(b"watch fetchers mutations evictions\r\n", b"OK\r\n"));
    let before = server.rss_bytes();
    let mut wire = server.connect();
    let batch: String = (0..200).map(|i| format!("set w{i} 0 0 1\r\nx\r\nget w{i}\r\n")).collect();
    for _ in 0..300 {
        wire.send(batch.as_bytes());
        wire.read_until(b"VALUE w199 0 1\r\nx\r\nEND\r\n");
    }
    let grown = server.rss_bytes().saturating_sub(before) >> 20;
    assert!(grown < 24, "watchers cost {grown} MiB");
    drop(watchers);
    server.assert_alive("watchers");
}

/// Datagrams of garbage, and of large replies (CVE-2022-48571, the amplification of 2018).
#[test]
fn bad_datagrams_are_survived() {
    let port = free_port();
    let mut server = Launch::under_test().args(&["-U", &port.to_string()]).start();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut rng = Rng::new(rng::seed_from_env());
    let frame: &[u8] = &[0, 1, 0, 0, 0, 1, 0, 0];
    let mut rubbish = vec![
        vec![],
        vec![0],
        vec![0, 1, 0, 0, 0, 0, 0, 0, 0],
        vec![0xff; 8],
        frame.to_vec(),
        [frame, b"\r\n"].concat(),
        [frame, b"get"].concat(),
        [frame, &[b'x'; 1300]].concat(),
        [frame, b"set k 0 0 4294967295\r\n"].concat(),
        [&frame[..4], &[0, 9, 0, 0], b"get k\r\n"].concat(),
        [frame, b"watch\r\n"].concat(),
        [frame, b"lru_crawler metadump all\r\n"].concat(),
        [frame, &[0x80; 30]].concat(),
    ];
    rubbish.extend((0..300).map(|_| {
        let len = rng.below(100);
        rng.bytes(len)
    }));
    for bytes in &rubbish {
        socket.send(bytes).unwrap();
    }
    server.assert_alive("datagrams of rubbish");
    let mut wire = server.connect();
    wire.expect(b"set small 0 0 5\r\nhello\r\n", b"STORED\r\n");
    let large = [b"set large 0 0 500000\r\n".as_slice(), &vec![b'l'; 500_000], b"\r\n"].concat();
    wire.expect(&large, b"STORED\r\n");
    while socket.recv(&mut [0; 2000]).is_ok() {}
    socket.send(&[frame, b"get small\r\n"].concat()).unwrap();
    let mut reply = [0; 2000];
    let len = socket.recv(&mut reply).unwrap();
    assert_eq!(&reply[8..len], b"VALUE small 0 5\r\nhello\r\nEND\r\n");
    let request = [frame, b"get large\r\n"].concat();
    socket.send(&request).unwrap();
    let mut answered = 0;
    while let Ok(len) = socket.recv(&mut reply) {
        answered += len;
    }
    let factor = answered / request.len();
    eprintln!("{answered} bytes for {} over UDP, factor {factor}", request.len());
    assert!(factor < 100 || server.kind() == Kind::Memcached, "amplified {factor} times");
}

/// UDP is off by default (CVE-2018-1000115).
#[test]
fn udp_is_off_by_default() {
    let server = Server::under_test(&[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.addr()).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let _ = socket.send(b"\x00\x01\x00\x00\x00\x01\x00\x00version\r\n");
    assert!(socket.recv(&mut [0; 100]).is_err(), "something answered");
}
