//! Client libraries that people use, unchanged, through `holdall route` before two servers.
//!
//! What only the binary protocol can do is not here: the proxy's clients speak text and meta.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use e2e::clients::Client;
use testkit::{Kind, Launch, Router, Server};

/// Runs one client before servers of both kinds.
fn check(client: Client) {
    for kind in [Kind::Holdall, Kind::Memcached] {
        let mut servers: Vec<_> = (0..2).map(|_| Launch::new(kind).start()).collect();
        let addrs: Vec<_> = servers.iter().map(Server::addr).collect();
        let args = ["--num-proxies", "2", "--enable-flush-cmd"];
        let mut proxy = Router::over(&addrs, r#""PoolRoute|all""#, &args);
        client.check(proxy.addr(), true);
        servers.iter_mut().for_each(|server| server.assert_alive("the client"));
        assert!(proxy.is_running(), "the proxy has ended");
    }
}

#[test]
fn pymemcache() {
    check(Client::Pymemcache);
}

#[test]
fn pylibmc_and_with_it_libmemcached() {
    check(Client::Pylibmc);
}

#[test]
fn gomemcache() {
    check(Client::Gomemcache);
}

#[test]
fn memcached_for_node() {
    check(Client::NodeMemcached);
}
