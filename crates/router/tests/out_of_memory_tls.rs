//! No failed allocation for a TLS client ends the proxy: those of the handshake, the session, its
//! records and their content.
//!
//! A proxy in this process, whose allocator refuses the k-th allocation of a session, for every k;
//! and every one from the k-th on. After each a whole session is served.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use reserve::{Allocator, Failing};
use router::options::{Options, Parser};
use testkit::Server;
use testkit::process::free_port;
use testkit::refused_allocations::{Session, certify};

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// A proxy that runs until the process ends; returns its TLS address.
fn start(server: SocketAddr, folder: &Path) -> SocketAddr {
    let config =
        format!(r#"{{"pools": {{"A": {{"servers": ["{server}"]}}}}, "route": "PoolRoute|A"}}"#);
    let port = free_port();
    let port_flag = port.to_string();
    let (cert, key) = (folder.join("cert"), folder.join("key"));
    let mut words = vec!["holdall route", "--config-str", &config, "-p", "0", "-t", "60000"];
    words.extend(["--asynclog-disable", "--ssl-port", &port_flag]);
    words.extend(["--pem-cert-path", cert.to_str().unwrap()]);
    words.extend(["--pem-key-path", key.to_str().unwrap()]);
    let options = Options::try_parse_from(words).unwrap();
    let (tell, hear) = mpsc::channel();
    thread::spawn(move || {
        let started = move |_: &net::Control| tell.send(()).unwrap();
        router::run::run(options, |_| {}, started).unwrap();
    });
    hear.recv_timeout(Duration::from_secs(60)).unwrap();
    ([127, 0, 0, 1], port).into()
}

#[test]
fn no_failed_allocation_of_a_tls_session_ends_the_proxy() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let server = Server::memcached(&[]);
    let address = start(server.addr(), folder.path());
    Session::new(address, folder.path(), 100, true).refuse_each_allocation();
}
