//! The configuration of a running proxy: the first one, changes of its files and servers, and the
//! saved copy.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use discovery::Discovery;
use routeconf::ast::PoolAddress;
use routes::{Plan, Target};
use signal_hook::iterator::Handle;
use thiserror::Error;

use crate::config::{ConfigError, Configuration, Reader};
use crate::dump::{Dump, DumpError, Snapshot};
use crate::options::{Options, Source, Validate};
use crate::seen::{Seen, look_at};
use crate::shared::{Shared, unix_secs};
use crate::sources::Away;
use crate::stats::files::Counted;

/// The reason why there is no first configuration.
#[derive(Debug, Error)]
pub(crate) enum FirstError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The saved one cannot be used either.
    #[error("{config}\n{kept}")]
    Kept { config: Box<ConfigError>, kept: Box<KeptError> },
}

/// The reason why the saved configuration cannot be used.
#[derive(Debug, Error)]
pub(crate) enum KeptError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Dump(#[from] DumpError),
}

/// The first configuration, and whether it is the saved one. Adds the files of the present one to
/// `seen`, whether it is usable or not.
pub(crate) fn first(
    reader: &Reader<'_>,
    seen: &mut Seen,
    log: &impl Fn(&str),
) -> Result<(Configuration, bool), FirstError> {
    let options = reader.options;
    let config = match reader.read(None, seen) {
        Ok(configuration) => {
            if options.validate_config != Some(Validate::Exit) {
                keep(options, &configuration.snapshot, log);
            }
            return Ok((configuration, false));
        }
        Err(config) => config,
    };
    // A check of the configuration is about the present one only.
    let dump = Dump::of(options).filter(|_| options.validate_config.is_none());
    let Some(dump) = dump else { return Err(config.into()) };
    let (configuration, age) = match last_good(reader, &dump) {
        Ok(last) => last,
        Err(kept) => {
            let (config, kept) = (Box::new(config), Box::new(kept));
            return Err(FirstError::Kept { config, kept });
        }
    };
    log(&format!("warning: {config}"));
    log(&format!(
        "warning: the configuration is the last good one, in use {} s ago, of {}",
        age.as_secs(),
        dump.path.display()
    ));
    Ok((configuration, true))
}

/// The saved configuration, and the time since its last use.
fn last_good(reader: &Reader<'_>, dump: &Dump) -> Result<(Configuration, Duration), KeptError> {
    let (kept, age) = dump.last()?;
    Ok((reader.read_kept(kept)?, age))
}

/// Saves a loaded configuration, if enabled.
fn keep(options: &Options, snapshot: &Snapshot, log: &(impl Fn(&str) + ?Sized)) {
    let Some(dump) = Dump::of(options) else { return };
    if let Err(error) = dump.save(snapshot) {
        log(&format!("warning: the configuration is not kept: {error}"));
    }
}

/// The configuration's files before they are read. Its imports are not known yet.
pub(crate) fn seen_before(source: &Source, options: &Options) -> Seen {
    let main = match source {
        Source::File(path) => Some(path),
        Source::Text(_) => None,
    };
    let all = main.into_iter().chain(&options.runtime_vars_file);
    let all = all.chain(&options.tls.server_auth_file).map(|path| path.display().to_string());
    look_at(&all.collect::<Vec<_>>())
}

/// The inputs that may change while the proxy runs.
pub(crate) struct Watched {
    pub(crate) source: Source,
    pub(crate) tls: Option<upstream::Tls>,
    pub(crate) discovery: Arc<Discovery>,
    /// The unavailable sources.
    pub(crate) away: Away,
    pub(crate) counted: Counted,
    /// The watched files.
    pub(crate) seen: Seen,
    pub(crate) is_dynamic: bool,
    /// The plan and the servers of the configuration in use.
    pub(crate) plan: Arc<Plan>,
    pub(crate) targets: Vec<Target>,
    pub(crate) listens: Vec<PoolAddress>,
}

