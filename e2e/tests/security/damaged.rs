//! Files of users, rights and certificates that were damaged: each reload takes them or says why
//! not, and what was in use goes on.
//!
//! `CASES` is how many.

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

/// Has good files read again: by whoever may, or else by SIGHUP. When this is back they are in use.
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

/// Damages these files in turn, and has them read again by the client in `asks`; `is_as_it_was`
/// checks what is in use afterwards, both while they are refused and after they are good again.
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
        // Who is put out by the new file may not be told.
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
