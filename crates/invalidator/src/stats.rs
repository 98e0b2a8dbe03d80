//! Counters of a running invalidator, and their two texts: `STAT` lines as in memcached, and
//! Prometheus's.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hdrhistogram::Histogram;
use metrics::{Check, Kind, Page};
use parking_lot::Mutex;

use crate::canary_stats::{CanaryStats, Obstacle};
use crate::clock::{micros, older};
use crate::last_check::LastCheck;

/// The value of an unknown counter.
pub const UNKNOWN: u64 = u64::MAX;

/// All counters. Each has one writing task and any number of readers, and none orders another, so
/// Relaxed is enough: a reader may see one counter slightly before another.
#[derive(Debug)]
pub struct Stats {
    /// The clusters, in the order of the configuration.
    pub clusters: Vec<ClusterStats>,
    /// Committed transactions read, including those without keys.
    pub transactions: AtomicU64,
    /// Transactions whose keys did not all fit in memory.
    pub transactions_on_disk: AtomicU64,
    /// Keys read, each counted once per transaction.
    pub keys: AtomicU64,
    /// Keys that no server accepts (longer than 250 bytes), so no cache holds them.
    pub keys_too_long: AtomicU64,
    /// Unreadable parts of the log.
    pub gaps: AtomicU64,
    /// Connections made to the database.
    pub source_connects: AtomicU64,
    /// True while the log is followed.
    pub source_connected: AtomicBool,
    /// Bytes of log not read yet, or [`UNKNOWN`].
    pub behind_bytes: AtomicU64,
    /// Bytes of log that the database may write before it removes undelivered log, or [`UNKNOWN`].
    pub log_room_bytes: AtomicU64,
    /// True when little of that space is left.
    pub log_room_short: AtomicBool,
    /// Transactions that are prepared but not ended.
    pub prepared: AtomicU64,
    /// Transactions with keys that are not visible to others yet.
    pub unseen: AtomicU64,
    /// Time of the last event that showed that the log is followed, in microseconds since 1970.
    pub heard_us: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Failed writes of checkpoints.
    pub checkpoint_failures: AtomicU64,
    /// True if the last such write failed.
    pub checkpoint_fails: AtomicBool,
    /// Panics after which the process restarted in place, over all its lives.
    pub panics: AtomicU64,
    /// The last good check of the followed server; none before the first, and if there is nothing
    /// to check.
    pub last_check: Mutex<Option<LastCheck>>,
    /// The last checkpoint's position.
    pub position: Mutex<String>,
    /// The last position at which everything before it had been executed, with nothing of it on
    /// this host's disk.
    pub delivered_position: Mutex<String>,
    /// False while another invalidator of the group works.
    pub is_working: AtomicBool,
    /// True when this invalidator ends because the log lacked changes.
    pub is_lacking: AtomicBool,
    /// The interval of the canary; none without one.
    pub canary_every: OnceLock<Duration>,
    /// The group of invalidators that take turns; none without one.
    pub group: OnceLock<String>,
    /// Export counts, if there is an export.
    pub export_counts: OnceLock<Arc<telemetry::ExportCounts>>,
}

/// The counters of one cluster.
#[derive(Debug)]
pub struct ClusterStats {
    /// Its name.
    pub name: String,
    /// True while one of its routers is connected.
    pub connected: AtomicBool,
    /// True while batches are sent to that router in blocks of zstd.
    pub compressed: AtomicBool,
    /// Keys whose delete was acknowledged.
    pub delivered: AtomicU64,
    /// Batches acknowledged.
    pub batches: AtomicU64,
    /// Batches sent again after an error.
    pub retried: AtomicU64,
    /// Keys that wait because the server behind the router refused them.
    pub deferred: AtomicU64,
    /// Keys that a router keeps for a server that has not executed their delete yet.
    pub kept: AtomicU64,
    /// Kept keys that are not watched, because there are too many.
    pub kept_unwatched: AtomicU64,
    /// Commit time of the oldest kept key; 0 if there is none.
    pub kept_us: AtomicU64,
    /// Keys in memory that are not acknowledged.
    pub waiting: AtomicU64,
    /// Flushes delivered.
    pub flushes: AtomicU64,
    /// Moves of a full memory window to the disk.
    pub moved_to_disk: AtomicU64,
    /// Keys written to the disk.
    pub spooled: AtomicU64,
    /// Undelivered records on the disk.
    pub spool_records: AtomicU64,
    /// Bytes on the disk.
    pub spool_bytes: AtomicU64,
    /// Writes that the disk refused, or for which it had no space.
    pub spool_failures: AtomicU64,
    /// Commit time of the last acknowledged transaction, in microseconds since 1970.
    pub committed_us: AtomicU64,
    /// Commit time of the oldest unacknowledged transaction; 0 if none waits.
    pub oldest_us: AtomicU64,
    /// Keys per batch.
    pub batch_keys: Mutex<Histogram<u64>>,
    /// Microseconds from reading a transaction to its acknowledgement.
    pub delivery_us: Mutex<Histogram<u64>>,
    /// The last error.
    pub last_error: Mutex<String>,
    /// The monitor's figures.
    pub monitor: MonitorStats,
    /// The canary's age.
    pub canary: CanaryStats,
}

