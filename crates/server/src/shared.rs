//! The part of a server that all its workers share.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use access::{Auth, AuthWorker};
use engine::{LeaseSettings, Sampling, Settings};
use net::TlsAcceptor;
use options::{Options, Protocol, stats_settings};
use store::Store;
use telemetry::Telemetry;

use crate::activity::Activity;
use crate::clock::Clock;
use crate::crawler::Crawler;
use crate::entry::Entry;
use crate::log::Log;
use crate::prefixes::Prefixes;
use crate::reloads::{Part, Reloads};
use watch::hub::Watchers;

/// The common part of a server's workers: the engine, permissions, and watchers.
#[derive(Debug)]
pub struct Shared {
    pub(crate) engine: Arc<engine::Shared>,
    pub(crate) clock: Clock,
    pub(crate) watchers: Arc<Watchers>,
    /// Wakes the background threads.
    pub(crate) activity: Arc<Activity>,
    pub(crate) prefixes: Prefixes,
    /// `stats settings`, except those with their own number.
    settings: Mutex<Vec<(&'static str, String)>>,
    /// The results of reading files again.
    pub(crate) reloads: Reloads,
    log_filter: Mutex<logging::Filter>,
    /// `--drain`, in seconds.
    drain_secs: AtomicU64,
    verbosity: AtomicU8,
    /// Key dumps and crawls started (`lru_crawler_starts`).
    walks: AtomicU64,
    malloc_fails_at_reset: AtomicU64,
    pub(crate) crawler: Arc<Crawler>,
    pub(crate) protocol: Protocol,
    /// The users; `None` when no login is required.
    pub(crate) auth: Option<Arc<Auth>>,
    /// SASL is offered (`-S`).
    pub(crate) sasl_enabled: bool,
    /// `None` when no listener speaks TLS.
    pub(crate) tls: Option<Arc<TlsAcceptor>>,
    /// There are files to read again.
    pub(crate) can_reload: bool,
    has_namespaces: bool,
    pub(crate) auth_worker: Arc<AuthWorker>,
    pub(crate) log: Log,
    /// Requests of one connection before the others get their turn (`-R`).
    pub(crate) requests_per_turn: u32,
    pub(crate) dump_enabled: bool,
    /// `-o strict`: a connection ends where data could be read as commands.
    pub(crate) is_strict: bool,
    /// `-o delete_hold_off`: the number of `delete k N` is a hold-off.
    pub(crate) delete_holds_off: bool,
    pub(crate) watch_enabled: bool,
    pub(crate) shutdown_enabled: bool,
    /// `slabs reassign` is allowed.
    pub(crate) slab_reassign: bool,
    /// The maximum bytes that one worker's connections may hold in large values in transfer.
    pub(crate) large_values_bytes_max: usize,
    /// A UDP reply has at most this many times the bytes of its request; 0 for no limit.
    pub(crate) udp_amplification: usize,
    pub(crate) threads: usize,
    connections_max: AtomicUsize,
    exports: OnceLock<Exports>,
}

/// The exports to an OpenTelemetry collector.
#[derive(Debug)]
pub(crate) struct Exports {
    /// Counts of the exports.
    pub(crate) export_counts: Arc<telemetry::ExportCounts>,
    /// The destination of ended spans, if spans are exported.
    pub(crate) spans: Option<Arc<spans::Spans>>,
}

impl Shared {
    /// The state that workers need to serve from `store` by `options`. `clock` is the clock of the
    /// store's cleaner.
    #[must_use]
    pub fn new(options: &Options, store: &Arc<Store>, clock: Clock, entry: &Entry) -> Arc<Self> {
        let engine_settings = Settings {
            cas_enabled: options.cas,
            flush_enabled: options.flush_command,
            started_at_unix: clock.zero_at_unix(),
            leases: leases(options),
        };
        let sampling = sampling(options);
        Arc::new(Self {
            engine: engine::Shared::with_samples(Arc::clone(store), engine_settings, sampling),
            clock,
            watchers: Watchers::new(options.watcher_buffer_bytes),
            activity: Arc::default(),
            prefixes: Prefixes::new(options.prefix_delimiter, options.prefix_stats),
            settings: Mutex::new(stats_settings::of(options)),
            reloads: Reloads::default(),
            log_filter: Mutex::new(options.log_filter.clone()),
            drain_secs: AtomicU64::new(options.drain.as_secs()),
            verbosity: AtomicU8::new(options.verbosity),
            walks: AtomicU64::new(0),
            malloc_fails_at_reset: AtomicU64::new(0),
            crawler: Arc::new(Crawler::new(options)),
            protocol: options.protocol,
            can_reload: entry.can_reload(),
            has_namespaces: entry.namespaces.is_some(),
            auth: entry.auth.clone(),
            tls: entry.tls.clone(),
            sasl_enabled: options.sasl,
            auth_worker: Arc::default(),
            log: Log::new(options),
            requests_per_turn: options.requests_per_turn.max(1),
            dump_enabled: options.dump_commands,
            is_strict: options.strict,
            delete_holds_off: options.delete_hold_off,
            watch_enabled: options.watch_command,
            shutdown_enabled: options.shutdown_command,
            slab_reassign: options.slab_reassign,
            large_values_bytes_max: large_values_bytes_max(options),
            udp_amplification: usize::try_from(options.udp_amplification).unwrap_or(usize::MAX),
            threads: options.threads,
            connections_max: AtomicUsize::new(options.connections_max),
            exports: OnceLock::new(),
        })
    }
}

/// Relaxed: a worker may print commands for a moment too long, and `stats` may count a walk or show
/// a limit late.
impl Shared {
    /// 0 to 2, as the `verbosity` command sets it.
    pub(crate) fn verbosity(&self) -> u8 {
        self.verbosity.load(Ordering::Relaxed)
    }

