//! Takes the workers' logs and feeds the estimators.

use crate::hot_keys::HotKeys;
use crate::latency::Latencies;
use crate::log::{Access, Kind, Log};
use crate::miss_ratio::{AllReads, MissRatio};
use crate::prefixes::PrefixId;
use crate::recent::FADE_MS;
use crate::trials::Trials;
use crate::working_set::WorkingSet;
use narrow::to_usize;

/// The amounts to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Keys of the working set's sample, for each window.
    pub keys: usize,
    /// Keys of the miss-ratio curve's sample.
    pub curve: usize,
    /// Samples in one worker's log.
    pub log: usize,
    /// Keys and ghosts of each candidate order of eviction; 0: no trials.
    pub trial: usize,
}

/// The facts about the server that the estimators need.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Milliseconds since the server's start.
    pub now_ms: u64,
    /// The server's second, in which deadlines are given.
    pub now_secs: u32,
    /// Keys read since the start, sampled or not.
    pub reads: u64,
    /// The numbers of these found, and not found; reads of some kinds may be left out.
    pub hits_and_misses: (u64, u64),
    /// Bytes of items that fit into the memory.
    pub memory_bytes: f64,
    /// The order of eviction weighs sizes.
    pub weighs_size: bool,
    /// The number of the last flush of everything; 0 if there was none.
    pub flush: u32,
}

/// The estimators, and the samples on their way to them.
#[derive(Debug)]
pub struct Collector {
    config: Config,
    /// Sizes of used items, by key prefix.
    pub working_set: WorkingSet,
    /// Keys that take a large part of the requests.
    pub hot_keys: HotKeys,
    /// Hit ratios at other sizes of memory.
    pub miss_ratio: MissRatio,
    /// Orders of eviction.
    pub trials: Trials,
    /// Times of requests.
    pub latencies: Latencies,
    /// Samples for which there was no room.
    pub dropped: u64,
    pending: Vec<(Access, PrefixId)>,
    /// Logs taken since the last end, and consecutive ends at which they were crowded.
    logs: usize,
    crowded: u32,
    /// Until then workers may leave out repetitions.
    partial_until_ms: u64,
    is_partial: bool,
    reads: u64,
    hits_and_misses: (u64, u64),
    faded_ms: u64,
    /// The last flush of everything.
    flush: u32,
}

impl Config {
    /// For a server with this memory and number of workers, which may choose its order of eviction.
    /// With four workers it takes eight percent of 2 MB, two of 64 MB, and half of one of a
    /// gigabyte.
    ///
    /// The curve's error falls with the root of its keys, so a small server keeps more of them than
    /// its share, from 4 MB on. Workers share what is sampled by key.
    #[must_use]
    pub fn for_memory(bytes: u64, workers: usize, chooses_eviction: bool) -> Self {
        let keys = (bytes / MEMORY_FOR_A_KEY).min(KEYS_MAX as u64);
        let keys = to_usize(keys).max(KEYS_MIN).next_power_of_two();
        let trial = Self::trial_for_memory(bytes);
        let trial = if chooses_eviction { trial } else { 0 };
        let log = keys.max(LOGS_MIN).div_ceil(workers.max(1)).max(LOG_MIN);
        let curve = Self::curve_for_memory(bytes);
        let keys = keys.min(KEYS_ENOUGH.max(keys / 4));
        Self { keys, curve, log, trial }
    }

    /// Keys and ghosts of each trial. More prove sooner which order is the best.
    fn trial_for_memory(bytes: u64) -> usize {
        let least = (bytes / MEMORY_FOR_A_NODE_AT_LEAST).min(TRIAL_ENOUGH);
        let nodes = (bytes / MEMORY_FOR_A_NODE).clamp(least, TRIAL_MAX);
        to_usize(nodes).next_power_of_two()
    }