/// The results of re-reading sampled keys.
#[derive(Debug)]
pub struct MonitorStats {
    /// Sampled deletes.
    pub sampled: AtomicU64,
    /// Sampled deletes that found a value in the cache.
    pub cached: AtomicU64,
    /// Samples dropped because too many were waiting.
    pub skipped: AtomicU64,
    /// Microseconds for which the old value remained readable after the change was read from the
    /// log.
    pub stale_us: Mutex<Histogram<u64>>,
    /// Old values still there after the first look.
    pub still_stale: AtomicU64,
}

/// The canary's age in `stats`; Prometheus reads seconds.
const CANARY_MS: &str = "canary_ms";

/// An idle database sends a message every one or two seconds.
const SILENT_MS: u64 = 5000;

/// The longest time that a histogram distinguishes: an hour, in microseconds.
pub const STALE_US_MAX: u64 = 3_600_000_000;

/// A histogram from 1 to `max` with a relative error below 1 %.
#[must_use]
#[allow(clippy::expect_used, reason = "bounds and digits are constants here, and valid")]
fn histogram(max: u64) -> Mutex<Histogram<u64>> {
    Mutex::new(Histogram::new_with_max(max, 2).expect("valid bounds"))
}

impl Stats {
    /// All zero, for clusters of these names.
    #[must_use]
    pub fn new(clusters: impl IntoIterator<Item = String>) -> Self {
        Self {
            clusters: clusters.into_iter().map(ClusterStats::new).collect(),
            transactions: AtomicU64::new(0),
            transactions_on_disk: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            keys_too_long: AtomicU64::new(0),
            gaps: AtomicU64::new(0),
            source_connects: AtomicU64::new(0),
            source_connected: AtomicBool::new(false),
            behind_bytes: AtomicU64::new(UNKNOWN),
            log_room_bytes: AtomicU64::new(UNKNOWN),
            log_room_short: AtomicBool::new(false),
            prepared: AtomicU64::new(0),
            unseen: AtomicU64::new(0),
            heard_us: AtomicU64::new(u64::MAX),
            checkpoints: AtomicU64::new(0),
            checkpoint_failures: AtomicU64::new(0),
            checkpoint_fails: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            last_check: Mutex::new(None),
            position: Mutex::new(String::new()),
            delivered_position: Mutex::new(String::new()),
            is_working: AtomicBool::new(true),
            is_lacking: AtomicBool::new(false),
            canary_every: OnceLock::new(),
            group: OnceLock::new(),
            export_counts: OnceLock::new(),
        }
    }

