//! The addresses that a server listens on, in a network of the test's own.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use common::{Running, Scratch, holdall, memcached};
use testkit::{Wire, namespace};

/// Addresses of the test's network that are not the loopback's.
const OTHERS: [&str; 2] = ["10.1.2.3", "fd00::3"];
/// The name of both.
const NAME: &str = "cache.test";
const PORT: u16 = 11211;

#[test]
fn a_server_listens_only_on_the_configured_interfaces() {
    let own_name = "a_server_listens_only_on_the_configured_interfaces";
    if !namespace::is_entered(own_name, &["--net", "--mount"]) {
        return;
    }
    let scratch = Scratch::new();
    let addresses = make_network(&scratch);
    let every = [&["127.0.0.1", "::1"], &OTHERS[..]].concat();
    let served = |server: Running, of: &[&str]| {
        for address in &addresses {
            let is_served = answers(*address);
            assert_eq!(is_served, of.contains(&&*address.to_string()), "{address}");
        }
        server.end();
    };
    // The namespace has no other user.
    served(Running::start(memcached(&["-u", "root"])), &every);
    let serve = |words: &[&str]| {
        let all = [&["serve", "-u", "root"], words].concat();
        Running::start(holdall(&all))
    };
    served(serve(&["-l", "0.0.0.0,::"]), &every);
    served(serve(&["-l", NAME]), &OTHERS);
    served(serve(&["-l", "10.1.2.3,127.0.0.1"]), &["10.1.2.3", "127.0.0.1"]);
    served(serve(&[]), &["127.0.0.1"]);
}

/// Addresses on the loopback interface, and a name for some. Returns those that this kernel takes:
/// it may have no IPv6.
fn make_network(scratch: &Scratch) -> Vec<IpAddr> {
    let has_ipv6 = Path::new("/proc/net/if_inet6").exists();
    run("ip link set lo up");
    let mut names = String::from("127.0.0.1 localhost\n");
    for other in OTHERS {
        let family = if other.contains(':') { "-6" } else { "-4" };
        if family == "-4" || has_ipv6 {
            run(&format!("ip {family} addr add {other} dev lo"));
            names += &format!("{other} {NAME}\n");
        }
    }
    fs::write(scratch.path("hosts"), names).unwrap();
    run(&format!("mount --bind {} /etc/hosts", scratch.text("hosts")));
    let all = ["127.0.0.1", "::1"].into_iter().chain(OTHERS);
    all.map(|one| one.parse().unwrap()).filter(|one: &IpAddr| one.is_ipv4() || has_ipv6).collect()
}

/// `true` if a server answers there; `false` if nothing listens.
fn answers(address: IpAddr) -> bool {
    let address = SocketAddr::new(address, PORT);
    if TcpStream::connect(address).is_err() {
        return false;
    }
    let mut wire = Wire::connect(address);
    wire.send(b"version\r\n");
    assert!(wire.read_until(b"\r\n").starts_with(b"VERSION "));
    true
}

/// Runs a program of the system to its end.
#[track_caller]
fn run(line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let status = Command::new(words[0]).args(&words[1..]).status().unwrap();
    assert!(status.success(), "{line}: {status}");
}
