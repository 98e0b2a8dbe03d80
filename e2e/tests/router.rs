//! Client libraries that people use, unchanged, through `holdall route` before two servers.
//!
//! What only the binary protocol can do is not here: the proxy's clients speak text and meta.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::env;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use testkit::server::{free_port, holdall_path};
use testkit::{Kind, Launch, Server};

/// A proxy, and the servers behind it.
struct Routed {
    proxy: Child,
    address: SocketAddr,
    config: PathBuf,
    servers: Vec<Server>,
}

impl Routed {
    fn start(kind: Kind) -> Self {
        let servers: Vec<_> = (0..2).map(|_| Launch::new(kind).start()).collect();
        let names = servers.iter().map(|server| format!("\"{}\"", server.addr()));
        let names = names.collect::<Vec<_>>().join(", ");
        let port = free_port();
        let config = env::temp_dir().join(format!("routed-{}-{port}.json", std::process::id()));
        let text =
            format!(r#"{{"pools": {{"A": {{"servers": [{names}]}}}}, "route": "PoolRoute|A"}}"#);
        fs::write(&config, text).unwrap();
        let proxy = Command::new(holdall_path())
            .args(["route", "--num-proxies", "2", "--enable-flush-cmd", "-p", &port.to_string()])
            .arg("-f")
            .arg(&config)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < end, "the proxy does not accept");
            thread::sleep(Duration::from_millis(10));
        }
        Self { proxy, address, config, servers }
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
        let _ = fs::remove_file(&self.config);
    }
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

fn tool(name: &str) -> PathBuf {
    let tools = env::var_os("E2E_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/e2e"), PathBuf::from);
    let path = tools.join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask install`", path.display());
    path
}

/// Runs one client before servers of both kinds; its last line must say how many checks passed.
fn run(program: &Path, script: Option<&str>) {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let mut routed = Routed::start(kind);
        let mut command = Command::new(program);
        command
            .args(script.map(|name| clients().join(name)))
            .arg(routed.address.to_string())
            .env("E2E_ROUTED", "1");
        let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        let passed = output.status.success() && text.trim_end().ends_with("checks passed");
        assert!(passed, "{kind:?}, {}:\n{text}", output.status);
        routed.servers.iter_mut().for_each(|server| server.assert_alive("the client"));
        assert!(routed.proxy.try_wait().unwrap().is_none(), "the proxy has ended");
    }
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
fn gomemcache() {
    run(&tool("go-client"), None);
}

#[test]
fn memcached_for_node() {
    run(Path::new("node"), Some("node/check_memcached.js"));
}
