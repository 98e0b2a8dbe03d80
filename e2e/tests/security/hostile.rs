//! Input that broke servers in the past, sent through more than the parsers: TLS, logins, the
//! proxy.

use std::io::{Read, Write};
use std::time::Duration;

use e2e::hostile::{self, Input};
use testkit::process::raise_open_files;
use testkit::wire::{PATIENCE, show};
use testkit::{Kind, Launch, Wire};

use crate::Folder;
use crate::certificates::Certificates;
use crate::login::login;
use crate::onward::proxy;
use crate::tls::{Both, connect};

/// The time in which most replies arrive.
const REPLY: Duration = Duration::from_millis(8);

fn inputs() -> Vec<Input> {
    let groups = [hostile::text::inputs(), hostile::meta::inputs(), hostile::binary::inputs()];
    let mut inputs: Vec<Input> =
        groups.into_iter().flatten().chain(hostile::admin::inputs()).collect();
    inputs.retain(|input| input.bytes.len() < 20_000);
    inputs
}

/// Sends every input on a separate connection, which stays open to the end, and checks after each
/// that other clients are served.
#[track_caller]
fn attack<C>(
    connect: impl Fn() -> C,
    say: impl Fn(&mut C, &[u8]) -> Vec<u8>,
    mut others_are_served: impl FnMut(&str),
) {
    assert!(raise_open_files(4096) >= 4096);
    let (mut held, mut faults) = (Vec::new(), Vec::new());
    for input in inputs() {
        let mut connection = connect();
        let reply = say(&mut connection, &input.bytes);
        faults.extend(input.fault(&reply));
        others_are_served(&input.name);
        held.push(connection);
    }
    eprintln!("{} inputs survived", held.len());
    assert!(faults.is_empty(), "wrong answers:\n{}", faults.join("\n"));
}

fn say(wire: &mut Wire, bytes: &[u8]) -> Vec<u8> {
    wire.send_for(bytes, Duration::from_millis(500));
    wire.read_for(REPLY)
}

/// Checks that `bystander` can store and read its value.
#[track_caller]
fn assert_served(bystander: &mut Wire, after: &str) {
    bystander.send(b"set mine 0 0 2\r\nok\r\nget mine\r\n");
    let (reply, end) = bystander.read_until_or_end(b"END\r\n", PATIENCE);
    let reply = show(&reply);
    assert_eq!(reply, show(b"STORED\r\nVALUE mine 0 2\r\nok\r\nEND\r\n"), "{after}: {end:?}");
}

#[test]
fn hostile_input_through_tls() {
    let certificates = Certificates::new();
    let mut both = Both::start(&certificates, "", "", &["-c", "3000"]);
    both.server.connect().expect(b"set probe 0 0 2\r\nok\r\n", b"STORED\r\n");
    let (config, tls) = (certificates.client("ca", None), both.tls);
    attack(
        || connect(tls, &config).unwrap(),
        |stream, bytes| {
            stream.sock.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
            // The server may close the connection in the middle of the input.
            let _ = stream.write_all(bytes);
            stream.sock.set_read_timeout(Some(REPLY)).unwrap();
            let mut reply = Vec::new();
            let _ = stream.read_to_end(&mut reply);
            reply
        },
        |name| both.assert_alive(&certificates, name),
    );
}

#[test]
fn hostile_input_before_and_after_a_login() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    for flags in [&["-Y", users.as_str()][..], &["-S", "-Y", users.as_str()]] {
        let args = [flags, &["-c", "3000"]].concat();
        let mut server = Launch::new(Kind::Holdall).args(&args).start();
        let addr = server.addr();
        let mut bystander = user(addr);
        attack(|| Wire::connect(addr), say, |name| assert_served(&mut bystander, name));
        attack(|| user(addr), say, |name| assert_served(&mut bystander, name));
        assert!(server.is_alive());
    }
}

/// A connection whose client has logged in by text.
fn user(addr: std::net::SocketAddr) -> Wire {
    let mut wire = Wire::connect(addr);
    wire.expect(&login("app secret"), b"STORED\r\n");
    wire
}

#[test]
fn hostile_binary_input_after_a_login() {
    let folder = Folder::new();
    let users = folder.write("users", "app:secret\n");
    let server = Launch::new(Kind::Holdall).args(&["-S", "-c", "3000"]);
    let mut server = server.env("MEMCACHED_SASL_PWDB", &users).start();
    let addr = server.addr();
    let mut bystander = user_in_packets(addr);
    attack(
        || user_in_packets(addr),
        say,
        |_| {
            bystander.send(&packet(0x00, b"absent", b""));
            let reply = bystander.read_exact(24 + b"Not found".len());
            assert_eq!((reply[0], &reply[6..8]), (0x81, &[0, 1][..]), "{reply:?}");
        },
    );
    assert!(server.is_alive());
}

/// A connection whose client has logged in by SASL.
fn user_in_packets(addr: std::net::SocketAddr) -> Wire {
    let mut wire = Wire::connect(addr);
    wire.send(&packet(0x21, b"PLAIN", b"\0app\0secret"));
    let reply = wire.read_exact(24 + b"Authenticated".len());
    assert_eq!((reply[0], &reply[6..8]), (0x81, &[0, 0][..]), "{reply:?}");
    wire
}

fn packet(opcode: u8, key: &[u8], value: &[u8]) -> Vec<u8> {
    let len = |bytes: usize| u8::try_from(bytes).unwrap();
    let head = [0x80, opcode, 0, len(key.len()), 0, 0, 0, 0, 0, 0, 0, len(key.len() + value.len())];
    [&head[..], &[0; 12], key, value].concat()
}

/// Some inputs would crash Debian's memcached, if they reached it.
#[test]
fn hostile_input_through_the_proxy() {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let mut server = Launch::new(kind).start();
        let mut proxy = proxy(&server.addr().to_string(), "", &[]);
        let mut bystander = proxy.connect();
        attack(
            || proxy.connect(),
            say,
            |name| {
                server.assert_alive(name);
                assert_served(&mut bystander, name);
            },
        );
        assert!(proxy.is_running());
    }
}
