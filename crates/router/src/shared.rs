//! State that the workers share: options, the present configuration, and the servers' health.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use discovery::Member;
use hostport::without_login;
use metrics::LastReload;
use net::TlsAcceptor;
use routes::{Deletes, Tree};
use upstream::{Address, Registry, Upstream};
use watch::hub::Watchers;

use crate::budget::Budget;
use crate::config_info::ConfigInfo;
use crate::history::History;
use crate::latency::RecentAnswers;
use crate::listeners::Listeners;
use crate::logins::Logins;
use crate::options::Options;

/// Maximum bytes of unsent lines of a watcher, as in a server.
const WATCHER_BYTES: usize = 256 * 1024;

/// Makes a tree with one worker's servers.
pub(crate) type Build = Arc<dyn Fn(&mut Upstream) -> Tree + Send + Sync>;

/// Names of servers, by their addresses.
pub(crate) type Names = BTreeMap<Address, String>;

/// A parsed configuration.
#[derive(Clone)]
pub(crate) struct Current {
    /// The number of the configuration, from 1.
    pub(crate) generation: u64,
    pub(crate) build: Build,
    /// The reply to `config get cluster`, if any.
    pub(crate) cluster: Option<Arc<[Member]>>,
    /// Servers as the configuration writes them, by their addresses.
    pub(crate) names: Arc<Names>,
    /// The text, as it was read.
    pub(crate) text: Arc<str>,
    pub(crate) info: Arc<ConfigInfo>,
    /// The time of loading.
    pub(crate) since: Instant,
}

/// The results of reading a configuration.
pub(crate) struct Read {
    pub(crate) build: Build,
    pub(crate) cluster: Option<Arc<[Member]>>,
    pub(crate) names: Arc<Names>,
    pub(crate) text: Arc<str>,
    pub(crate) info: Arc<ConfigInfo>,
}

impl Read {
    fn taken(self, generation: u64, since: Instant) -> Current {
        let Self { build, cluster, names, text, info } = self;
        Current { generation, build, cluster, names, text, info, since }
    }
}

/// Options, configuration and servers' health, shared by all workers.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) version: &'static str,
    pub(crate) registry: Registry,
    /// The account of clients' memory.
    pub(crate) budget: Arc<Budget>,
    pub(crate) control: OnceLock<net::Control>,
    /// The spooler of failed deletes, if they are kept.
    pub(crate) deletes: OnceLock<Deletes>,
    /// The counts of exports, if enabled.
    pub(crate) export_counts: OnceLock<Arc<telemetry::ExportCounts>>,
    pub(crate) started: Instant,
    /// The command line, for display.
    pub(crate) arguments: String,
    pub(crate) history: History,
    pub(crate) recent: RecentAnswers,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) config: ConfigState,
    pub(crate) listeners: Listeners,
    /// The users of clients, if they must log in.
    pub(crate) logins: Option<Arc<Logins>>,
    /// The TLS settings of clients' connections, if any port uses TLS.
    pub(crate) acceptor: OnceLock<Arc<TlsAcceptor>>,
    /// The outcome of the last reload of certificates, if there are any.
    pub(crate) certificates: OnceLock<LastReload>,
    /// Verbosity of stderr: at 1, every server that is knocked out or comes back is logged.
    pub(crate) verbosity: AtomicU32,
    generation: AtomicU64,
    current: Mutex<Current>,
}

/// The outcomes of the last readings of the configuration, for the statistics.
#[derive(Debug, Default)]
pub(crate) struct ConfigState {
    pub(crate) failures: AtomicU64,
    pub(crate) attempts: AtomicU64,
    /// The first one was the last good one, from disk.
    pub(crate) from_disk: AtomicU64,
    /// Unix seconds.
    pub(crate) last_attempt: AtomicU64,
    /// Unix seconds.
    pub(crate) last_success: AtomicU64,
    pub(crate) read: LastReload,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Shared {
    /// `is_kept`: the configuration is the last good one, from disk.
    pub(crate) fn new(
        options: Options,
        logins: Option<Logins>,
        listeners: Listeners,
        read: Read,
        is_kept: bool,
    ) -> Self {
        let (now, registry) = (Instant::now(), Registry::default());
        let config = ConfigState::default();
        config.attempts.store(1, Ordering::Relaxed);
        config.from_disk.store(u64::from(is_kept), Ordering::Relaxed);
        config.failures.store(u64::from(is_kept), Ordering::Relaxed);
        config.read.note(!is_kept);
        config.last_attempt.store(unix_secs(), Ordering::Relaxed);
        config.last_success.store(unix_secs(), Ordering::Relaxed);
        Self {
            verbosity: AtomicU32::new(options.verbosity),
            budget: Arc::new(Budget::new(options.client_memory_max)),
            options,
            // One word, since libmemcached reads only one.
            version: env!("CARGO_PKG_VERSION"),
            history: History::new(&registry),
            recent: RecentAnswers::new(now),
            registry,
            arguments: arguments(std::env::args_os().skip(1)),
            control: OnceLock::new(),
            deletes: OnceLock::new(),
            export_counts: OnceLock::new(),
            started: now,
            watchers: Watchers::new(WATCHER_BYTES),
            config,
            listeners,
            logins: logins.map(Arc::new),
            acceptor: OnceLock::new(),
            certificates: OnceLock::new(),
            generation: AtomicU64::new(1),
            current: Mutex::new(read.taken(1, now)),
        }
    }

    /// The number of the present configuration.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Relaxed: the data for the number is read under the lock.
        self.generation.load(Ordering::Relaxed)
    }

    pub(crate) fn current(&self) -> Current {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives workers this configuration from their next turn on, which is now.
    pub(crate) fn replace(&self, read: Read) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let generation = current.generation + 1;
        *current = read.taken(generation, Instant::now());
        self.generation.store(generation, Ordering::Relaxed);
        self.config.last_success.store(unix_secs(), Ordering::Relaxed);
        // An idle worker would keep the servers of the old one.
        if let Some(control) = self.control.get() {
            control.wake();
        }
    }
}

/// The command line as one line: spaces replace bytes that a line cannot contain.
fn arguments(words: impl Iterator<Item = OsString>) -> String {
    let shown = |word: OsString| {
        let word = word.to_string_lossy();
        // Other words name the file of a secret, not the secret.
        if word.contains("://") { without_login(&word).into_owned() } else { word.into_owned() }
    };
    let words: Vec<String> = words.map(shown).collect();
    words.join(" ").replace(char::is_control, " ")
}

/// Seconds since 1970.
pub(crate) fn unix_secs() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_one_line_without_passwords() {
        let words = ["-p", "5000", "--otlp", "http://user:secret@c:4318", "--root=/a@b", "x\ny"];
        let line = "-p 5000 --otlp http://***@c:4318 --root=/a@b x y";
        assert_eq!(arguments(words.into_iter().map(OsString::from)), line);
        let word = "--otlp=https://user:secret@c";
        assert_eq!(arguments([word.into()].into_iter()), "--otlp=https://***@c");
    }
}
