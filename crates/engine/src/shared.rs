//! The part that all workers share: the store, the settings, a pending flush, the register of
//! counters.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use narrow::to_u16;
use parking_lot::Mutex;
use sampling::Collector;
use store::{EvictionSetting, NAMESPACES_MAX, Store};

use crate::exptime::deadline_of;
use crate::lease_tokens_and_holdoffs::Table;
use crate::namespaces::Registry;
use crate::samples::{At, Current, Sampler, Samples, Sampling};
use crate::stats::{ClassCounter, Counter, Counters, OfSubject, Totals};

/// Settings that change the meaning of commands.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `false` (`-C`): cas uniques are shown as 0 and never match.
    pub cas_enabled: bool,
    /// `false` (`-F`): `flush_all` is refused.
    pub flush_enabled: bool,
    /// Unix time, in seconds, at which the clock given to [`crate::Worker::begin_turn`] was zero.
    /// The clock must have started at 2: deadline 0 means "never", and 1 is always in the past.
    /// [`Shared::set_started_at_unix`] changes it.
    pub started_at_unix: u64,
    /// Leases and stale values. [`Shared::set_leases`] changes them.
    pub leases: LeaseSettings,
}

/// Settings of leases.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSettings {
    /// Seconds between two tokens of a key; the second token comes at most one second later. 0
    /// gives a token to every miss.
    pub interval_secs: u32,
    /// Seconds for which a deleted value stays readable as stale; 0 keeps none.
    pub stale_secs: u32,
}

/// The paper's ten seconds. It does not say how long a deleted value is kept ("a short time"): that
/// default is ours, long enough for the next token and the one after it.
impl Default for LeaseSettings {
    fn default() -> Self {
        Self { interval_secs: 10, stale_secs: 30 }
    }
}

/// `flush_all` under `-F`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushNotAllowed;

/// The engine's shared part; one per server.
pub struct Shared {
    store: Arc<Store>,
    settings: Settings,
    started_at_unix: AtomicU64,
    /// Tokens and hold-offs; created at the first use.
    pub(crate) leases: OnceLock<Table>,
    stats: Mutex<Register>,
    pub(crate) registry: Registry,
    pub(crate) samples: Current,
    /// Of [`LeaseSettings`].
    pub(crate) lease_interval_secs: Arc<AtomicU32>,
    stale_secs: AtomicU32,
}

struct Register {
    workers: Vec<Arc<Counters>>,
    /// Sums at the last `stats reset`.
    baseline: Totals,
    /// Sums of namespaces and users at that time, by number; empty before the first.
    subjects_baseline: Vec<OfSubject<u64>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Shared {
    /// The engine over `store`, which samples nothing.
    #[must_use]
    pub fn new(store: Arc<Store>, settings: Settings) -> Arc<Self> {
        Self::with_samples(store, settings, None)
    }

    /// The engine over `store`, which samples its workers' operations. The memory for that is
    /// charged to the store, as buffers.
    #[must_use]
    pub fn with_samples(
        store: Arc<Store>,
        settings: Settings,
        sampling: Option<Sampling>,
    ) -> Arc<Self> {
        let samples = sampling.and_then(|sampling| Samples::new(&store, sampling));
        Arc::new(Self {
            store,
            settings,
            started_at_unix: AtomicU64::new(settings.started_at_unix),
            leases: OnceLock::new(),
            stats: Mutex::new(Register {
                workers: Vec::new(),
                baseline: Totals::zero(),
                subjects_baseline: Vec::new(),
            }),
            registry: Registry::default(),
            samples: Current::new(samples),
            lease_interval_secs: Arc::new(AtomicU32::new(settings.leases.interval_secs)),
            stale_secs: AtomicU32::new(settings.leases.stale_secs),
        })
    }

    /// The underlying store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The settings given at the start.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// Unix time, in seconds, at which the clock of [`crate::Worker::begin_turn`] was zero, by the
    /// wall clock when last read.
    #[inline]
    #[must_use]
    pub fn started_at_unix(&self) -> u64 {
        // Relaxed: a number that depends on nothing else.
        self.started_at_unix.load(Ordering::Relaxed)
    }

    /// Follows a change of the wall clock: absolute exptimes use it from now on. Deadlines of items
    /// do not change.
    pub fn set_started_at_unix(&self, started_at_unix: u64) {
        self.started_at_unix.store(started_at_unix, Ordering::Relaxed);
    }

    /// Seconds for which a value deleted now stays readable as stale; 0 keeps none.
    #[must_use]
    pub fn stale_secs(&self) -> u32 {
        // Relaxed: a number that depends on nothing else.
        self.stale_secs.load(Ordering::Relaxed)
    }

    /// The settings of leases.
    #[must_use]
    pub fn lease_settings(&self) -> LeaseSettings {
        // Relaxed: a number that depends on nothing else.
        let interval_secs = self.lease_interval_secs.load(Ordering::Relaxed);
        LeaseSettings { interval_secs, stale_secs: self.stale_secs() }
    }

    /// Applies these settings to leases from now on. A value deleted before keeps its old period as
    /// stale.
    pub fn set_leases(&self, leases: LeaseSettings) {
        self.lease_interval_secs.store(leases.interval_secs, Ordering::Relaxed);
        self.stale_secs.store(leases.stale_secs, Ordering::Relaxed);
    }

    /// Samples by other settings from now on, or not at all. The estimates start again, and the
    /// order of eviction with them. Workers follow in their next turn.
    pub fn set_sampling(&self, sampling: Option<Sampling>) {
        self.samples.replace(sampling.and_then(|sampling| Samples::new(&self.store, sampling)));
        self.store.set_eviction(EvictionSetting::FIRST);
    }

    /// `true` if anything is sampled.
    #[must_use]
    pub fn is_sampling(&self) -> bool {
        self.samples.get().is_some()
    }

    /// Sums of all workers' counters since the last reset.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let register = self.stats.lock();
        let mut totals = register.sum();
        totals.subtract(&register.baseline);
        totals
    }

