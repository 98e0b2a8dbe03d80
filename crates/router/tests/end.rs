//! The graceful end of a proxy: background work for clients is also completed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use std::fs;
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::ask;
use router::options::{Options, Parser};
use spool::{Settings, Spool};
use testkit::Server;

/// The second server accepts connections but is silent. Its delete fails after the client has its
/// reply, and after the proxy was told to end.
#[test]
fn a_delete_pending_after_its_reply_is_kept_at_shutdown() {
    let folder = std::env::temp_dir().join(format!("end-{}", std::process::id()));
    let (server, silent) = (Server::memcached(&[]), TcpListener::bind("127.0.0.1:0").unwrap());
    let config = format!(
        r#"{{"pools": {{"A": {{"servers": ["{}"]}}, "B": {{"servers": ["{}"]}}}},
            "route": {{"type": "AllInitialRoute", "children": ["PoolRoute|A", "PoolRoute|B"]}}}}"#,
        server.addr(),
        silent.local_addr().unwrap()
    );
    fs::create_dir_all(&folder).unwrap();
    let spool = folder.to_str().unwrap();
    let args = ["holdall route", "-p", "0", "-t", "300", "-a", spool, "--config-str", &config];
    let options = Options::try_parse_from(args).unwrap();
    let (tell, hear) = mpsc::channel();
    let proxy = thread::spawn(move || {
        router::run::run(options, |_| (), move |control| tell.send(control.clone()).unwrap())
            .map_err(|failure| failure.message)
    });
    let control = hear.recv_timeout(Duration::from_secs(20)).unwrap();
    let address = control.tcp_addresses().next().unwrap();
    assert_eq!(ask(address, "delete k\r\n"), "NOT_FOUND\r\n");
    control.drain(Duration::from_secs(60));
    assert_eq!(proxy.join().unwrap(), Ok(()));
    let kept = Spool::open(&folder.join("holdall-0"), Settings::default()).unwrap();
    assert_eq!(kept.counts().pending, 1);
    fs::remove_dir_all(folder).unwrap();
}
