//! Troubles: the actions, the processes that they keep from serving, and their seeded order.

mod clients;
mod stall;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use processes::Quota;
use rustix::process::Signal;
use testkit::{Rng, Wire};

use super::record::{Part, Record};
use super::tier::{LIMIT_MB, MEMORY_FILE, Tier, config};

/// A kind of trouble.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Clock,
    Crowd,
    FlushPrefix,
    FullMemory,
    FullSpool,
    HalfHandshakes,
    Hostile,
    KillDatabase,
    KillInvalidator,
    KillProxy,
    KillServer,
    MemoryLimit,
    PageMoves,
    Quota,
    Reload,
    SlowReaders,
    StallThread,
    StopInvalidator,
    StopProxy,
    StopServer,
}

/// An error explains why the trouble is impossible on this machine.
type Outcome = Result<(), String>;

impl Kind {
    const ALL: [Self; 20] = [
        Self::Clock,
        Self::Crowd,
        Self::FlushPrefix,
        Self::FullMemory,
        Self::FullSpool,
        Self::HalfHandshakes,
        Self::Hostile,
        Self::KillDatabase,
        Self::KillInvalidator,
        Self::KillProxy,
        Self::KillServer,
        Self::MemoryLimit,
        Self::PageMoves,
        Self::Quota,
        Self::Reload,
        Self::SlowReaders,
        Self::StallThread,
        Self::StopInvalidator,
        Self::StopProxy,
        Self::StopServer,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Clock => "clock jumps",
            Self::Crowd => "1,000 connections, half of them amid a request",
            Self::FlushPrefix => "flush_prefix storm",
            Self::FullMemory => "disk of the memory file full",
            Self::FullSpool => "disk of kept deletes full, and a server killed",
            Self::HalfHandshakes => "half TLS handshakes to ports without TLS",
            Self::Hostile => "hostile and mutated streams",
            Self::KillDatabase => "kill -9 of the database",
            Self::KillInvalidator => "kill -9 of the invalidator",
            Self::KillProxy => "kill -9 of the proxy",
            Self::KillServer => "kill -9 of a server",
            Self::MemoryLimit => "cache_memlimit down and up",
            Self::PageMoves => "page moves",
            Self::Quota => "a server with a tenth of a processor",
            Self::Reload => "reloads of the configuration, some broken",
            Self::SlowReaders => "slow readers",
            Self::StallThread => "one thread of a server stalled",
            Self::StopInvalidator => "the invalidator stopped",
            Self::StopProxy => "the proxy stopped",
            Self::StopServer => "a server stopped",
        }
    }

    /// The parts that it keeps from serving; `server` is the drawn one. It must not affect others.
    fn parts(self, server: usize) -> Vec<Part> {
        match self {
            Self::FullSpool
            | Self::KillServer
            | Self::Quota
            | Self::StallThread
            | Self::StopServer => {
                vec![Part::Server(server)]
            }
            // A nearly empty server, as after a kill, has no items to evict.
            Self::FullMemory => vec![Part::Server(MEMORY_FILE)],
            Self::KillProxy | Self::StopProxy => vec![Part::Proxy],
            _ => Vec::new(),
        }
    }
}

/// The kinds in a seeded order, all equally often.
#[derive(Debug)]
pub(super) struct Deck(Mutex<(Rng, Vec<Kind>)>);

impl Deck {
    pub(super) fn new(seed: u64) -> Self {
        Self(Mutex::new((Rng::new(seed), Vec::new())))
    }

    fn draw(&self) -> Kind {
        let mut deck = self.0.lock().unwrap();
        let (rng, left) = &mut *deck;
        if left.is_empty() {
            left.extend(Kind::ALL);
        }
        let at = rng.below(left.len());
        left.swap_remove(at)
    }
}

