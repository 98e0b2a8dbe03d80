//! The library for Python, as its wheel installs it: against our server, Debian's memcached, and through `holdall route`; and Django's own
//! tests of its memcached backends against our backend.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::clients::tool;
use testkit::{Kind, Launch, Router};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests")
}

fn python() -> Command {
    Command::new(tool("python-library/venv/bin/python"))
}

/// Runs to the end; all that was printed, if it succeeded.
#[track_caller]
fn run(mut command: Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{}:\n{text}", output.status);
    text
}

#[track_caller]
fn check(address: SocketAddr, words: &[&str]) {
    let mut command = python();
    command.arg(tests().join("check_client.py")).arg(address.to_string()).args(words);
    let text = run(command);
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}

#[test]
fn every_call_against_our_server() {
    let mut server = Launch::new(Kind::Holdall).start();
    check(server.addr(), &["leases"]);
    server.assert_alive("the client");
}

#[test]
fn every_call_against_memcached() {
    check(Launch::new(Kind::Memcached).start().addr(), &[]);
}

#[test]
fn every_call_through_the_router() {
    let server = Launch::new(Kind::Holdall).start();
    let args = ["--num-proxies", "2", "--enable-flush-cmd"];
    let mut proxy = Router::over(&[server.addr()], r#""PoolRoute|all""#, &args);
    check(proxy.addr(), &["leases"]);
    assert!(proxy.is_running(), "the proxy has ended");
}

#[test]
fn every_call_of_asyncio() {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let server = Launch::new(kind).start();
        let mut command = python();
        command.arg(tests().join("check_aio.py")).arg(server.addr().to_string());
        let text = run(command);
        assert!(text.trim_end().ends_with("checks passed"), "{text}");
    }
}

#[test]
fn django_s_own_tests_of_memcached_backends() {
    let server = Launch::new(Kind::Holdall).start();
    let folders = [tests(), tool("python-library/django-5.2.19/tests")];
    let mut command = python();
    command
        .args(["-m", "django", "test", "--settings=django_settings", "test_django"])
        .env("PYTHONPATH", env::join_paths(folders).unwrap())
        .env("CACHE_ADDRESS", server.addr().to_string());
    let text = run(command);
    assert!(text.contains("Ran 60 tests"), "{text}");
}
