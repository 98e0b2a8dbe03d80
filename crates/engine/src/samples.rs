//! Samples of the commands: each worker's side, which costs an unsampled key one comparison, and
//! the shared side, which takes the workers' logs together.
//!
//! ```text
//!     Worker: Sampler -- hash < threshold? --> Log <-- ten times a second -- Samples -> Collector
//! ```
//!
//! [`Batches`] chooses the batches that are sampled by time.
//!
//! The threshold defines the sampled keys ([`sampling`]'s law 1). While a batch of requests is
//! sampled by time, it has its maximum, so every key of the batch is noted. So one comparison
//! serves both.
//!
//! A worker locks its log for each sample, and a collector locks it for a swap. The worker never
//! waits: a sample that meets the lock is dropped.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sampling::{Collector, Command, Config, Full, Kind, Log, Snapshot};
use store::{EvictionSetting, Store};

use crate::batches::{Batches, INTERVAL_MS};
use crate::key::Key;
use narrow::{low_u32, to_u32};

/// Settings of sampling.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// The delimiter that ends the part of a key under which it is counted.
    pub delimiter: u8,
    /// Workers; a log for each is charged to the memory.
    pub workers: usize,
}

/// The shared side; one per server.
pub(crate) struct Samples {
    settings: Sampling,
    config: Config,
    logs: Mutex<Vec<Arc<Mutex<Log>>>>,
    collected: Mutex<Collected>,
    /// Keys whose hash is below it are sampled.
    threshold: AtomicU64,
    charge: Charge,
}

/// A moment of the server, and the counts at that moment.
#[derive(Clone, Copy)]
pub(crate) struct At {
    /// Milliseconds since the start.
    pub(crate) now_ms: u64,
    /// The second in the unit of deadlines.
    pub(crate) now_secs: u32,
    /// Keys read since the start, independent of resets.
    pub(crate) reads: u64,
    /// Of these, the reads that `get_hits` and `get_misses` count.
    pub(crate) hits_and_misses: (u64, u64),
}

impl At {
    fn snapshot(self, store: &Store) -> Snapshot {
        let Self { now_ms, now_secs, reads, hits_and_misses } = self;
        Snapshot {
            now_ms,
            now_secs,
            reads,
            hits_and_misses,
            memory_bytes: memory(store),
            weighs_size: store.eviction().weighs_size,
            flush: low_u32(store.last_flush()),
        }
    }
}

/// Bytes that the store's memory is charged while this lives.
struct Charge {
    store: Arc<Store>,
    bytes: i64,
}

struct Collected {
    collector: Collector,
    /// An empty log that replaces the log being taken.
    spare: Log,
}

/// The samples that a worker contributes to, and its log.
type Joined = (Arc<Samples>, Arc<Mutex<Log>>);

/// A worker's side.
pub(crate) struct Sampler {
    /// The version of [`Current`] that `shared` belongs to.
    version: Cell<u64>,
    shared: RefCell<Option<Joined>>,
    /// Keys whose hash is below it are noted now.
    threshold: Cell<u64>,
    /// Keys whose hash is below it are sampled by key.
    by_key: Cell<u64>,
    tick_ms: Cell<u64>,
    /// Until then nothing is sampled by key, because the log is full of repetitions.
    muted_until_ms: Cell<u64>,
    /// This batch is sampled by time.
    is_observing: Cell<bool>,
    batches: Batches,
    /// The last command noted.
    command: Cell<Option<Command>>,
}

/// Minimum bytes of memory for each byte of samples.
const PART_OF_MEMORY: u64 = 10;

/// Milliseconds in which nothing is sampled by key after a log was full of repetitions.
const MUTED_MS: u64 = 4 * INTERVAL_MS;

/// The interval at which [`crate::Shared::collect_samples`] should be called.
pub const SAMPLES_INTERVAL: Duration = Duration::from_millis(INTERVAL_MS);

impl Samples {
    /// `None` if samples would take too large a part of the memory.
    pub(crate) fn new(store: &Arc<Store>, settings: Sampling) -> Option<Arc<Self>> {
        let limit = store.memory().limit;
        let config = Config::for_memory(limit, settings.workers, store.chooses_eviction());
        let bytes = config.bytes_max(settings.workers);
        if bytes as u64 > limit / PART_OF_MEMORY {
            return None;
        }
        let start = At { now_ms: 0, now_secs: 0, reads: 0, hits_and_misses: (0, 0) };
        Some(Arc::new(Self {
            settings,
            config,
            logs: Mutex::new(Vec::new()),
            collected: Mutex::new(Collected {
                collector: Collector::new(config, &start.snapshot(store)),
                spare: Log::new(config.log),
            }),
            threshold: AtomicU64::new(u64::MAX),
            charge: Charge::new(store, bytes),
        }))
    }

