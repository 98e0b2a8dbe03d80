//! Client libraries that people use, unchanged, each doing its whole command set against the
//! server.
//!
//! The scripts are in e2e/clients; `cargo xtask install` puts what they need below `E2E_TOOLS`
//! (`target/e2e`). A library that is missing fails its test.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::Server;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

fn tool(name: &str) -> PathBuf {
    let tools = std::env::var_os("E2E_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e"), PathBuf::from);
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path
}

/// Runs one client against a fresh server; its last line must say how many checks passed.
fn run(program: &Path, script: Option<&str>) {
    let mut server = Server::under_test(&[]);
    let address = server.addr().to_string();
    let mut command = Command::new(program);
    command.args(script.map(|name| clients().join(name))).arg(&address);
    let text = output(&mut command);
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
    server.assert_alive("the client");
}

#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{:?} {}:\n{text}", command.get_program(), output.status);
    text
}

#[test]
fn pymemcache() {
    run(&tool("venv/bin/python"), Some("python/check_pymemcache.py"));
}

#[test]
fn pylibmc_and_with_it_libmemcached() {
    run(&tool("venv/bin/python"), Some("python/check_pylibmc.py"));
}

#[test]
fn python_binary_memcached() {
    run(&tool("venv/bin/python"), Some("python/check_bmemcached.py"));
}

#[test]
fn gomemcache() {
    run(&tool("go-client"), None);
}

#[test]
fn memjs() {
    run(Path::new("node"), Some("node/check_memjs.js"));
}

#[test]
fn memcached_for_node() {
    run(Path::new("node"), Some("node/check_memcached.js"));
}

/// libmemcached's own check of a server (Debian's name for memcapable), text and binary: 54 tests,
/// of which memcached fails one.
#[test]
fn memccapable() {
    let server = Server::under_test(&[]);
    let (host, port) = (server.addr().ip().to_string(), server.addr().port().to_string());
    let words = [
        "-h".as_ref(),
        host.as_ref(),
        "-p".as_ref(),
        port.as_ref(),
        "-t".as_ref(),
        OsStr::new("20"),
    ];
    let output = Command::new("memccapable").args(words).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let passed = text.matches("[pass]").count();
    let expected = if server.kind() == testkit::Kind::Memcached { 53 } else { 54 };
    assert!(passed >= expected, "{passed} of 54 passed:\n{text}");
}
