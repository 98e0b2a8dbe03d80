//! Clients without a finished handshake or login take no resources from others.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use testkit::process::raise_open_files;
use testkit::wire::End;
use testkit::{Server, Wire};

use crate::Folder;
use crate::certificates::Certificates;
use crate::login::login;
use crate::onward::proxy;
use crate::tls::{Both, connect, read};

/// The start of a TLS client's first message: 69 bytes of a record of 512.
const HALF_HELLO: [u8; 69] = {
    let mut bytes = [0; 69];
    let head = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    let mut at = 0;
    while at < head.len() {
        bytes[at] = head[at];
        at += 1;
    }
    bytes
};

/// Unfinished handshakes hold a bounded amount, and none of the items' memory.
#[test]
fn unfinished_handshakes_evict_nothing() {
    const CLIENTS: usize = 3000;
    assert!(raise_open_files(4000) >= 4000);
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &["-m", "64", "-t", "2", "-c", "5000"]);
    let mut wire = both.server.connect();
    let value = vec![b'v'; 1000];
    // Fill the memory: one more store evicts.
    let mut stored = 0;
    while both.server.stat("evictions") == 0 {
        let mut request = Vec::new();
        for number in stored..stored + 1000 {
            request.extend_from_slice(format!("set key{number} 0 0 1000 noreply\r\n").as_bytes());
            request.extend_from_slice(&value);
            request.extend_from_slice(b"\r\n");
        }
        stored += 1000;
        wire.send(&request);
        wire.expect(b"mn\r\n", b"MN\r\n");
    }
    // The cleaner's reserve is full once this many items have gone.
    let before = both.server.stat("curr_items");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let Ok(mut client) = TcpStream::connect(both.tls) else { continue };
        let _ = client.write_all(&HALF_HELLO);
        clients.push(client);
    }
    assert!(clients.len() > CLIENTS / 2, "only {} came", clients.len());
    wire.expect(b"mn\r\n", b"MN\r\n");
    let lost = before.saturating_sub(both.server.stat("curr_items"));
    // The plain state of the connections themselves may take a page of items.
    assert!(lost < before / 20, "{lost} of {before} items went");
    both.assert_alive(&certificates, "half handshakes");
}

/// A client that attempts one login after another, or sends many attempts at once, has no more time
/// than a silent one, at the server and at the proxy.
#[test]
fn login_attempts_do_not_extend_the_time_for_the_login() {
    const WRONG: &str = "me wrong";
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\n");
    let server = Server::holdall(&["-Y", &users]);
    let proxy = proxy(&server.addr().to_string(), "", &["-Y", &users]);
    let begun = Instant::now();
    let mut at_once = [server.connect(), proxy.connect()];
    let mut repeating = [server.connect(), proxy.connect()];
    for wire in &mut at_once {
        wire.send(&login(WRONG).repeat(300));
    }
    while begun.elapsed() < Duration::from_secs(14) {
        for wire in &mut repeating {
            // It fails once the connection is closed.
            let _ = wire.try_send(&login(WRONG));
        }
        thread::sleep(Duration::from_millis(500));
    }
    for wire in at_once.iter_mut().chain(&mut repeating) {
        let (answers, end) = wire.read_to_end(Duration::from_millis(500));
        assert_ne!(end, End::TimedOut, "it is served without a login");
        let refused = answers.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()).count();
        assert!(refused <= 11, "{refused} attempts were answered");
    }
}

/// Clients that do not log in cannot keep others out, at the server and at the proxy.
#[test]
fn connections_without_a_login_give_way_at_the_limit() {
    const LIMIT: usize = 20;
    let folder = Folder::new();
    let users = folder.write("users", "me:secret\n");
    let backend = Server::holdall(&[]);
    let server = Server::holdall(&["-Y", &users, "-c", "20"]);
    let backend_address = backend.addr().to_string();
    let proxy = proxy(&backend_address, "", &["-Y", &users, "--max-conns", "20"]);
    for address in [server.addr(), proxy.addr()] {
        let mut unknown: Vec<Wire> = (0..LIMIT).map(|_| Wire::connect(address)).collect();
        thread::sleep(Duration::from_millis(1500));
        for wire in &mut unknown {
            let _ = wire.try_send(&login("me wrong"));
        }
        let mut users: Vec<Wire> = Vec::new();
        for _ in 0..LIMIT / 2 {
            let mut wire = Wire::connect(address);
            wire.expect(&login("me secret"), b"STORED\r\n");
            users.push(wire);
        }
        for wire in &mut users {
            wire.expect(b"get absent\r\n", b"END\r\n");
        }
    }
}

/// TLS sessions take at most a quarter of `-m`, and no item's memory. The session idle for longest
/// is closed first, and none in the middle of a request.
#[test]
fn tls_sessions_evict_nothing() {
    const CLIENTS: usize = 700;
    const SESSIONS_MAX: usize = (16 << 20) / 4 / (16 << 10);
    assert!(raise_open_files(2000) >= 2000);
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &["-m", "16", "-t", "1", "-c", "1500"]);
    let mut wire = both.server.connect();
    let value = "v".repeat(1000);
    for number in 0..7000 {
        wire.send(format!("set key{number} 0 0 1000 noreply\r\n{value}\r\n").as_bytes());
    }
    wire.expect(b"mn\r\n", b"MN\r\n");
    assert_eq!(both.server.stat("evictions"), 0);
    let items = both.server.stat("curr_items");

    let config = certificates.client("ca", None);
    let mut idle = connect(both.tls, &config).unwrap();
    let mut amid = connect(both.tls, &config).unwrap();
    amid.write_all(b"set amid 0 0 2\r\na").unwrap();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        // While all other sessions are new, the new one is closed.
        clients.push(loop {
            if let Ok(client) = connect(both.tls, &config) {
                break client;
            }
        });
        if number % 20 == 0 {
            amid.write_all(b"b\r\n").unwrap();
            assert_eq!(read(&mut amid, 8), b"STORED\r\n", "a request under way");
            amid.write_all(b"set amid 0 0 2\r\na").unwrap();
            // The last session is equal to any other: it has been used.
            let last = &mut clients[number];
            last.write_all(b"mn\r\n").unwrap();
            assert_eq!(read(last, 4), b"MN\r\n");
        }
    }
    let mut rest = Vec::new();
    assert_eq!(idle.read_to_end(&mut rest).unwrap(), 0, "idle for longest");
    let kicked = both.server.stat("ssl_sessions_kicked");
    assert!(kicked >= (CLIENTS + 2 - SESSIONS_MAX) as u64, "{kicked}");
    assert_eq!(both.server.stat("evictions"), 0);
    assert_eq!(both.server.stat("curr_items"), items + 1, "and the one amid its request");
    wire.expect(b"set plain 0 0 1\r\nx\r\n", b"STORED\r\n");
    both.assert_alive(&certificates, "many sessions");
}