    /// Every number as name, labels and value; `now_us` is microseconds since 1970.
    fn numbers(&self, now_us: u64) -> Vec<(&'static str, String, u64)> {
        let behind = self.behind_bytes.load(Relaxed);
        let mut all: Vec<(&'static str, String, u64)> = [
            ("transactions", self.transactions.load(Relaxed)),
            ("transactions_on_disk", self.transactions_on_disk.load(Relaxed)),
            ("keys", self.keys.load(Relaxed)),
            ("keys_too_long", self.keys_too_long.load(Relaxed)),
            ("gaps", self.gaps.load(Relaxed)),
            ("source_connected", u64::from(self.source_connected.load(Relaxed))),
            ("source_connects", self.source_connects.load(Relaxed)),
            ("prepared_transactions", self.prepared.load(Relaxed)),
            ("unseen_transactions", self.unseen.load(Relaxed)),
            ("checkpoints", self.checkpoints.load(Relaxed)),
            ("checkpoint_failures", self.checkpoint_failures.load(Relaxed)),
            ("panics", self.panics.load(Relaxed)),
            ("working", u64::from(self.is_working.load(Relaxed))),
            ("lacking", u64::from(self.is_lacking.load(Relaxed))),
        ]
        .into_iter()
        .map(|(name, value)| (name, String::new(), value))
        .collect();
        if behind != UNKNOWN {
            all.push(("behind_bytes", String::new(), behind));
        }
        let room = self.log_room_bytes.load(Relaxed);
        if room != UNKNOWN {
            let is_short = u64::from(self.log_room_short.load(Relaxed));
            all.push(("log_room_bytes", String::new(), room));
            all.push(("log_room_short", String::new(), is_short));
        }
        if let Some(check) = *self.last_check.lock() {
            let age_ms = micros(check.age()) / 1000;
            all.push(("check_age_ms", String::new(), age_ms));
            all.push(("check_late", String::new(), u64::from(check.is_late())));
        }
        let silent_ms = self.silent_ms(now_us);
        for cluster in &self.clusters {
            for (name, value) in cluster.numbers(now_us, silent_ms) {
                all.push((name, cluster.name.clone(), value));
            }
            if let Some(every) = self.canary_every() {
                let (canary, name) = (&cluster.canary, &cluster.name);
                let is_late = u64::from(canary.is_late(every));
                all.push((CANARY_MS, name.clone(), micros(canary.age()) / 1000));
                all.push(("canary_late", name.clone(), is_late));
                all.push(("canary_proven", name.clone(), canary.proven.load(Relaxed)));
            }
        }
        all
    }

    /// The time since the database's last message, in milliseconds; 0 during usual pauses.
    fn silent_ms(&self, now_us: u64) -> u64 {
        let ms = now_us.saturating_sub(self.heard_us.load(Relaxed)) / 1000;
        // A waiting invalidator hears from the database twice per second, through the lock.
        let is_cut = self.is_working() && !self.source_connected.load(Relaxed);
        if ms >= SILENT_MS || is_cut { ms } else { 0 }
    }

    /// `STAT name value` lines, clusters' names as `cluster:name:number`.
    #[must_use]
    pub fn text(&self, now_us: u64) -> String {
        let mut text = String::new();
        let _ = write!(text, "STAT position {}\r\n", self.position.lock());
        let _ = write!(text, "STAT delivered_position {}\r\n", self.delivered_position.lock());
        for (name, cluster, value) in self.numbers(now_us) {
            let _ = if cluster.is_empty() {
                write!(text, "STAT {name} {value}\r\n")
            } else {
                write!(text, "STAT cluster:{cluster}:{name} {value}\r\n")
            };
        }
        for cluster in &self.clusters {
            let error = cluster.last_error.lock();
            if !error.is_empty() {
                let _ = write!(text, "STAT cluster:{}:last_error {error}\r\n", cluster.name);
            }
            if self.canary_every().is_some_and(|every| cluster.canary.is_late(every)) {
                let obstacle = plain(&cluster.canary.obstacle().to_string());
                let _ =
                    write!(text, "STAT cluster:{}:canary_obstacle {obstacle}\r\n", cluster.name);
            }
        }
        text + "END\r\n"
    }

    /// The current numbers.
    #[must_use]
    pub fn page(&self, now_us: u64) -> Page {
        let mut numbers = self.numbers(now_us);
        numbers.retain(|(name, ..)| *name != CANARY_MS);
        // All lines of one name stand together.
        numbers.sort_by_key(|(name, ..)| *name);
        let (mut page, mut last) = (Page::new("holdall_invalidate_"), String::new());
        for (name, cluster, value) in numbers {
            let (kind, help) = described(name);
            let (family, value) = exported(name, kind, value);
            if family != last {
                page.family(&family, kind, help);
            }
            if cluster.is_empty() {
                page.sample(&family, &[], value);
            } else {
                page.sample(&family, &[("cluster", &cluster)], value);
            }
            last = family;
        }
        if let Some(group) = self.group.get() {
            page.family("group_info", Kind::Gauge, "The group that it takes turns with; always 1.");
            page.sample("group_info", &[("group", group)], 1);
        }
        if let Some(export_counts) = self.export_counts.get() {
            export_counts.write(&mut page);
        }
        metrics::process(&mut page, "invalidate");
        if self.canary_every().is_some() {
            page.set_prefix("");
            let (name, kind) = ("invalidation_canary_seconds", Kind::Gauge);
            page.family(name, kind, "Age of the newest change that is known to have arrived.");
            for cluster in &self.clusters {
                let age = cluster.canary.age().as_secs_f64();
                page.sample(name, &[("cluster", &cluster.name)], format_args!("{age:.3}"));
            }
        }
        page
    }

