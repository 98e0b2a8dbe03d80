//! The servers and the proxies that scenarios run against.

use std::net::SocketAddr;

use testkit::process::free_port;
use testkit::{Kind, Launch, Router, Server};

/// The targets, which run until this is dropped.
pub(crate) struct Targets {
    addresses: Vec<(&'static str, SocketAddr)>,
    _servers: Vec<Server>,
    _routers: Vec<Router>,
}

impl Targets {
    pub(crate) fn start() -> Self {
        let ours = Launch::new(Kind::Holdall).start();
        let memcached = Launch::new(Kind::Memcached).start();
        let args = ["--num-proxies", "2"];
        let router = Router::over(&[ours.addr()], r#""PoolRoute|all""#, &args);
        let both = [ours.addr(), memcached.addr()];
        let mixed = Router::over(&both, r#""PoolRoute|all""#, &args);
        let addresses = vec![
            ("server", ours.addr()),
            ("router", router.addr()),
            ("memcached", memcached.addr()),
            ("mixed", mixed.addr()),
            ("nobody", SocketAddr::from(([127, 0, 0, 1], free_port()))),
        ];
        Self { addresses, _servers: vec![ours, memcached], _routers: vec![router, mixed] }
    }

    /// Pairs of a target's name and its address.
    pub(crate) fn pairs(&self) -> &[(&'static str, SocketAddr)] {
        &self.addresses
    }

    /// The format that runners of other languages expect.
    pub(crate) fn names(&self) -> String {
        let names = self.addresses.iter().map(|(name, address)| format!("{name}={address}"));
        names.collect::<Vec<_>>().join(" ")
    }
}