/// Loads the configuration whenever the file has changed, and when `asked` reports that the sources
/// of its servers have answered. An invalid one is reported, and the old one stays. It is retried,
/// since an unreadable file may become readable without a change.
pub(crate) fn reload(
    shared: &Shared,
    mut watched: Watched,
    asked: &Receiver<()>,
    end: &Handle,
    log: &(impl Fn(&str) + ?Sized),
) {
    let is_text = matches!(watched.source, Source::Text(_));
    let options = &shared.options;
    let has_file = options.runtime_vars_file.is_some() || options.tls.server_auth_file.is_some();
    if is_text && !has_file && !watched.is_dynamic {
        return;
    }
    let period = Duration::from_millis(options.file_observer_poll_period_ms);
    let (mut tried, mut told, mut is_refused) = (Instant::now(), String::new(), false);
    watched.away.count(shared);
    while !end.is_closed() {
        thread::sleep(period);
        let now = look_at(watched.seen.keys());
        let is_changed = now != watched.seen;
        let is_asked = asked.try_iter().count() > 0 && watched.is_dynamic;
        let is_retry = is_refused && tried.elapsed() >= RETRY_EVERY;
        if !is_changed && !is_asked && !is_retry {
            continue;
        }
        watched.seen = now;
        tried = Instant::now();
        let taken = take(shared, &mut watched, is_changed || is_refused);
        let is_complete = watched.away.report(&watched.discovery, log);
        if is_asked {
            watched.away.count(shared);
        }
        shared.config.read.note(taken.is_ok() && is_complete);
        is_refused = taken.is_err() && (is_changed || is_refused);
        match taken {
            Ok(None) => told.clear(),
            Ok(Some((warnings, snapshot))) => {
                told.clear();
                keep(&shared.options, &snapshot, log);
                warnings.iter().for_each(|warning| log(warning));
                log("the configuration has been replaced");
            }
            // A source that stays unavailable is reported once.
            Err(error) if !is_changed && error.to_string() == told => {}
            Err(error) => {
                // Relaxed, here and below: counts and times, which order nothing else.
                shared.config.failures.fetch_add(1, Ordering::Relaxed);
                log(&format!("warning: the configuration stays as it was: {error}"));
                told = error.to_string();
            }
        }
    }
}

/// The interval of retries of a refused configuration.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// Reads the configuration again, and loads it if it differs. Returns its warnings then, and the
/// texts it was read from.
fn take(
    shared: &Shared,
    watched: &mut Watched,
    is_changed: bool,
) -> Result<Option<(Vec<String>, Snapshot)>, ConfigError> {
    shared.config.attempts.fetch_add(1, Ordering::Relaxed);
    shared.config.last_attempt.store(unix_secs(), Ordering::Relaxed);
    let Watched { source, tls, discovery, counted, .. } = &*watched;
    let (options, tls) = (&shared.options, tls.as_ref());
    let mut seen = seen_before(source, options);
    let reader = Reader { source, options, tls, discovery, counted };
    let read = reader.read(Some(&watched.plan), &mut seen).and_then(|read| {
        let is_same = read.listens == watched.listens;
        if is_same { Ok(read) } else { Err(ConfigError::ListensMoved) }
    });
    let read = match read {
        Ok(read) => read,
        Err(error) => {
            // A fix may be in any of these files, and the old ones may return.
            seen.append(&mut watched.seen);
            watched.seen = seen;
            return Err(error);
        }
    };
    if !is_changed && read.is_same(&watched.plan, &watched.targets) {
        return Ok(None);
    }
    watched.seen = seen;
    watched.is_dynamic = read.is_dynamic;
    watched.plan = read.plan;
    let before = std::mem::replace(&mut watched.targets, read.targets.clone());
    if let Some(deletes) = shared.deletes.get() {
        // A new server gets requests only once its pending deletes are known; a removed one gets
        // them until then.
        let is_gone = |one: &Target| read.targets.iter().all(|other| other.name != one.name);
        let both = before.into_iter().filter(is_gone).chain(read.targets.clone());
        deletes.set_targets(both.collect());
        shared.replace(read.read);
        deletes.set_targets(read.targets);
    } else {
        shared.replace(read.read);
    }
    Ok(Some((read.warnings, read.snapshot)))
}