    /// False while another invalidator of the group works.
    #[must_use]
    pub fn is_working(&self) -> bool {
        self.is_working.load(Relaxed)
    }

    /// The interval of the canary; none without one, or while its invalidator waits.
    fn canary_every(&self) -> Option<Duration> {
        self.canary_every.get().copied().filter(|_| self.is_working())
    }

    /// The condition of an invalidator that waits to take over: it knows its start position.
    fn standby(&self) -> Vec<Check> {
        let has_position = !self.position.lock().is_empty();
        vec![Check::that("standby", has_position, || {
            "the position of the invalidator that works is not known yet".to_owned()
        })]
    }

    /// The conditions of being ready: the log is followed, and every cluster accepts deletes. An
    /// invalidator that waits for another of its group reports that it is ready to take over.
    #[must_use]
    pub fn ready(&self) -> Vec<Check> {
        if !self.is_working() {
            return self.standby();
        }
        let is_followed = self.source_connected.load(Relaxed);
        let source = Check::that("source", is_followed, || "the log is not followed".to_owned());
        let away = self.clusters.iter().filter(|cluster| !cluster.connected.load(Relaxed));
        let away: Vec<&str> = away.map(|cluster| cluster.name.as_str()).collect();
        let clusters =
            Check::that("clusters", away.is_empty(), || format!("away: {}", away.join(", ")));
        let late = self.late();
        let canary =
            Check::that("canary", late.is_empty(), || format!("late: {}", late.join(", ")));
        let has_room = !self.log_room_short.load(Relaxed);
        let room = Check::that("log_room", has_room, || {
            "the database is about to remove log that was not delivered".to_owned()
        });
        let is_kept = !self.checkpoint_fails.load(Relaxed);
        let checkpoint = Check::that("checkpoint", is_kept, || {
            "the position could not be stored; see the log".to_owned()
        });
        vec![source, clusters, canary, room, checkpoint]
    }

    /// The clusters whose canary is late.
    fn late(&self) -> Vec<&str> {
        let Some(every) = self.canary_every() else { return Vec::new() };
        let late = self.clusters.iter().filter(|cluster| cluster.canary.is_late(every));
        late.map(|cluster| cluster.name.as_str()).collect()
    }

    /// True when no written change arrives in any cluster although the database accepts them and
    /// every router answers: then this process, which is between them, may be stuck.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        let is_still_there =
            |cluster: &ClusterStats| matches!(cluster.canary.obstacle(), Obstacle::StillThere(_));
        self.canary_every().is_some()
            && self.late().len() == self.clusters.len()
            && self.clusters.iter().all(is_still_there)
    }

    /// One line with the ages of the proofs.
    #[must_use]
    pub fn canary_line(&self) -> String {
        let one = |cluster: &ClusterStats| {
            format!("{} {:.1} s", cluster.name, cluster.canary.age().as_secs_f64())
        };
        let ages: Vec<String> = self.clusters.iter().map(one).collect();
        format!("last proven change: {}", ages.join(", "))
    }

    /// The condition of having started: the log was reached.
    #[must_use]
    pub fn started(&self) -> Vec<Check> {
        let has_started = self.source_connects.load(Relaxed) > 0 || !self.is_working();
        vec![Check::that("started", has_started, || "the log was not reached yet".to_owned())]
    }
}

