//! Takes the workers' logs and feeds the estimators.

use crate::hot_keys::HotKeys;
use crate::latency::Latencies;
use crate::log::{Access, Kind, Log};
use crate::miss_ratio::MissRatio;
use crate::prefixes::PrefixId;
use crate::working_set::WorkingSet;

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Keys of the working set's sample, for each window, and of the miss-ratio curve's.
    pub keys: usize,
    /// Samples in one worker's log.
    pub log: usize,
}

/// What the estimators must be told of the server.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// Milliseconds since the server's start.
    pub now_ms: u64,
    /// The server's second, in which deadlines are given.
    pub now_secs: u32,
    /// Keys read since the start, sampled or not.
    pub reads: u64,
    /// Bytes of items that fit into the memory.
    pub memory_bytes: f64,
}

/// The estimators, and what is on its way to them.
#[derive(Debug)]
pub struct Collector {
    config: Config,
    /// Sizes of what is in use, by key prefix.
    pub working_set: WorkingSet,
    /// Keys that take a large part of the requests.
    pub hot_keys: HotKeys,
    /// Hit ratios at other sizes of memory.
    pub miss_ratio: MissRatio,
    /// Times of requests.
    pub latencies: Latencies,
    /// Samples for which there was no room.
    pub dropped: u64,
    pending: Vec<(Access, PrefixId)>,
    reads: u64,
    faded_ms: u64,
}

impl Config {
    /// For a server with so much memory: about one part in a hundred of it, and never more than four megabytes and a quarter of
    /// one for each worker.
    #[must_use]
    pub fn for_memory(bytes: u64) -> Self {
        let keys = usize::try_from(bytes / MEMORY_FOR_A_KEY).unwrap_or(usize::MAX);
        let keys = keys.clamp(KEYS_MIN, KEYS_MAX).next_power_of_two();
        Self { keys, log: (keys / 2).min(LOG_MAX) }
    }

    /// Memory of a collector and of the logs of `workers`, in bytes.
    #[must_use]
    pub fn bytes_max(self, workers: usize) -> usize {
        // One log is on its way while another takes its place, and its accesses are pending.
        let logs = (workers + 1) * Log::bytes_max(self.log);
        let pending = workers * self.log * size_of::<(Access, PrefixId)>();
        let collected = WorkingSet::bytes_max(self.keys) + MissRatio::bytes_max(self.keys);
        logs + pending + collected + HotKeys::BYTES + Latencies::BYTES
    }
}

/// Memory of the server for each key of a sample, in bytes.
const MEMORY_FOR_A_KEY: u64 = 16 << 10;

const KEYS_MIN: usize = 256;

const KEYS_MAX: usize = 16 << 10;

const LOG_MAX: usize = 4096;

/// How often what is old fades, in milliseconds.
const FADE_MS: u64 = 10_000;

impl Collector {
    /// An empty one. `now` tells what was before it.
    #[must_use]
    pub fn new(config: Config, now: &Surroundings) -> Self {
        Self {
            config,
            working_set: WorkingSet::new(config.keys),
            hot_keys: HotKeys::default(),
            miss_ratio: MissRatio::new(config.keys),
            latencies: Latencies::default(),
            dropped: 0,
            pending: Vec::new(),
            reads: now.reads,
            faded_ms: now.now_ms,
        }
    }

    /// How much it keeps.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config
    }

    /// Takes one worker's log; [`Self::finish`] follows when all were taken.
    pub fn take(&mut self, log: &Log) {
        for (access, prefix) in log.accesses() {
            self.pending.push((access, self.working_set.prefix(prefix)));
        }
        for (hash, key, weight) in log.requests() {
            self.hot_keys.add(hash, key, f64::from(weight));
        }
        for timing in log.timings() {
            self.latencies.add(timing.command, timing.nanos.into(), f64::from(timing.weight));
        }
        self.dropped += log.dropped();
    }

    /// Puts what was taken in order and feeds it on. `threshold` is that of the workers; the one returned, which is not greater,
    /// is all that the estimators need.
    pub fn finish(&mut self, now: &Surroundings, threshold: u64) -> u64 {
        self.working_set.lower(threshold);
        self.miss_ratio.lower(threshold);
        self.miss_ratio.set_memory(now.memory_bytes);
        self.pending.sort_by_key(|(access, _)| access.tick_ms);
        for (access, prefix) in &self.pending {
            self.miss_ratio.access(access, now.now_secs);
            match access.kind {
                Kind::Hit | Kind::Stored | Kind::Touched if access.bytes > 0 => {
                    self.working_set.used(access.hash, access.bytes, *prefix, now.now_secs);
                }
                _ => self.working_set.used_without_item(access.hash, now.now_secs),
            }
        }
        self.pending.clear();
        #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample is worth")]
        self.miss_ratio.all_reads(now.reads.saturating_sub(self.reads) as f64);
        self.reads = now.reads;
        self.hot_keys.turn(now.now_ms);
        let since_ms = now.now_ms.saturating_sub(self.faded_ms);
        if since_ms >= FADE_MS {
            self.faded_ms = now.now_ms;
            let secs = secs_of(since_ms);
            self.miss_ratio.fade(secs);
            self.latencies.fade(secs);
        }
        threshold.min(self.working_set.threshold().max(self.miss_ratio.threshold()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits of milliseconds are long enough")]
fn secs_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