    /// Bytes charged to the store's memory.
    pub(crate) fn bytes(&self) -> usize {
        self.config.bytes_max(self.settings.workers)
    }

    /// Takes every worker's log and feeds the estimators.
    pub(crate) fn collect(&self, store: &Store, now: At) {
        let now = now.snapshot(store);
        let mut collected = self.collected.lock();
        let Collected { collector, spare } = &mut *collected;
        for log in self.logs.lock().iter() {
            std::mem::swap(&mut *log.lock(), spare);
            collector.take(spare);
            spare.clear();
        }
        // Relaxed, here and elsewhere: a threshold seen late costs samples that are then discarded.
        let wanted = collector.finish(&now, self.threshold.load(Ordering::Relaxed));
        self.threshold.fetch_min(wanted, Ordering::Relaxed);
        let chosen = collector.trials.chosen();
        store.set_eviction(EvictionSetting {
            newcomer_factor: chosen.newcomer_factor,
            weighs_size: chosen.weighs_size,
        });
    }

    /// Passes the estimators to `show`, and the bytes of items that fit into the memory.
    pub(crate) fn show<T>(&self, store: &Store, show: impl FnOnce(&Collector, f64) -> T) -> T {
        show(&self.collected.lock().collector, memory(store))
    }

    /// Starts again.
    pub(crate) fn forget(&self, store: &Store, now: At) {
        let now = now.snapshot(store);
        let mut collected = self.collected.lock();
        for log in self.logs.lock().iter() {
            log.lock().clear();
        }
        collected.collector.forget(&now);
        self.threshold.store(u64::MAX, Ordering::Relaxed);
    }
}

impl Charge {
    fn new(store: &Arc<Store>, bytes: usize) -> Self {
        let bytes = (bytes as u64).cast_signed();
        store.charge_buffers(bytes);
        Self { store: Arc::clone(store), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.store.charge_buffers(-self.bytes);
    }
}

/// The samples of a server, which may be turned on and off while workers run. Each worker takes
/// them at the start of its next turn, so replaced samples live as long as a worker sleeps.
pub(crate) struct Current {
    samples: Mutex<Option<Arc<Samples>>>,
    /// Counts the replacements; written under the lock.
    version: AtomicU64,
}

impl Current {
    pub(crate) fn new(samples: Option<Arc<Samples>>) -> Self {
        Self { samples: Mutex::new(samples), version: AtomicU64::new(0) }
    }

    pub(crate) fn get(&self) -> Option<Arc<Samples>> {
        self.samples.lock().clone()
    }

    pub(crate) fn replace(&self, samples: Option<Arc<Samples>>) {
        let mut current = self.samples.lock();
        let before = std::mem::replace(&mut *current, samples);
        // Relaxed: a thread that sees it takes the lock.
        self.version.fetch_add(1, Ordering::Relaxed);
        drop(current);
        drop(before);
    }
}

impl Sampler {
    /// A worker's side; without samples, nothing is noted.
    pub(crate) fn join(current: &Current) -> Self {
        let sampler = Self {
            version: Cell::new(0),
            shared: RefCell::new(None),
            threshold: Cell::new(0),
            by_key: Cell::new(0),
            tick_ms: Cell::new(0),
            muted_until_ms: Cell::new(0),
            is_observing: Cell::new(false),
            batches: Batches::new(fastrand::Rng::new()),
            command: Cell::new(None),
        };
        sampler.renew(current);
        sampler
    }

    /// Takes the present samples.
    #[cold]
    fn renew(&self, current: &Current) {
        let present = current.samples.lock();
        self.version.set(current.version.load(Ordering::Relaxed));
        let shared = present.as_ref().map(|samples| {
            let log = Arc::new(Mutex::new(Log::new(samples.config.log)));
            samples.logs.lock().push(Arc::clone(&log));
            (Arc::clone(samples), log)
        });
        drop(present);
        self.shared.replace(shared);
        self.sample_below(0);
        self.batches.restart();
    }

