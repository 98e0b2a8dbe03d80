//! A tier: real servers behind a real proxy.

use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;

use bench::hitrate::replay::replay;
use generator::Progress;
use generator::spec::Protocol;
use testkit::{Router, Server};

use crate::load::Load;

/// Resident memory that a server may have in addition to `-m` (docs/promises.md).
const RESIDENT_FACTOR: f64 = 1.03;
const RESIDENT_EXTRA: f64 = 16.0 * 1024.0 * 1024.0;

/// The order of eviction, unless `SIZING_EVICTION` sets another: the server's default.
const EVICTION: &str = "auto";

/// Servers, and the proxy that distributes the keys among them.
pub(crate) struct Tier {
    servers: Vec<(u64, Server)>,
    proxy: Router,
}

impl Tier {
    /// Starts a server for each `-m`.
    pub(crate) fn start(memory_mib: &[u64]) -> Self {
        let eviction = env::var("SIZING_EVICTION").unwrap_or_else(|_| EVICTION.to_owned());
        let eviction = format!("eviction={eviction}");
        let start = |mib: &u64| {
            (*mib, Server::holdall(&["-t", "1", "-o", &eviction, "-m", &mib.to_string()]))
        };
        let servers: Vec<(u64, Server)> = memory_mib.iter().map(start).collect();
        let addresses: Vec<SocketAddr> = servers.iter().map(|(_, server)| server.addr()).collect();
        let proxy = Router::over(&addresses, "\"PoolRoute|all\"", &[]);
        Self { servers, proxy }
    }

    /// Replays a load, and stores its misses; returns the hit ratio of its second half.
    pub(crate) fn replay(&self, load: &Load) -> f64 {
        let progress = Progress::default();
        let point = replay(self.proxy.addr(), Protocol::Text, 0, &load.workload(), &progress);
        assert_eq!((point.failure, point.counts.refused), (None, 0), "{}", load.name);
        point.counts.hits as f64 / point.counts.gets as f64
    }

    /// A group of statistics of the first server, as sent.
    pub(crate) fn stats(&self, group: &str) -> String {
        let mut text = String::new();
        for (name, value) in self.servers[0].1.stats(group) {
            let _ = writeln!(text, "STAT {name} {value}");
        }
        text
    }

    /// The sum of a number in `stats` over all servers.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.servers.iter().map(|(_, server)| server.stat(name) as f64).sum()
    }

    /// Panics if a server exceeds the promised memory, or evicted nothing and so has room left.
    pub(crate) fn assert_within_promised_memory(&self) {
        for (mib, server) in &self.servers {
            let most = RESIDENT_FACTOR * (mib << 20) as f64 + RESIDENT_EXTRA;
            let peak = server.peak_rss_bytes();
            assert!(peak as f64 <= most, "-m {mib}: {peak} bytes");
            assert!(server.stat("evictions") > 0, "-m {mib} is not full");
        }
    }
}