    /// Keys of the miss-ratio curve.
    fn curve_for_memory(bytes: u64) -> usize {
        let keys = if bytes < MEMORY_FOR_A_GOOD_CURVE {
            bytes / MEMORY_FOR_A_KEY
        } else {
            (bytes / MEMORY_FOR_A_KEY_OF_THE_CURVE).max(CURVE_ENOUGH.min(bytes / MEMORY_AT_LEAST))
        };
        // Rounded down: samples of more than a tenth of the memory are not kept at all.
        1 << to_usize(keys.min(KEYS_MAX as u64)).max(KEYS_MIN).ilog2()
    }

    /// Memory of a collector and of the logs of `workers`, in bytes, without [`Self::FIXED_BYTES`].
    #[must_use]
    pub fn bytes_max(self, workers: usize) -> usize {
        // One log is on its way while another takes its place, and its accesses are pending.
        let logs = (workers + 1) * Log::bytes_max(self.log);
        let pending = workers * self.log * size_of::<(Access, PrefixId)>();
        let collected = WorkingSet::bytes_max(self.keys)
            + MissRatio::bytes_max(self.curve)
            + Trials::bytes_max(self.trial);
        logs + pending + collected
    }

    /// Memory of a collector of any amounts, in bytes: hot keys and times.
    pub const FIXED_BYTES: usize = HotKeys::BYTES + Latencies::BYTES;
}

/// Memory of the server for each key of a sample, in bytes.
const MEMORY_FOR_A_KEY: u64 = 32 << 10;

/// Memory of a server that can afford a good curve, in bytes.
const MEMORY_FOR_A_GOOD_CURVE: u64 = 4 << 20;

/// Memory of such a server for each key of the curve, in bytes.
const MEMORY_FOR_A_KEY_OF_THE_CURVE: u64 = 16 << 10;

/// Keys of a curve that is within a point, mostly.
const CURVE_ENOUGH: u64 = 4096;

/// Minimum memory for each key up to that number, in bytes.
const MEMORY_AT_LEAST: u64 = 2 << 10;

const KEYS_MIN: usize = 128;

/// Memory of the server for each key or ghost of a trial, in bytes.
const MEMORY_FOR_A_NODE: u64 = 64 << 10;

/// Keys and ghosts with which a trial is significant.
const TRIAL_ENOUGH: u64 = 256;

/// Minimum memory of the server for each of them up to that number, in bytes.
const MEMORY_FOR_A_NODE_AT_LEAST: u64 = 16 << 10;

const TRIAL_MAX: u64 = 4096;

/// Samples in the logs of all workers with which a trial is significant: a full log keeps at least
/// a quarter as many keys.
const LOGS_MIN: usize = 256;

/// Minimum number of samples in one worker's log.
const LOG_MIN: usize = 64;

const KEYS_MAX: usize = 16 << 10;

/// Accesses in a worker's log that cost more than they are worth, if that lasts.
const CROWDED: usize = 1024;

/// Consecutive ends that count as lasting.
const CROWDED_LONG: u32 = 10;

/// Keys of a sample that is large enough.
const KEYS_ENOUGH: usize = 2048;

/// Milliseconds for which a worker that left out repetitions may continue to, and some more.
const PARTIAL_MS: u64 = 600;

impl Collector {
    /// An empty one. `now` gives the earlier counts.
    #[must_use]
    pub fn new(config: Config, now: &Snapshot) -> Self {
        Self {
            config,
            working_set: WorkingSet::new(config.keys),
            hot_keys: HotKeys::default(),
            miss_ratio: MissRatio::new(config.curve),
            trials: Trials::new(config.trial, now.now_ms),
            latencies: Latencies::default(),
            dropped: 0,
            pending: Vec::new(),
            logs: 0,
            crowded: 0,
            partial_until_ms: 0,
            is_partial: false,
            reads: now.reads,
            hits_and_misses: now.hits_and_misses,
            faded_ms: now.now_ms,
            flush: now.flush,
        }
    }

    /// Starts again, except the trials, which decide the server's behaviour, and the order of keys,
    /// without which the miss-ratio curve would be wrong until every key was read again.
    pub fn forget(&mut self, now: &Snapshot) {
        let nothing = Self::new(Config { trial: 0, ..self.config }, now);
        let (config, before) = (self.config, std::mem::replace(self, nothing));
        self.config = config;
        self.trials = before.trials;
        self.flush = before.flush;
        self.miss_ratio = before.miss_ratio;
        self.miss_ratio.restart();
    }