/// A number under the name that Prometheus's conventions require: counters end with `_total`, and
/// times are in seconds.
fn exported(name: &str, kind: Kind, value: u64) -> (String, String) {
    if let Some((base, quantile)) = name.split_once("_us_") {
        let seconds = format!("{}.{:06}", value / 1_000_000, value % 1_000_000);
        return (format!("{base}_{quantile}_seconds"), seconds);
    }
    match name.strip_suffix("_ms") {
        Some(base) => (format!("{base}_seconds"), format!("{}.{:03}", value / 1000, value % 1000)),
        None if kind == Kind::Counter => (format!("{name}_total"), value.to_string()),
        None => (name.to_owned(), value.to_string()),
    }
}

/// The kind and description of a number. Tests assert that every number has its own.
fn described(name: &str) -> (Kind, &'static str) {
    let counter = |help| (Kind::Counter, help);
    let gauge = |help| (Kind::Gauge, help);
    match name {
        "transactions" => counter("Committed transactions read."),
        "keys" => counter("Keys read, each once a transaction."),
        "keys_too_long" => counter("Keys that no server takes."),
        "transactions_on_disk" => counter("Of these, those that were larger than memory's bound."),
        "gaps" => counter("Parts of the log that could not be understood."),
        "source_connects" => counter("Connections made to the database."),
        "source_connected" => gauge("1 while the log is followed."),
        "behind_bytes" => gauge("Bytes of log that were not read yet."),
        "log_room_bytes" => {
            gauge("Log that may be written before what was not delivered is removed.")
        }
        "log_room_short" => gauge("1 when less than a quarter of that room is left."),
        "check_age_ms" => gauge("Age of the last check that found nothing missing in the log."),
        "check_late" => gauge("1 when there was no such check for three intervals."),
        "prepared_transactions" => gauge("Transactions prepared and not ended."),
        "unseen_transactions" => gauge("Transactions with keys that others do not see yet."),
        "checkpoints" => counter("Checkpoints written."),
        "checkpoint_failures" => counter("Checkpoints that could not be written."),
        "panics" => counter("Panics after which the process began again."),
        "working" => gauge("0 while another invalidator of the group works."),
        "lacking" => gauge("1 when it ends because the log lacked changes."),
        "canary_late" => gauge("1 when no change is known to have arrived for two intervals."),
        "canary_proven" => counter("Changes of its own that were seen to arrive."),
        "connected" => gauge("1 while a router of the cluster is connected."),
        "compressed" => gauge("1 while deletes go to that router in blocks of zstd."),
        "delivered" => counter("Keys whose delete was acknowledged."),
        "batches" => counter("Batches acknowledged."),
        "retried" => counter("Batches sent again after an error."),
        "parked" => gauge("Keys that wait because their server refused them."),
        "kept_by_routers" => gauge("Keys that a router keeps for a server that it does not reach."),
        "kept_unwatched" => counter("Kept keys that were too many to be watched."),
        "waiting" => gauge("Keys in memory that are not acknowledged."),
        "flushes" => counter("Flushes delivered."),
        "moved_to_disk" => counter("Moves of a full memory window to the disk."),
        "spooled" => counter("Keys written to the disk."),
        "spool_records" => gauge("Records on the disk that are not delivered."),
        "spool_bytes" => gauge("Bytes on the disk."),
        "spool_failures" => counter("Writes that the disk refused."),
        "lag_ms" => gauge("Age of the oldest change that is not delivered."),
        "monitor_sampled" => counter("Deletes whose keys are read again."),
        "monitor_cached" => counter("Of these, keys that were cached."),
        "monitor_skipped" => counter("Of these, keys given up because too many waited."),
        "monitor_still_stale" => gauge("Old values that the last read still found."),
        "monitor_stale_over_1s" => counter("Old values that stayed for more than a second."),
        _ if name.starts_with("monitor_stale_us") => gauge("How long an old value could be read."),
        _ if name.starts_with("delivery_us") => {
            gauge("Time from reading a transaction to its acknowledgement.")
        }
        _ if name.starts_with("batch_keys") => gauge("Keys of a batch."),
        _ => gauge("A number of the invalidator."),
    }
}

