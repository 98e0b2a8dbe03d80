//! A failed allocation that a client with TLS causes never ends the server: neither in the
//! handshake, the session, its records nor their content.
//!
//! A server in this process, whose allocator refuses the k-th allocation of a session, for every k,
//! and then every one from the k-th on. After each run a whole session is served.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use options::{Environment, Invocation, Style};
use reserve::{Allocator, Failing};
use testkit::refused_allocations::{Session, certify};

#[global_allocator]
static ALLOCATOR: Allocator<Failing> = Allocator::new(Failing);

/// A server on a free port, which runs until the process ends.
fn start(folder: &Path) -> SocketAddr {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (cert, key) = (folder.join("cert"), folder.join("key"));
    let line = format!(
        "-l 127.0.0.1 -p {port} -U 0 -t 1 -m 64 -u root -Z -o no_sampling -o ssl_chain_cert={},ssl_key={}",
        cert.display(),
        key.display()
    );
    let arguments = line.split(' ').map(OsString::from);
    let environment = Environment { cpus: 1, port_file: None, ..Environment::default() };
    let parsed = options::parse(Style::Holdall, arguments, &environment).unwrap();
    let Invocation::Run { options, .. } = parsed else { panic!("a server was asked for") };
    thread::spawn(move || server::run::run(*options).unwrap());
    let address = ([127, 0, 0, 1], port).into();
    for _ in 0..500 {
        if TcpStream::connect(address).is_ok() {
            return address;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("the server does not listen");
}

#[test]
fn no_failed_allocation_of_a_tls_session_ends_the_server() {
    let folder = tempfile::tempdir().unwrap();
    certify(folder.path());
    let address = start(folder.path());
    Session::new(address, folder.path(), 500, false).refuse_each_allocation();
}