    /// The amount that it keeps.
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
            self.latencies.add(timing.command, timing.nanos.into(), timing.weight);
        }
        self.dropped += log.dropped();
        self.logs += 1;
        self.is_partial |= log.is_partial();
    }

    /// Orders the taken samples and feeds them on. `threshold` is that of the workers; the returned
    /// one, which is not greater, is all that the estimators need.
    pub fn finish(&mut self, now: &Snapshot, threshold: u64) -> u64 {
        let threshold = self.relieve(threshold);
        self.working_set.lower(threshold);
        self.miss_ratio.lower(threshold);
        self.miss_ratio.set_memory(now.memory_bytes);
        self.miss_ratio.set_weighs_size(now.weighs_size);
        self.trials.lower(threshold);
        self.trials.set_memory(now.memory_bytes);
        self.pending.sort_by_key(|(access, _)| access.tick_ms);
        for (access, prefix) in &self.pending {
            self.miss_ratio.access(access, now.now_secs);
            self.trials.access(access, now.now_secs);
            match access.kind {
                Kind::Hit | Kind::Stored | Kind::Touched if access.bytes > 0 => {
                    self.working_set.used(access.hash, access.bytes, *prefix, now.now_secs);
                }
                _ => self.working_set.used_without_item(access.hash, now.now_secs),
            }
        }
        self.pending.clear();
        if now.flush != self.flush {
            self.flush = now.flush;
            self.miss_ratio.flushed(now.flush);
            self.trials.flushed(now.flush);
        }
        self.trials.judge(now.now_ms);
        if std::mem::take(&mut self.is_partial) {
            self.partial_until_ms = now.now_ms + PARTIAL_MS;
        }
        #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample is worth")]
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let ((hits, misses), before) = (now.hits_and_misses, self.hits_and_misses);
        let all = AllReads {
            reads: since(now.reads, self.reads),
            hits: since(hits, before.0),
            misses: since(misses, before.1),
        };
        self.miss_ratio.all_reads((now.now_ms >= self.partial_until_ms).then_some(all));
        (self.reads, self.hits_and_misses) = (now.reads, now.hits_and_misses);
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

    /// A lower threshold, if logs have been crowded for a while and a smaller sample would do,
    /// because sampling costs time.
    fn relieve(&mut self, threshold: u64) -> u64 {
        let is_crowded = self.pending.len() > self.logs * CROWDED;
        self.logs = 0;
        self.crowded = if is_crowded { self.crowded + 1 } else { 0 };
        if self.crowded < CROWDED_LONG || self.working_set.keys() < KEYS_ENOUGH {
            return threshold;
        }
        self.crowded = CROWDED_LONG / 2;
        threshold / 4 * 3
    }
}

#[expect(clippy::cast_precision_loss, reason = "53 bits of milliseconds are long enough")]
fn secs_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_server_keeps_its_samples() {
        // `-m` is whole.
        for memory in (2..=64).map(|megabytes| megabytes << 20) {
            let of = |workers| Config::for_memory(memory, workers, true).bytes_max(workers) as u64;
            assert!(of(1).max(of(4)) * 10 <= memory, "{} and {} of {memory}", of(1), of(4));
        }
    }

    #[test]
    fn sampling_uses_a_small_part_of_the_memory() {
        let cases = [
            (2, 1, 10),
            (2, 4, 10),
            (4, 4, 9),
            (8, 4, 6),
            (64, 4, 2),
            (1 << 10, 4, 1),
            (8 << 10, 32, 1),
        ];
        for (megabytes, workers, percent) in cases {
            let memory = megabytes << 20;
            let bytes = Config::for_memory(memory, workers, true).bytes_max(workers) as u64;
            assert!(bytes * 100 <= memory * percent, "{bytes} of {memory}");
        }
        const { assert!(Config::FIXED_BYTES < 300 << 10) };
    }
}