impl ClusterStats {
    fn new(name: String) -> Self {
        Self {
            name,
            connected: AtomicBool::new(false),
            compressed: AtomicBool::new(false),
            delivered: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            deferred: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            kept_unwatched: AtomicU64::new(0),
            kept_us: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            moved_to_disk: AtomicU64::new(0),
            spooled: AtomicU64::new(0),
            spool_records: AtomicU64::new(0),
            spool_bytes: AtomicU64::new(0),
            spool_failures: AtomicU64::new(0),
            committed_us: AtomicU64::new(0),
            oldest_us: AtomicU64::new(0),
            batch_keys: histogram(10_000_000),
            delivery_us: histogram(STALE_US_MAX),
            last_error: Mutex::new(String::new()),
            monitor: MonitorStats {
                sampled: AtomicU64::new(0),
                cached: AtomicU64::new(0),
                skipped: AtomicU64::new(0),
                stale_us: histogram(STALE_US_MAX),
                still_stale: AtomicU64::new(0),
            },
            canary: CanaryStats::default(),
        }
    }

    fn numbers(&self, now_us: u64, silent_ms: u64) -> Vec<(&'static str, u64)> {
        let oldest = older(self.oldest_us.load(Relaxed), self.kept_us.load(Relaxed));
        let waits_ms = if oldest == 0 { 0 } else { now_us.saturating_sub(oldest) / 1000 };
        // Unread changes are at most as old as the silence.
        let lag_ms = waits_ms.max(silent_ms);
        let mut all = vec![
            ("connected", u64::from(self.connected.load(Relaxed))),
            ("compressed", u64::from(self.compressed.load(Relaxed))),
            ("delivered", self.delivered.load(Relaxed)),
            ("batches", self.batches.load(Relaxed)),
            ("retried", self.retried.load(Relaxed)),
            ("parked", self.deferred.load(Relaxed)),
            ("kept_by_routers", self.kept.load(Relaxed)),
            ("kept_unwatched", self.kept_unwatched.load(Relaxed)),
            ("waiting", self.waiting.load(Relaxed)),
            ("flushes", self.flushes.load(Relaxed)),
            ("moved_to_disk", self.moved_to_disk.load(Relaxed)),
            ("spooled", self.spooled.load(Relaxed)),
            ("spool_records", self.spool_records.load(Relaxed)),
            ("spool_bytes", self.spool_bytes.load(Relaxed)),
            ("spool_failures", self.spool_failures.load(Relaxed)),
            ("lag_ms", lag_ms),
        ];
        {
            let batch = self.batch_keys.lock();
            all.push(("batch_keys_p50", batch.value_at_quantile(0.5)));
            all.push(("batch_keys_max", batch.max()));
        }
        {
            let delivery = self.delivery_us.lock();
            all.push(("delivery_us_p50", delivery.value_at_quantile(0.5)));
            all.push(("delivery_us_p99", delivery.value_at_quantile(0.99)));
        }
        let monitor = &self.monitor;
        all.push(("monitor_sampled", monitor.sampled.load(Relaxed)));
        all.push(("monitor_cached", monitor.cached.load(Relaxed)));
        all.push(("monitor_skipped", monitor.skipped.load(Relaxed)));
        all.push(("monitor_still_stale", monitor.still_stale.load(Relaxed)));
        let stale = monitor.stale_us.lock();
        for (name, quantile) in [
            ("monitor_stale_us_p50", 0.5),
            ("monitor_stale_us_p90", 0.9),
            ("monitor_stale_us_p99", 0.99),
            ("monitor_stale_us_p999", 0.999),
        ] {
            all.push((name, stale.value_at_quantile(quantile)));
        }
        all.push(("monitor_stale_us_max", stale.max()));
        all.push(("monitor_stale_over_1s", stale.count_between(1_000_001, STALE_US_MAX)));
        all
    }

    /// Resets the state of the current work, because another invalidator now works.
    pub fn rest(&self) {
        self.connected.store(false, Relaxed);
        self.compressed.store(false, Relaxed);
        for gauge in [
            &self.deferred,
            &self.kept,
            &self.kept_us,
            &self.waiting,
            &self.oldest_us,
            &self.spool_records,
            &self.spool_bytes,
        ] {
            gauge.store(0, Relaxed);
        }
    }

    /// Records a fault; control characters would break the lines of `STAT`.
    pub fn fail(&self, error: &str) {
        *self.last_error.lock() = plain(error);
    }
}

/// A text that does not break a line.
fn plain(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}

#[cfg(test)]
mod tests;