    pub(crate) fn set_verbosity(&self, level: u8) {
        self.verbosity.store(level, Ordering::Relaxed);
    }

    /// Connections at one time (`-c`).
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_connections_max(&self, max: usize) {
        self.connections_max.store(max, Ordering::Relaxed);
    }

    /// The events that are logged (`--log-filter`).
    pub(crate) fn log_filter(&self) -> logging::Filter {
        self.log_filter.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_log_filter(&self, filter: &logging::Filter) {
        logging::set_filter(filter);
        *self.log_filter.lock().unwrap_or_else(PoisonError::into_inner) = filter.clone();
    }

    /// The time for which clients are still served after shutdown has started (`--drain`).
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_secs.load(Ordering::Relaxed))
    }

    pub(crate) fn set_drain(&self, drain: Duration) {
        self.drain_secs.store(drain.as_secs(), Ordering::Relaxed);
    }

    /// Key dumps and crawls started.
    pub(crate) fn walks(&self) -> u64 {
        self.walks.load(Ordering::Relaxed)
    }

    /// Allocations that the system refused since the last reset.
    pub(crate) fn malloc_fails(&self) -> u64 {
        reserve::grants().saturating_sub(self.malloc_fails_at_reset.load(Ordering::Relaxed))
    }

    /// Counts walks, refused allocations and watchers' lines from zero again.
    pub(crate) fn reset_counts(&self) {
        self.walks.store(0, Ordering::Relaxed);
        self.malloc_fails_at_reset.store(reserve::grants(), Ordering::Relaxed);
        self.watchers.reset_counts();
    }

    /// Counts a key dump or a crawl that starts.
    pub(crate) fn count_walk(&self) {
        self.walks.fetch_add(1, Ordering::Relaxed);
    }
}

impl Shared {
    /// Sends spans and counts to `telemetry` from now on. Called once, before clients are served.
    pub(crate) fn export(&self, telemetry: &Telemetry) {
        let (export_counts, spans) =
            (Arc::clone(telemetry.export_counts()), telemetry.spans().cloned());
        // The first stays.
        let _ = self.exports.set(Exports { export_counts, spans });
    }

    /// The exports.
    pub(crate) fn exports(&self) -> Option<&Exports> {
        self.exports.get()
    }

    /// Notes changes of the wall clock, which absolute exptimes depend on. Call it once per second.
    pub(crate) fn follow_wall_clock(&self, now: Instant) {
        let known = self.engine.started_at_unix();
        let zero_at_unix = self.clock.zero_at_unix_now(now, known);
        if zero_at_unix != known {
            self.engine.set_started_at_unix(zero_at_unix);
        }
    }

    /// Calls `show` with each name and value of `stats settings`, except those with their own
    /// number.
    pub(crate) fn each_setting(&self, mut show: impl FnMut(&str, &str)) {
        let settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings.iter().for_each(|(name, value)| show(name, value));
    }

    /// Makes `stats settings` show this value from now on.
    pub(crate) fn show_setting(&self, name: &str, value: String) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = settings.iter_mut().find(|(known, _)| *known == name);
        shown.into_iter().for_each(|(_, before)| before.clone_from(&value));
    }

    /// The parts that can be read again.
    pub(crate) fn reloaded_parts(&self) -> Vec<Part> {
        let is_there = |part: &Part| match part {
            Part::Settings => true,
            Part::Users => self.auth.is_some(),
            Part::Certificates => self.tls.is_some(),
            Part::Namespaces => self.has_namespaces,
        };
        Part::ALL.into_iter().filter(is_there).collect()
    }

    /// Passes the workers' samples to the estimators.
    pub(crate) fn collect_samples(&self) {
        let now = Instant::now();
        self.engine.collect_samples(self.clock.ms_at(now), self.clock.secs_at(now));
    }

    /// The maximum bytes of the reply to a datagram of `request_bytes`: its sender's address can be
    /// forged.
    pub(crate) fn udp_reply_bytes_max(&self, request_bytes: usize) -> usize {
        match self.udp_amplification {
            0 => DATAGRAMS_MAX * (net::DATAGRAM_BYTES - proto::udp::FRAME_BYTES),
            times => request_bytes.saturating_mul(times),
        }
    }
}

/// The settings of leases.
pub(crate) fn leases(options: &Options) -> LeaseSettings {
    LeaseSettings { interval_secs: options.lease_interval_secs, stale_secs: options.stale_secs }
}

/// The settings of sampling, if it is enabled.
pub(crate) fn sampling(options: &Options) -> Option<Sampling> {
    let (delimiter, workers) = (options.prefix_delimiter, options.threads);
    options.sampling.then_some(Sampling { delimiter, workers })
}

/// Datagrams that the frame of one reply can count.
const DATAGRAMS_MAX: usize = u16::MAX as usize;

/// Large values in transfer may hold a quarter of the memory, and each worker's at least two of the
/// largest.
fn large_values_bytes_max(options: &Options) -> usize {
    let share = options.memory_bytes / 4 / options.threads.max(1) as u64;
    usize::try_from(share.max(2 * options.item_bytes_max)).unwrap_or(usize::MAX)
}
