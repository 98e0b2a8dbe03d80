//! The requests of a closed loop to several servers.
//!
//! Each connection adds as many clients as it may have requests in flight; a client sends its next
//! request after an answer. The key selects the server, and any connection to that server takes the
//! request. If all are busy, the request waits. So a server gets the share of requests that its
//! keys have, as in the open loop, and a hot key belongs to one server.

use std::collections::VecDeque;

use super::conn::Conn;
use super::draw::Draw;
use super::spec::Spec;
use super::wire::Op;

/// The clients of one thread.
#[derive(Debug)]
pub(super) struct Clients {
    /// Clients without a request in flight.
    free: usize,
    /// Requests until the run ends.
    left: u64,
    servers: Vec<Server>,
    /// True for connections in their server's idle list.
    is_idle: Vec<bool>,
}

/// One server's waiting requests, each with its first key, and its connections without a request.
#[derive(Debug, Default)]
struct Server {
    waiting: VecDeque<(Op, u64)>,
    idle: VecDeque<usize>,
}

impl Clients {
    pub(super) fn new(spec: &Spec, conns: &[Conn]) -> Self {
        let mut servers: Vec<Server> = spec.targets.iter().map(|_| Server::default()).collect();
        for (at, conn) in conns.iter().enumerate() {
            servers[conn.target].idle.push_back(at);
        }
        let left = match spec.requests {
            0 => u64::MAX,
            each => each.saturating_mul(conns.len() as u64),
        };
        let free = conns.len() * spec.pipeline;
        Self { free, left, servers, is_idle: vec![true; conns.len()] }
    }

    /// Records that `count` requests were answered or lost on connection `at`.
    pub(super) fn freed(&mut self, at: usize, conn: &Conn, count: usize) {
        self.free += count;
        if conn.waiting.is_empty() && !std::mem::replace(&mut self.is_idle[at], true) {
            self.servers[conn.target].idle.push_back(at);
        }
    }

    /// Makes every client without a request send one.
    pub(super) fn ask(&mut self, draw: &mut Draw) {
        while self.free > 0 && self.left > 0 {
            let op = draw.op();
            let key = draw.key(op);
            self.servers[draw.target(key)].waiting.push_back((op, key));
            self.free -= 1;
            self.left -= 1;
        }
    }

    /// A connection without a request whose server has waiting ones.
    pub(super) fn ready(&mut self) -> Option<usize> {
        let mut able = self.servers.iter_mut().filter(|server| !server.waiting.is_empty());
        let at = able.find_map(|server| server.idle.pop_front())?;
        self.is_idle[at] = false;
        Some(at)
    }

    /// The next request that waits for a server.
    pub(super) fn take(&mut self, server: usize) -> Option<(Op, u64)> {
        self.servers[server].waiting.pop_front()
    }
}
