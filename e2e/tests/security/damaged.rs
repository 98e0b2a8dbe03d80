//! Damaged files of users, rights and certificates: each reload applies them or reports the reason
//! for a refusal, and the old contents stay in use.
//!
//! `CASES` is the number of damaged files.

use std::time::{Duration, Instant};
use std::{env, fs, thread};

use e2e::mutate::mutated;
use rustix::process::Signal;
use testkit::rng::seed_from_env;
use testkit::{Rng, Server, Wire};

use crate::Folder;
use crate::certificates::Certificates;
use crate::login::login;
use crate::tls::{Both, connect};

/// Makes the server reload good files, by an authorized client or else by SIGHUP, and waits for it.
fn restore(server: &Server, asks: impl Fn() -> Option<Wire>) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut is_signalled = false;
    loop {
        if let Some(mut wire) = asks() {
            wire.send(b"refresh_certs\r\n");
            if wire.line() == "OK" {
                return;
            }
        }
        assert!(Instant::now() < deadline, "good files are not taken: {}", server.log());
        if !is_signalled {
            server.signal(Signal::HUP);
            is_signalled = true;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// Damages these files in turn, and the client from `asks` reloads them; `is_as_it_was` then checks
/// the state, after a refusal or after good files are back.
fn damage(
    files: &[String],
    server: &Server,
    asks: impl Fn() -> Option<Wire>,
    is_as_it_was: impl Fn() -> bool,
) {
    let cases: usize = env::var("CASES").map_or(50, |count| count.parse().unwrap());
    let mut rng = Rng::new(seed_from_env());
    let mut taken = 0;
    for path in files.iter().cycle().take(cases) {
        let good = fs::read(path).unwrap();
        let mut wire = asks().unwrap();
        fs::write(path, mutated(good.clone(), &mut rng)).unwrap();
        wire.send(b"refresh_certs\r\n");
        // A client that loses its right by the new file may get no reply.
        let (answer, _) = wire.read_until_or_end(b"\r\n", Duration::from_secs(60));
        fs::write(path, &good).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if let Some(reason) = answer.strip_prefix("ERROR ") {
            assert!(!reason.trim().is_empty(), "{path}: no reason");
        } else {
            assert!(answer.is_empty() || answer == "OK\r\n", "{path}: {answer}");
            taken += 1;
            restore(server, &asks);
        }
        assert!(is_as_it_was(), "{path}: {answer}");
    }
    eprintln!("{cases} damaged: {taken} taken, {} refused", cases - taken);
}

#[test]
fn damaged_users_and_rights() {
    let folder = Folder::new();
    let users = folder.write("users", "admin:1\nother:2\n");
    let rights = folder.write("rights", "* readwrite *\nadmin admin\n");
    let option = format!("rights={rights}");
    let server = Server::holdall(&["-Y", &users, "-o", &option]);
    let logged_in = |token: &str| {
        let mut wire = server.connect();
        wire.send(&login(token));
        (wire.line() == "STORED").then_some(wire)
    };
    let asks = || logged_in("admin 1");
    let answers = |token: &str, request: &str, reply: &str| {
        let Some(mut wire) = logged_in(token) else { return false };
        wire.send(request.as_bytes());
        wire.line() == reply
    };
    let is_as_it_was =
        || answers("other 2", "get k\r\n", "END") && answers("admin 1", "refresh_certs\r\n", "OK");
    damage(&[users.clone(), rights.clone()], &server, asks, is_as_it_was);
}

#[test]
fn damaged_certificates() {
    let certificates = Certificates::new();
    let both = Both::start(&certificates, "", "", &[]);
    let trusting = certificates.client("ca", None);
    let files = ["server.crt", "server.key"].map(|name| certificates.path(name));
    let is_as_it_was = || connect(both.tls, &trusting).is_ok();
    damage(&files, &both.server, || Some(both.server.connect()), is_as_it_was);
}
