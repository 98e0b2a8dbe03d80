//! The library for Python, installed from its wheel: against holdall, Debian's memcached, and
//! `holdall route`; and Django's own tests of its memcached backends against holdall's backend.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::env;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::certificates::{Certificates, Folder};
use e2e::clients::tool;
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch, Router};

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests")
}

fn python() -> Command {
    Command::new(tool("python-library/venv/bin/python"))
}

/// Runs the command to completion; returns its output if it succeeded.
#[track_caller]
fn run(command: &mut Command) -> String {
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
    let text = run(&mut command);
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}

#[test]
fn every_call_against_our_server() {
    let mut server = Launch::new(Kind::Holdall).start();
    check(server.addr(), &["leases", "direct"]);
    server.assert_alive("the client");
}

#[test]
fn every_call_against_memcached() {
    check(Launch::new(Kind::Memcached).start().addr(), &["direct"]);
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
        let text = run(&mut command);
        assert!(text.trim_end().ends_with("checks passed"), "{text}");
    }
}

#[test]
fn programs_can_exit_during_calls_and_pending_deletes() {
    let server = Launch::new(Kind::Holdall).start();
    let mut command = python();
    command.arg(tests().join("check_exit.py")).arg(server.addr().to_string());
    let text = run(&mut command);
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}

/// Runs a check of `check_settings.py`.
#[track_caller]
fn settings(words: &[&str]) {
    let mut command = python();
    command.arg(tests().join("check_settings.py")).args(words);
    let text = run(&mut command);
    assert!(text.trim_end().ends_with("checks passed"), "{text}");
}

#[test]
fn servers_requiring_tls_a_certificate_and_a_login() {
    let certificates = Certificates::new();
    let path = |name: &str| certificates.path(name);
    let users = certificates.folder.write("users", "me:secret\n");
    let options =
        certificates.options(&format!("ssl_ca_cert={},ssl_verify_mode=2", path("ca.crt")));
    for kind in [Kind::Holdall, Kind::Memcached] {
        let (port, plain) = (free_port(), free_port());
        let (listen, beside) = (format!("127.0.0.1:{port}"), format!("notls:127.0.0.1:{plain}"));
        let args = ["-Z", "-o", &options, "-l", &listen, "-l", &beside, "-Y", &users];
        let _server = Launch::new(kind).plain_port(plain).args(&args).start();
        let files = ["ca.crt", "client.crt", "client.key", "foreign.crt", "foreign.key"];
        let files = files.map(path);
        let words: Vec<&str> = ["tls_and_logins", &listen]
            .into_iter()
            .chain(files.iter().map(String::as_str))
            .collect();
        settings(&words);
    }
}

#[test]
fn invalid_settings_are_reported_at_once() {
    settings(&["wrong"]);
}

#[test]
fn gets_by_udp() {
    let program = holdall_path().display().to_string();
    for server in [&[&program, "serve", "-o", "udp_amplification=0"][..], &["memcached"]] {
        let port = free_port().to_string();
        let address = format!("127.0.0.1:{port}");
        let sockets = ["-l", "127.0.0.1", "-p", &port, "-U", &port, "-u", "root"];
        settings(&[&["udp", &address], server, &sockets].concat());
    }
}

#[test]
fn failed_deletes_are_kept_and_executed() {
    let folder = Folder::new();
    let (port, spool) = (free_port().to_string(), folder.path("spool"));
    let program = holdall_path().display().to_string();
    let address = format!("127.0.0.1:{port}");
    let server = [&program, "serve", "-l", "127.0.0.1", "-p", &port, "-U", "0", "-u", "root"];
    settings(&[&["deletes", &spool, &address], &server[..]].concat());
}

#[test]
fn servers_from_a_discovery_source() {
    let (one, two) = (Launch::new(Kind::Holdall).start(), Launch::new(Kind::Memcached).start());
    let args = ["--serve-cluster", "all"];
    let proxy = Router::over(&[one.addr(), two.addr()], r#""PoolRoute|all""#, &args);
    let (source, folder) = (format!("elasticache:{}", proxy.addr()), Folder::new());
    let servers = [one.addr().to_string(), two.addr().to_string()];
    settings(&["sources", &source, &folder.path("found"), &servers[0], &servers[1]]);
}

/// The source archive is complete for a build, including crates of the workspace: cargo finds all
/// of them.
#[test]
fn the_source_archive_is_whole() {
    let folder = Folder::new();
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python");
    let mut pack = Command::new(tool("python-library/venv/bin/python"));
    pack.args(["-m", "maturin", "sdist", "-o", &folder.path("")]).arg("-m");
    run(pack.arg(library.join("Cargo.toml")));
    let archive = format!("holdall-{}.tar.gz", env!("CARGO_PKG_VERSION"));
    let mut unpack = Command::new("tar");
    run(unpack.args(["xzf", &folder.path(&archive), "-C", &folder.path("")]));
    let manifest = folder.path(&format!("holdall-{}/python/Cargo.toml", env!("CARGO_PKG_VERSION")));
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--offline", "--locked", "--format-version", "1"]);
    let text = run(metadata.args(["--manifest-path", &manifest]));
    for name in ["client", "spool", "discovery", "routeconf"] {
        assert!(text.contains(&format!("\"name\":\"{name}\"")), "{name} is not there");
    }
}

#[test]
fn the_package_passes_a_type_checker() {
    let mut command = python();
    let cache = Folder::new();
    let program = tests().join("typed.py");
    command.args(["-m", "mypy", "--strict", "--warn-unused-ignores", "--cache-dir"]);
    command.arg(cache.path("mypy")).arg(program);
    let text = run(&mut command);
    assert!(text.contains("no issues found"), "{text}");
}

#[test]
fn djangos_own_tests_of_memcached_backends() {
    let server = Launch::new(Kind::Holdall).start();
    let folders = [tests(), tool("python-library/django-5.2.19/tests")];
    let mut command = python();
    command
        .args(["-m", "django", "test", "--settings=django_settings", "test_django"])
        .env("PYTHONPATH", env::join_paths(folders).unwrap())
        .env("CACHE_ADDRESS", server.addr().to_string());
    let text = run(&mut command);
    assert!(text.contains("Ran 64 tests"), "{text}");
}
