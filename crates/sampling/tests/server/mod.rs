//! A server's samples without a server, and an exact cache to compare them with.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::collections::{BTreeMap, HashMap};

use sampling::{Collector, Config, Kind, Log, Snapshot};

pub(crate) fn hash_of(key: u64) -> u64 {
    let mut mixed = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Workers' logs, taken when the test requests it, as by a server.
pub(crate) struct Server {
    pub(crate) logs: Vec<Log>,
    pub(crate) collector: Collector,
    pub(crate) threshold: u64,
    pub(crate) now: Snapshot,
    /// The number of the last flush of the odd keys.
    pub(crate) odd_flush: u32,
    muted: Vec<bool>,
}

impl Server {
    pub(crate) fn new(config: Config, workers: usize, memory_bytes: f64) -> Self {
        let hits_and_misses = (0, 0);
        let now = Snapshot {
            now_ms: 0,
            now_secs: 10,
            reads: 0,
            hits_and_misses,
            memory_bytes,
            weighs_size: false,
            flush: 0,
        };
        Self {
            logs: (0..workers).map(|_| Log::new(config.log)).collect(),
            collector: Collector::new(config, &now),
            threshold: u64::MAX,
            now,
            odd_flush: 0,
            muted: vec![false; workers],
        }
    }

    pub(crate) fn access(&mut self, worker: usize, key: u64, kind: Kind, bytes: u32) {
        self.now.reads += u64::from(matches!(kind, Kind::Hit | Kind::Miss));
        self.now.hits_and_misses.0 += u64::from(kind == Kind::Hit);
        self.now.hits_and_misses.1 += u64::from(kind == Kind::Miss);
        let hash = hash_of(key);
        if hash >= self.threshold || self.muted[worker] {
            return;
        }
        let prefix: &[u8] = if key.is_multiple_of(4) { b"four" } else { b"" };
        let at = (u32::try_from(self.now.now_ms).unwrap(), kind);
        let odd_flush = if key.is_multiple_of(2) { 0 } else { self.odd_flush };
        let flush = odd_flush.max(self.now.flush);
        let full = self.logs[worker].access(hash, at, (bytes, 0), flush, prefix);
        match full {
            Ok(()) => {}
            Err(sampling::Full::Thinned(threshold)) => {
                self.threshold = self.threshold.min(threshold);
            }
            Err(sampling::Full::Repetitions) => self.muted[worker] = true,
        }
    }

    /// As `stats reset` does.
    pub(crate) fn reset(&mut self) {
        self.logs.iter_mut().for_each(Log::clear);
        self.collector.forget(&self.now);
        self.threshold = u64::MAX;
    }

    pub(crate) fn collect(&mut self) {
        for log in &mut self.logs {
            self.collector.take(log);
            log.clear();
        }
        self.threshold = self.collector.finish(&self.now, self.threshold);
        self.muted.fill(false);
    }
}

/// An exact LRU cache.
pub(crate) struct Lru {
    pub(crate) capacity: u64,
    bytes: u64,
    /// Key and bytes by the time of use.
    order: BTreeMap<u64, (u64, u32)>,
    used_at: HashMap<u64, u64>,
    clock: u64,
    pub(crate) hits: u64,
    pub(crate) reads: u64,
}

impl Lru {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            bytes: 0,
            order: BTreeMap::new(),
            used_at: HashMap::new(),
            clock: 0,
            hits: 0,
            reads: 0,
        }
    }

    /// Reads a key and stores it if it was absent; `true` if it was there.
    pub(crate) fn read(&mut self, key: u64, bytes: u32) -> bool {
        self.clock += 1;
        self.reads += 1;
        let is_hit = match self.used_at.insert(key, self.clock) {
            Some(at) => self.order.remove(&at).is_some(),
            None => {
                self.bytes += u64::from(bytes);
                false
            }
        };
        self.hits += u64::from(is_hit);
        self.order.insert(self.clock, (key, bytes));
        while self.bytes > self.capacity {
            let (_, (oldest, bytes)) = self.order.pop_first().unwrap();
            self.used_at.remove(&oldest);
            self.bytes -= u64::from(bytes);
        }
        is_hit
    }

    /// Removes the keys that `is_flushed` names.
    pub(crate) fn flush(&mut self, is_flushed: impl Fn(u64) -> bool) {
        let Self { bytes, order, used_at, .. } = self;
        order.retain(|_, (key, of_key)| {
            let stays = !is_flushed(*key);
            if !stays {
                used_at.remove(key);
                *bytes -= u64::from(*of_key);
            }
            stays
        });
    }

    pub(crate) fn hit_ratio(&self) -> f64 {
        self.hits as f64 / self.reads as f64
    }
}