/// Runs one trouble after the other, until `end`.
pub(super) fn lane(deck: &Deck, tier: &Tier, record: &Record, seed: u64, end: Instant) {
    let mut rng = Rng::new(seed);
    while Instant::now() < end && !record.is_over() {
        let kind = deck.draw();
        let server = rng.below(2);
        let parts = kind.parts(server);
        let number = record.began(kind.name(), &parts);
        let outcome = Trouble { tier, record, rng: &mut rng, server }.make(kind);
        tier.until_whole(&parts, record);
        record.ended(number, outcome);
        record.sleep(Duration::from_millis(100 + rng.next_u64() % 900));
    }
}

struct Trouble<'a> {
    tier: &'a Tier,
    record: &'a Record,
    rng: &'a mut Rng,
    server: usize,
}

impl Trouble<'_> {
    fn make(&mut self, kind: Kind) -> Outcome {
        match kind {
            Kind::Clock => return self.clock(),
            Kind::Crowd => clients::crowd(self.any_addr(), self.pause()),
            Kind::FlushPrefix => self.flush_prefix(),
            Kind::FullMemory => return self.full_memory(),
            Kind::FullSpool => return self.full_spool(),
            Kind::HalfHandshakes => clients::half_handshakes(self.any_addr(), self.rng),
            Kind::Hostile => {
                clients::hostile(self.any_addr(), self.rng);
                clients::quieten(&self.tier.addrs());
            }
            Kind::KillDatabase => return self.kill_database(),
            Kind::KillInvalidator => return self.kill_invalidator(),
            Kind::KillProxy => self.kill_proxy(),
            Kind::KillServer => {
                let pause = self.pause() / 2;
                self.tier.kill_server(self.server, || thread::sleep(pause));
            }
            Kind::MemoryLimit => self.memory_limit(),
            Kind::PageMoves => self.page_moves(),
            Kind::Quota => return self.quota(),
            Kind::Reload => self.reload(),
            Kind::SlowReaders => clients::slow_readers(self.any_addr(), self.pause()),
            Kind::StallThread => return self.stall_thread(),
            Kind::StopInvalidator => return self.stop_invalidator(),
            Kind::StopProxy => {
                let proxy = self.tier.proxy();
                self.stop(|signal| proxy.signal(signal));
            }
            Kind::StopServer => {
                let server = self.tier.server(self.server);
                self.stop(|signal| server.signal(signal));
            }
        }
        Ok(())
    }

    /// From 0.1 to 5 seconds, mostly short.
    fn pause(&mut self) -> Duration {
        let most = [500, 1500, 5000][self.rng.below(3)];
        Duration::from_millis(100 + self.rng.next_u64() % (most - 100))
    }

    fn any_addr(&mut self) -> std::net::SocketAddr {
        *self.rng.pick(&self.tier.addrs())
    }

    fn stop(&mut self, signal: impl Fn(Signal)) {
        signal(Signal::STOP);
        thread::sleep(self.pause());
        signal(Signal::CONT);
    }

    /// A connection to the drawn server; none while it is held. Another trouble may kill it.
    fn wire(&self) -> Option<Wire> {
        Wire::try_connect(self.tier.addrs()[self.server]).ok()
    }

    /// Sends lines until the time is over or the server is down.
    fn send_for(&mut self, time: Duration, mut line: impl FnMut(&mut Rng) -> String) {
        let Some(mut wire) = self.wire() else { return };
        let end = Instant::now() + time;
        while Instant::now() < end && !self.record.is_over() {
            let line = line(self.rng);
            if wire.try_send(line.as_bytes()).is_err() {
                return;
            }
            let (reply, _) = wire.read_until_or_end(b"\r\n", Duration::from_secs(20));
            if reply.is_empty() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn clock(&mut self) -> Outcome {
        const DAY: i64 = 86_400;
        let clock = self.tier.clock.as_ref().ok_or("faketime is not installed")?;
        for offset in [1, -1, DAY, -DAY, -3600, 400 * DAY, -400 * DAY, 0] {
            clock.set(offset);
            thread::sleep(Duration::from_millis(100 + self.rng.next_u64() % 400));
        }
        Ok(())
    }

    /// Invalidates keys of owners, and unused prefixes.
    fn flush_prefix(&mut self) {
        let time = self.pause();
        self.send_for(time, |rng| match rng.below(4) {
            0 => format!("flush_prefix {}{}.\r\n", rng.pick(&["a", "b"]), rng.below(12)),
            _ => format!("flush_prefix storm{}\r\n", rng.below(1000)),
        });
    }

    fn memory_limit(&mut self) {
        let time = self.pause();
        self.send_for(time, |rng| {
            let limit = LIMIT_MB - rng.next_u64() % (LIMIT_MB / 2);
            format!("cache_memlimit {limit}\r\n")
        });
        self.send_for(Duration::from_millis(1), |_| format!("cache_memlimit {LIMIT_MB}\r\n"));
    }

    fn page_moves(&mut self) {
        let time = self.pause();
        self.send_for(time, |rng| {
            format!("slabs reassign {} {}\r\n", 1 + rng.below(60), 1 + rng.below(60))
        });
    }

    fn full_memory(&mut self) -> Outcome {
        let folder = self.tier.memory.as_ref().ok_or("mounting takes root")?;
        // The server keeps running. The lock prevents a kill, because a start needs room for all of
        // its memory.
        let _server = self.tier.server(MEMORY_FILE);
        let filler = folder.fill();
        thread::sleep(self.pause());
        drop(filler);
        Ok(())
    }

    fn full_spool(&mut self) -> Outcome {
        let folder = self.tier.spool.as_ref().ok_or("mounting takes root")?;
        let pause = self.pause();
        let filler = folder.fill();
        self.tier.kill_server(self.server, || thread::sleep(pause));
        drop(filler);
        Ok(())
    }

    fn kill_proxy(&mut self) {
        let mut proxy = self.tier.proxy();
        proxy.kill();
        thread::sleep(self.pause() / 2);
        proxy.restart();
    }

    fn kill_database(&mut self) -> Outcome {
        let rows = self.tier.rows().ok_or("MariaDB is not installed")?;
        let mut database = rows.database.write().unwrap();
        database.kill();
        thread::sleep(self.pause() / 2);
        database.restart();
        Ok(())
    }

    fn kill_invalidator(&mut self) -> Outcome {
        let rows = self.tier.rows().ok_or("MariaDB is not installed")?;
        let mut invalidator = rows.invalidator.lock().unwrap();
        invalidator.kill();
        thread::sleep(self.pause() / 2);
        invalidator.spawn(&[]);
        Ok(())
    }

    fn stop_invalidator(&mut self) -> Outcome {
        let rows = self.tier.rows().ok_or("MariaDB is not installed")?;
        let invalidator = rows.invalidator.lock().unwrap();
        self.stop(|signal| invalidator.signal(signal));
        Ok(())
    }

    fn quota(&mut self) -> Outcome {
        let server = self.tier.server(self.server);
        let quota =
            Quota::new(&format!("soak-{}", self.server), 10).map_err(|error| error.to_string())?;
        quota.enter(server.pid()).map_err(|error| error.to_string())?;
        thread::sleep(self.pause());
        quota.leave(server.pid()).map_err(|error| error.to_string())
    }

    fn stall_thread(&mut self) -> Outcome {
        let server = self.tier.server(self.server);
        let pause = self.pause();
        stall::one_thread(server.pid(), self.rng, pause)
    }

    /// Every third file is cut, as on a full disk; the last one is whole.
    fn reload(&mut self) {
        let addrs = self.tier.addrs();
        let servers = &addrs[..addrs.len() - 1];
        let proxy = self.tier.proxy();
        let first = self.rng.next_u64() % 1_000_000;
        for turn in first..first + 12 {
            let good = config(servers, turn);
            let cut = if turn % 3 == 0 { good.len() * 2 / 3 } else { good.len() };
            proxy.replace_config(&good[..cut]);
            thread::sleep(Duration::from_millis(100));
        }
        proxy.replace_config(&config(servers, first + 12));
    }
}
