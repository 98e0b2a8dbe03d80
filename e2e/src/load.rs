//! Concurrent clients that record their requests and replies.

use crate::dialect::Request;
use crate::mix::{Mix, Shape};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::history::{self, Event, Mode, Out, Summary};
use testkit::wire::{End, PATIENCE};
use testkit::{Rng, Wire};

/// The work of the clients.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// The number of clients, each with one connection; they use the three protocols in turn.
    pub clients: usize,
    /// The number of shared keys. Every fourth holds numbers.
    pub keys: usize,
    /// The total number of commands.
    pub ops: usize,
    /// The maximum number of commands that a client sends before it reads, each for another key.
    pub pipelined: usize,
    /// A client abandons its connection, unread, once in this many turns; 0 is never.
    pub cut_one_in: usize,
    /// One of this number of cuts is a reset, which may overtake the commands; 0 is none. Through a
    /// proxy, the time of such commands is unknown.
    pub reset_one_in: usize,
    /// Bytes added to every stored text, so that items move between slab classes.
    pub padding: usize,
    /// Clients of text and meta read with leases and fill with their tokens. Needs a server that
    /// gives every miss one.
    pub leases: bool,
    /// Another seed makes a different run of the same kind.
    pub seed: u64,
}

/// The events of each key.
pub type Histories = Vec<Vec<Event>>;

impl Load {
    /// Runs the clients until they end, against the server at `addr`.
    #[must_use]
    pub fn run(&self, addr: SocketAddr) -> Histories {
        let epoch = Instant::now();
        let left = AtomicUsize::new(self.ops);
        let mut histories: Histories = vec![Vec::new(); self.keys];
        let parts: Vec<_> = thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|number| {
                    let left = &left;
                    scope.spawn(move || Client::new(*self, number, addr, epoch).run(left))
                })
                .collect();
            clients.into_iter().map(|client| client.join().expect("a client's thread")).collect()
        });
        for (key, event) in parts.into_iter().flatten() {
            histories[key].push(event);
        }
        histories
    }
}

/// Judges every key. Panics with the first history that no order explains.
pub fn judge(histories: &Histories, mode: Mode) -> Summary {
    let mut total = Summary::default();
    for (key, events) in histories.iter().enumerate() {
        match history::check(events, mode) {
            Ok(summary) => {
                total.ops += summary.ops;
                total.widest = total.widest.max(summary.widest);
            }
            Err(violation) => panic!("key {key}: {violation:?}"),
        }
    }
    total
}

struct Client {
    load: Load,
    addr: SocketAddr,
    epoch: Instant,
    wire: Wire,
    /// The server has replied on this connection.
    is_answered: bool,
    mix: Mix,
}

impl Client {
    fn new(load: Load, number: usize, addr: SocketAddr, epoch: Instant) -> Self {
        let rng = Rng::new(load.seed ^ (u64::try_from(number).unwrap_or(0) << 40));
        let Load { keys, pipelined, padding, leases, .. } = load;
        let mix = Mix::new(number, rng, Shape { keys, pipelined, padding, leases });
        Self { load, addr, epoch, wire: Wire::connect(addr), is_answered: false, mix }
    }

    fn run(mut self, left: &AtomicUsize) -> Vec<(usize, Event)> {
        let mut events = Vec::new();
        let mut bytes = Vec::new();
        loop {
            let batch = self.mix.batch();
            // Relaxed: only the count is shared, and each batch is taken once.
            let taken = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(batch.len()))
            });
            if taken == Ok(0) {
                return events;
            }
            bytes.clear();
            for request in &batch {
                self.mix.dialect.encode(&format!("lin{}", request.key), request, &mut bytes);
            }
            let call = self.now();
            self.wire.send(&bytes);
            if let Some(ret) = self.cut() {
                let unknown =
                    |request: &Request| Event { call, ret, op: request.op, out: Out::Unknown };
                events.extend(batch.iter().map(|request| (request.key, unknown(request))));
                continue;
            }
            for request in &batch {
                let out = self.mix.dialect.read(request.op, &mut self.wire);
                self.mix.saw(request.key, out);
                events.push((request.key, Event { call, ret: self.now(), op: request.op, out }));
            }
            self.is_answered = true;
        }
    }

    /// Sometimes abandons the connection with unread replies. Returns the time after which its
    /// commands have been executed or never will be: when the server has closed the connection.
    fn cut(&mut self) -> Option<u64> {
        let Load { cut_one_in, reset_one_in, .. } = self.load;
        let mut is_one_in = |number| number != 0 && self.mix.rng.one_in(number);
        if !is_one_in(cut_one_in) {
            return None;
        }
        // Without a reply, the server may not have accepted the connection, and then does not list
        // it.
        if is_one_in(reset_one_in) && self.is_answered {
            let reset = self.wire.local_addr();
            self.wire = Wire::connect(self.addr);
            self.wait_until_closed(reset);
        } else {
            self.wire.finish_sending();
            let (_, end) = self.wire.read_to_end(PATIENCE);
            let closed = "the server never closed a connection that was half closed";
            assert_ne!(end, End::TimedOut, "{closed}");
            self.wire = Wire::connect(self.addr);
        }
        self.is_answered = false;
        Some(self.now())
    }

    /// Waits until the server no longer has this client's connection.
    fn wait_until_closed(&self, client: SocketAddr) {
        let line = format!("addr tcp:{client}\r\n");
        let end = Instant::now() + PATIENCE;
        let mut wire = Wire::connect(self.addr);
        loop {
            wire.send(b"stats conns\r\n");
            let conns = wire.read_until(b"END\r\n");
            if testkit::wire::find(&conns, line.as_bytes()).is_none() {
                return;
            }
            assert!(Instant::now() < end, "the server never closed a connection that was reset");
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).expect("a test takes less than 584 years")
    }
}

/// Stores new keys until `stop`, at most `per_second`, without waiting for replies. Returns their
/// number. Grows the index of a large server and evicts from a small one.
pub fn fill(addr: SocketAddr, value_len: usize, per_second: usize, stop: &AtomicBool) -> usize {
    const TURN: Duration = Duration::from_millis(10);
    let mut wire = Wire::connect(addr);
    let value = vec![b'f'; value_len];
    let mut stored = 0;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let mut bytes = Vec::new();
        for _ in 0..(per_second / 100).max(1) {
            bytes.extend_from_slice(
                format!("set fill{stored} 0 0 {value_len} noreply\r\n").as_bytes(),
            );
            bytes.extend_from_slice(&value);
            bytes.extend_from_slice(b"\r\n");
            stored += 1;
        }
        bytes.extend_from_slice(b"mn\r\n");
        wire.send(&bytes);
        // Any line other than the fence's reply is a refused store.
        assert_eq!(wire.line(), "MN", "a store was refused");
        thread::sleep(TURN.saturating_sub(start.elapsed()));
    }
    stored
}
