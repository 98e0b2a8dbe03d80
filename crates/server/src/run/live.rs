//! Settings of a running server: reads files and environment again, and applies changes.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use files::Stamp;
use net::Control;
use options::settings::{self, Given, settings};
use options::{Options, Refusal, stats_settings};

use super::limits;
use crate::admin::tuning::per_mille;
use crate::log::Log;
use crate::shared::{self, Shared};

/// Reads the command line again, with the current files that it names.
pub type RereadSettings = Arc<dyn Fn() -> Result<Settled, Refusal> + Send + Sync>;

/// A command line with its files, resolved.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The options.
    pub options: Options,
    /// The given settings, each once with its effective value.
    pub given: Vec<Given>,
    /// The files that they came from, in their state before they were read.
    pub files: Vec<(PathBuf, Option<Stamp>)>,
}

/// The settings of a running server.
pub(super) struct Live {
    again: RereadSettings,
    shared: Arc<Shared>,
    /// Set once the workers run.
    control: OnceLock<Control>,
    /// The settings in force; those that need a restart keep their values.
    present: Mutex<Present>,
    log: Log,
}

/// The values of settings, by key.
pub(super) type Present = BTreeMap<String, Vec<String>>;

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// The settings of a server with `present` in force, if they can be read again.
    pub(super) fn new(
        again: Option<&RereadSettings>,
        present: &Present,
        shared: &Arc<Shared>,
        log: Log,
    ) -> Option<Arc<Self>> {
        let (again, shared) = (Arc::clone(again?), Arc::clone(shared));
        let present = Mutex::new(present.clone());
        Some(Arc::new(Self { again, shared, control: OnceLock::new(), present, log }))
    }

    /// The workers run from now on.
    pub(super) fn serve(&self, control: Control) {
        // There is only one start.
        let _ = self.control.set(control);
    }

    /// Reads everything again, applies the settings that can change, and names the others. Wrong
    /// settings change nothing. Returns true if every setting could be used.
    ///
    /// # Errors
    ///
    /// Fails if they cannot be read, or are wrong.
    pub(super) fn reload(&self) -> Result<bool, Refusal> {
        let settled = (self.again)()?;
        let wanted = by_key(settled.given);
        let mut present = self.present();
        let mut all_used = true;
        for setting in settings() {
            let (before, now) = (present.get(&setting.key), wanted.get(&setting.key));
            if before == now {
                continue;
            }
            let change = format!(
                "{}: {} -> {}",
                setting.key,
                said(&setting.key, before),
                said(&setting.key, now)
            );
            let Some(live) = setting.live else {
                self.log.warning(format_args!("settings: {change} needs --takeover or a restart"));
                continue;
            };
            match self.apply(live, &settled.options) {
                Ok(()) => {
                    self.log.always(format_args!("settings: {change}"));
                    match now.cloned() {
                        Some(values) => present.insert(setting.key, values),
                        None => present.remove(&setting.key),
                    };
                }
                Err(why) => {
                    self.log.warning(format_args!("settings: not {change}: {why}"));
                    all_used = false;
                }
            }
        }
        Ok(all_used)
    }

    /// The settings in force.
    pub(super) fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, live: settings::Live, options: &Options) -> Result<(), String> {
        use settings::Live as Of;
        let Shared { engine, crawler, .. } = &*self.shared;
        let store = engine.store();
        match live {
            Of::MemoryLimit => {
                store.set_memory_limit(options.memory_bytes).map_err(|error| error.to_string())?;
            }
            Of::ConnLimit => {
                limits::raise_files(options).map_err(|failure| failure.message)?;
                self.shared.set_connections_max(options.connections_max);
                if let Some(control) = self.control.get() {
                    control.set_max_connections(options.connections_max);
                }
            }
            Of::Eviction => {
                store.set_policy(super::policy(options.eviction));
                // Trials of orders run only under `auto`.
                engine.set_sampling(shared::sampling(options));
                self.show(options, &["eviction_policy"]);
            }
            Of::Sampling => {
                engine.set_sampling(shared::sampling(options));
                self.show(options, &["sampling"]);
            }
            Of::Leases => {
                engine.set_leases(shared::leases(options));
                self.show(options, &["lease_interval", "stale_seconds"]);
            }
            Of::Drain => {
                self.shared.set_drain(options.drain);
                self.show(options, &["drain"]);
            }
            Of::SlabAutomove => store.set_automove(options.automove),
            Of::SlabAutomoveRatio => {
                store.set_automove_ratio_per_mille(per_mille(options.automove_ratio));
            }
            Of::TransientTtl => store.set_transient_secs(options.transient_secs),
            Of::LruCrawler => crawler.enable(options.crawler),
            Of::LruCrawlerSleep => crawler.set_sleep_micros(options.crawler_sleep_micros),
            Of::LruCrawlerTocrawl => crawler.set_to_crawl(options.crawler_to_crawl),
            Of::Verbose => self.shared.set_verbosity(options.verbosity.min(2)),
            Of::LogFilter => {
                self.shared.set_log_filter(&options.log_filter);
                self.show(options, &["log_filter"]);
            }
        }
        Ok(())
    }

    /// Makes `stats settings` show these as they are in the options.
    fn show(&self, options: &Options, names: &[&str]) {
        for (name, value) in stats_settings::of(options) {
            if names.contains(&name) {
                self.shared.show_setting(name, value);
            }
        }
    }
}

/// Updates the options of a server with the changes by reloads and commands, in case it serves
/// again.
pub(super) fn carry_over(options: &mut Options, shared: &Shared) {
    for live in settings().into_iter().filter_map(|setting| setting.live) {
        carry_one_over(live, options, shared);
    }
    options.prefix_stats = shared.prefixes.is_on();
}

fn carry_one_over(live: settings::Live, options: &mut Options, shared: &Shared) {
    use settings::Live as Of;
    let Shared { engine, crawler, .. } = shared;
    let store = engine.store();
    match live {
        Of::MemoryLimit => options.memory_bytes = store.memory().limit,
        Of::ConnLimit => options.connections_max = shared.connections_max(),
        Of::Eviction => options.eviction = super::eviction(store.policy()),
        Of::Sampling => options.sampling = engine.is_sampling(),
        Of::Leases => {
            let leases = engine.lease_settings();
            options.lease_interval_secs = leases.interval_secs;
            options.stale_secs = leases.stale_secs;
        }
        Of::Drain => options.drain = shared.drain(),
        Of::SlabAutomove => options.automove = store.automove(),
        Of::SlabAutomoveRatio => {
            options.automove_ratio = f64::from(store.automove_ratio_per_mille()) / 1000.0;
        }
        Of::TransientTtl => options.transient_secs = store.transient_secs(),
        Of::LruCrawler => options.crawler = crawler.is_enabled(),
        Of::LruCrawlerSleep => options.crawler_sleep_micros = crawler.sleep_micros(),
        Of::LruCrawlerTocrawl => options.crawler_to_crawl = crawler.to_crawl(),
        Of::Verbose => options.verbosity = shared.verbosity(),
        Of::LogFilter => options.log_filter = shared.log_filter(),
    }
}

pub(super) fn by_key(given: Vec<Given>) -> Present {
    given.into_iter().map(|given| (given.key, given.values)).collect()
}

fn said(key: &str, values: Option<&Vec<String>>) -> String {
    values.map_or_else(|| "the default".to_owned(), |values| settings::shown(key, values, ","))
}