    /// Starts a turn at `now_ms`.
    pub(crate) fn begin_turn(&self, current: &Current, now_ms: u64) {
        if self.version.get() != current.version.load(Ordering::Relaxed) {
            self.renew(current);
        }
        let shared = self.shared.borrow();
        let Some((samples, _)) = &*shared else { return };
        self.tick_ms.set(now_ms);
        let is_muted = now_ms < self.muted_until_ms.get();
        let by_key = if is_muted { 0 } else { samples.threshold.load(Ordering::Relaxed) };
        self.by_key.set(by_key);
        self.threshold.set(by_key);
        self.batches.begin_turn(now_ms);
    }

    /// Starts a batch of requests: `true` if it is sampled by time.
    #[inline]
    pub(crate) fn begin_batch(&self) -> bool {
        self.batches.is_next() && self.begin_observing()
    }

    #[cold]
    fn begin_observing(&self) -> bool {
        if self.shared.borrow().is_none() {
            self.batches.choose_none();
            return false;
        }
        self.batches.choose();
        self.is_observing.set(true);
        self.threshold.set(u64::MAX);
        true
    }

    pub(crate) fn end_batch(&self) {
        self.is_observing.set(false);
        self.threshold.set(self.by_key.get());
        self.command.set(None);
    }

    /// Notes that a request of a batch sampled by time was answered, this long after its bytes had
    /// come.
    pub(crate) fn answered(&self, after: Duration) {
        let command = self.command.take().unwrap_or(Command::Other);
        let nanos = after.as_secs().saturating_mul(1_000_000_000);
        let nanos = nanos.saturating_add(u64::from(after.subsec_nanos()));
        self.with_log(|log, _| log.timing(command, nanos, self.batches.weight()));
    }

    fn with_log(&self, note: impl FnOnce(&mut Log, &Samples)) {
        let shared = self.shared.borrow();
        let Some((samples, log)) = &*shared else { return };
        // If the log is being taken, this sample is lost.
        if let Some(mut log) = log.try_lock() {
            note(&mut log, samples);
        }
    }

    /// `true` if a key with this hash is sampled now.
    #[inline]
    pub(crate) fn takes(&self, hash: u64) -> bool {
        hash < self.threshold.get()
    }

    /// Samples the effect of a command on a key that [`Self::takes`] names: the item's bytes and
    /// its deadline, or zeros without an item.
    #[cold]
    #[inline(never)]
    pub(crate) fn note(
        &self,
        command: Command,
        kind: Kind,
        key: &Key<'_>,
        (bytes, deadline): (usize, u32),
    ) {
        self.command.set(Some(command));
        self.with_log(|log, samples| {
            if self.is_observing.get() {
                self.batches.note_key();
                log.request(key.hash, key.bytes, self.batches.weight());
            }
            if key.hash >= self.by_key.get() {
                return;
            }
            // An item has at most 1 GiB.
            let bytes = to_u32(bytes);
            let end = key.bytes.iter().position(|byte| *byte == samples.settings.delimiter);
            let prefix = key.bytes.get(..end.unwrap_or(0)).unwrap_or_default();
            // Only the order within a tenth of a second counts.
            let at = (low_u32(self.tick_ms.get()), kind);
            let flush = low_u32(samples.charge.store.last_flush_of(key.bytes));
            match log.access(key.hash, at, (bytes, deadline), flush, prefix) {
                Ok(()) => {}
                Err(Full::Thinned(threshold)) => {
                    samples.threshold.fetch_min(threshold, Ordering::Relaxed);
                    self.sample_below(threshold);
                }
                Err(Full::Repetitions) => {
                    self.muted_until_ms.set(self.tick_ms.get() + MUTED_MS);
                    self.sample_below(0);
                }
            }
        });
    }

    fn sample_below(&self, by_key: u64) {
        self.by_key.set(by_key);
        if !self.is_observing.get() {
            self.threshold.set(by_key);
        }
    }
}

/// Bytes of items that fit into the store's memory. The present items show the density, once they
/// fill much of it.
fn memory(store: &Store) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let float = |bytes: u64| bytes as f64;
    let memory = store.memory();
    let used = memory.arena + memory.index + memory.bags;
    let room = float(memory.limit.saturating_sub(memory.buffers));
    let density = if used > memory.limit / 2 { float(memory.items) / float(used) } else { DENSITY };
    room * density
}

/// Items' part of the memory that they use, before it is known.
const DENSITY: f64 = 0.85;