    /// `stats reset`: counters count from zero again; gauges stay.
    pub fn reset_stats(&self) {
        let mut register = self.stats.lock();
        register.baseline = register.sum();
        if self.registry.rules().is_some() {
            let numbers = 0..to_u16(NAMESPACES_MAX);
            register.subjects_baseline =
                numbers.map(|number| register.sum_of_subject(number)).collect();
        }
        self.store.reset_stats();
        if let Some(leases) = self.leases() {
            leases.reset_lost();
        }
    }

    /// Sums of one namespace's or user's counters since the last reset.
    pub(crate) fn counts_of_subject(&self, number: u16) -> OfSubject<u64> {
        let register = self.stats.lock();
        let mut sums = register.sum_of_subject(number);
        if let Some(baseline) = register.subjects_baseline.get(usize::from(number)) {
            sums.iter_mut().zip(baseline).for_each(|(sum, base)| *sum = sum.wrapping_sub(*base));
        }
        sums
    }

    /// Passes the workers' samples to the estimators; to be called every
    /// [`crate::SAMPLES_INTERVAL`]. The times are the server's: milliseconds since its start, and
    /// the second in the unit of deadlines.
    pub fn collect_samples(&self, now_ms: u64, now_secs: u32) {
        if let Some(samples) = self.samples.get() {
            samples.collect(&self.store, self.at(now_ms, now_secs));
        }
    }

    /// Passes the estimators to `show`, and the bytes of items that fit into the memory; `None` if
    /// nothing is sampled.
    pub fn show_samples<T>(&self, show: impl FnOnce(&Collector, f64) -> T) -> Option<T> {
        self.samples.get().map(|samples| samples.show(&self.store, show))
    }

    /// `stats reset`: the estimators start again.
    pub fn forget_samples(&self, now_ms: u64, now_secs: u32) {
        if let Some(samples) = self.samples.get() {
            samples.forget(&self.store, self.at(now_ms, now_secs));
        }
    }

    /// Maximum bytes that sampling takes, all of which are charged to the store; 0 if nothing is
    /// sampled.
    #[must_use]
    pub fn sampling_bytes(&self) -> usize {
        self.samples.get().map_or(0, |samples| samples.bytes())
    }

    fn at(&self, now_ms: u64, now_secs: u32) -> At {
        let counted = self.stats.lock().sum();
        let hits = counted.of_all_classes(ClassCounter::GetHits);
        let hits_and_misses = (hits, counted.get(Counter::GetMisses));
        At { now_ms, now_secs, reads: counted.reads(), hits_and_misses }
    }

    pub(crate) fn sampler(&self) -> Sampler {
        Sampler::join(&self.samples)
    }

    /// Counters of a new worker, kept in the register for good: its counts stay when it ends.
    pub(crate) fn register(&self) -> Arc<Counters> {
        let counters = Arc::new(Counters::new());
        let mut register = self.stats.lock();
        register.workers.push(Arc::clone(&counters));
        counters
    }

    /// Records a `flush_all`: `true` if it is due now. 0, a negative and a past exptime mean now; a
    /// new flush replaces a pending one.
    pub(crate) fn schedule_flush(
        &self,
        exptime: i64,
        now_secs: u32,
    ) -> Result<bool, FlushNotAllowed> {
        if !self.settings.flush_enabled {
            return Err(FlushNotAllowed);
        }
        let at_secs = deadline_of(exptime, now_secs, self.started_at_unix());
        let is_now = at_secs <= now_secs;
        self.store.schedule_flush(if is_now { 0 } else { at_secs });
        Ok(is_now)
    }
}

impl Register {
    fn sum(&self) -> Totals {
        let mut totals = Totals::zero();
        for worker in &self.workers {
            totals.add(worker);
        }
        totals
    }

    fn sum_of_subject(&self, number: u16) -> OfSubject<u64> {
        let mut sums = OfSubject::<u64>::default();
        for worker in &self.workers {
            let counts = worker.of_subject(number);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum = sum.wrapping_add(count));
        }
        sums
    }
}
