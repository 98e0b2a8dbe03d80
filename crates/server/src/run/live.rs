//! Settings of a running server: on SIGHUP files and environment are read again, and what can
//! change does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use net::Control;
use options::settings::{Given, Setting, settings};
use options::{Options, Refusal};

use super::limits;
use crate::admin::tuning::per_mille;
use crate::log::Log;
use crate::shared::Shared;

/// Reads the command line again, with the files that it names as they are now.
pub type Again = Arc<dyn Fn() -> Result<Settled, Refusal> + Send + Sync>;

/// A command line with its files, resolved.
#[derive(Clone, Debug)]
pub struct Settled {
    /// The options.
    pub options: Options,
    /// The settings that were given, each once with what counts.
    pub given: Vec<Given>,
}

/// The settings of a server that runs.
pub(super) struct Live {
    again: Again,
    shared: Arc<Shared>,
    /// There once the workers run.
    control: OnceLock<Control>,
    /// What the server goes by; what needs another start stays as it was.
    present: Mutex<BTreeMap<String, Vec<String>>>,
    log: Log,
}

impl fmt::Debug for Live {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Live").finish_non_exhaustive()
    }
}

impl Live {
    /// The settings of a server that was started by `given`, if they can be read again.
    pub(super) fn new(
        again: Option<&Again>,
        given: &[Given],
        shared: &Arc<Shared>,
        log: Log,
    ) -> Option<Arc<Self>> {
        let (again, shared) = (Arc::clone(again?), Arc::clone(shared));
        let present = Mutex::new(by_key(given.to_vec()));
        Some(Arc::new(Self { again, shared, control: OnceLock::new(), present, log }))
    }

    /// The workers run from now on.
    pub(super) fn serve(&self, control: Control) {
        // There is one start.
        let _ = self.control.set(control);
    }

    /// Reads everything again, takes over what can change, and names what cannot. What is wrong
    /// changes nothing.
    pub(super) fn reload(&self) {
        let settled = match (self.again)() {
            Ok(settled) => settled,
            Err(refusal) => {
                let why = refusal.message;
                self.log.warning(format_args!("settings: as they were, because {why}"));
                return;
            }
        };
        let wanted = by_key(settled.given);
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let known = settings();
        for setting in &known {
            let (before, now) = (present.get(&setting.key), wanted.get(&setting.key));
            if before == now {
                continue;
            }
            let change = format!("{}: {} -> {}", setting.key, said(before), said(now));
            if !setting.is_live {
                self.log.warning(format_args!("settings: {change} needs --takeover or a restart"));
                continue;
            }
            match self.apply(setting, &settled.options) {
                Ok(()) => {
                    self.log.always(format_args!("settings: {change}"));
                    match now.cloned() {
                        Some(values) => present.insert(setting.key.clone(), values),
                        None => present.remove(&setting.key),
                    };
                }
                Err(why) => self.log.warning(format_args!("settings: not {change}: {why}")),
            }
        }
    }

    fn apply(&self, setting: &Setting, options: &Options) -> Result<(), String> {
        let store = self.shared.engine.store();
        match setting.key.as_str() {
            "memory_limit" => {
                store.set_memory_limit(options.memory_bytes).map_err(|error| error.to_string())?;
            }
            "conn_limit" => {
                limits::raise_files(options).map_err(|failure| failure.message)?;
                self.shared.set_connections_max(options.connections_max);
                if let Some(control) = self.control.get() {
                    control.set_max_connections(options.connections_max);
                }
            }
            "slab_automove" => store.set_automove(options.automove),
            "slab_automove_ratio" => {
                store.set_automove_ratio_per_mille(per_mille(options.automove_ratio));
            }
            "transient_ttl" | "temporary_ttl" => store.set_transient_secs(options.transient_secs),
            "lru_crawler" => self.shared.crawler.enable(options.crawler),
            "lru_crawler_sleep" => {
                self.shared.crawler.set_sleep_micros(options.crawler_sleep_micros);
            }
            "lru_crawler_tocrawl" => self.shared.crawler.set_to_crawl(options.crawler_to_crawl),
            "verbose" => self.shared.set_verbosity(options.verbosity.min(2)),
            "log_filter" => logging::set_filter(&options.log_filter),
            other => return Err(format!("{other} cannot change while the server runs")),
        }
        Ok(())
    }
}

fn by_key(given: Vec<Given>) -> BTreeMap<String, Vec<String>> {
    given.into_iter().map(|given| (given.key, given.values)).collect()
}

fn said(values: Option<&Vec<String>>) -> String {
    values.map_or_else(|| "the default".to_owned(), |values| values.join(","))
}
