//! Storms of signals: the files are reloaded at a limited rate, and no request waits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::{Router, Server, Wire};

use crate::Folder;
use crate::login::login;

/// Signals of a storm, sent in groups of fifty.
const SIGNALS: usize = 3000;

/// The users' file is good, broken and long in turn.
#[test]
fn signal_storms_fail_no_request_of_the_server() {
    let folder = Folder::new();
    let many: String = (0..5000).map(|user| format!("user{user}:{user}\n")).collect();
    let files = ["app:1\n".to_owned(), "app:1\nbroken".to_owned(), format!("app:1\n{many}")];
    let users = folder.write("users", &files[0]);
    let mut server = Server::holdall(&["-t", "2", "-Y", &users]);
    let addr = server.addr();
    // Relaxed: it signals the end, and orders nothing.
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        let clients = [(); 2].map(|()| scope.spawn(|| use_until(addr, &is_over)));
        for round in 0..SIGNALS / 50 {
            if round % 5 == 0 {
                folder.write("users", &files[round / 5 % files.len()]);
            }
            (0..50).for_each(|_| server.signal(Signal::HUP));
            thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
        clients.map(|client| client.join().expect("each request is served"))
    });
    assert!(served.iter().all(|count| *count > 100), "{served:?} requests");
    folder.write("users", "app:1\nnew:2\n");
    server.signal(Signal::HUP);
    let end = Instant::now() + Duration::from_secs(60);
    while !logs_in(&server, "new 2") {
        assert!(Instant::now() < end, "the last file is not in use: {}", server.log());
    }
    assert!(server.is_alive());
}

/// A client with a login sends requests until `is_over`.
fn use_until(addr: std::net::SocketAddr, is_over: &AtomicBool) -> usize {
    let mut wire = Wire::connect(addr);
    wire.expect(&login("app 1"), b"STORED\r\n");
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        wire.expect(b"get k\r\n", b"END\r\n");
        count += 1;
    }
    count
}

fn logs_in(server: &Server, token: &str) -> bool {
    let mut wire = server.connect();
    wire.send(&login(token));
    wire.line() == "STORED"
}

#[test]
fn signal_storms_fail_no_request_of_the_proxy() {
    let server = Server::holdall(&[]);
    let mut proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &[]);
    let mut wire = proxy.connect();
    for _ in 0..SIGNALS / 50 {
        (0..50).for_each(|_| proxy.signal(Signal::HUP));
        wire.expect(b"get k\r\n", b"END\r\n");
    }
    assert!(proxy.is_running());
}
