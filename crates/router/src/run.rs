//! From options to a running proxy, and to its end.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use client::{Core, Spooler, Target, Upstream, host_id};
use discovery::Discovery;
use net::{Control, TlsDoor, TlsMode};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::config;
use crate::doors::listeners;
use crate::front::Front;
use crate::keeping;
use crate::metrics;
use crate::observer;
use crate::options::{Guards, Options, Source, Validate};
use crate::shared::{Shared, unix_secs};
use crate::stats::files::Files;

/// How long clients have, at the end, for the replies to what was read from them.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// mcrouter's exit status for what another try may mend.
const EXIT_TRANSIENT: u8 = 2;

/// mcrouter's exit status for what it may not.
const EXIT_FATAL: u8 = 3;

/// Why the proxy did not start, or did not end well.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Failure {
    /// The exit status.
    pub status: u8,
    /// A sentence for stderr.
    pub message: String,
}

impl Failure {
    fn fatal(message: impl Into<String>) -> Self {
        Self { status: EXIT_FATAL, message: message.into() }
    }

    fn transient(what: &str, error: &io::Error) -> Self {
        Self { status: EXIT_TRANSIENT, message: format!("{what}: {error}") }
    }
}

/// Runs a proxy until a signal ends it; `log` takes a line for people. `started` is told the proxy's addresses.
///
/// # Errors
///
/// Whatever keeps it from starting; nothing is left bound or running then.
pub fn run(
    options: Options,
    log: impl Fn(&str) + Send + Sync + 'static,
    started: impl FnOnce(&Control),
) -> Result<(), Failure> {
    let Some(source) = options.source() else {
        return Err(Failure::fatal("a configuration is missing: --config or -f"));
    };
    let before = seen_before(&source);
    let text = config::read(&source).map_err(Failure::fatal)?;
    let discovery = Discovery::new(options.discovery_dir.clone());
    let guards = options.tls.open().map_err(Failure::fatal)?;
    let configuration = config::understand(&text, &source, &options, &guards, &discovery)
        .map_err(Failure::fatal)?;
    configuration.warnings.iter().for_each(|warning| log(warning));
    if options.validate_config == Some(Validate::Exit) {
        return Ok(());
    }
    let door = door(&options).map_err(Failure::fatal)?;
    let (listen, doors) = listeners(&options, &configuration.listens).map_err(Failure::fatal)?;
    let sockets = listen.bind().map_err(|error| Failure::transient("cannot listen", &error))?;
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|error| Failure::transient("cannot catch signals", &error))?;
    let config = net::Config {
        workers: options.num_proxies,
        max_connections: options.max_conns,
        tls: door.clone(),
        ..net::Config::default()
    };
    let shared = Arc::new(Shared::new(options, doors, configuration.read));
    let log = Arc::new(log);
    let spooler = {
        let log = Arc::clone(&log);
        keep_deletes(&shared, configuration.targets.clone(), move |line: &str| log(line))?
    };
    let handle = {
        let (shared, log) = (Arc::clone(&shared), Arc::clone(&log));
        net::start(sockets, &config, Arc::new(net::Unbudgeted), move |index, _| {
            let (front, log) = (front(&shared, index), Arc::clone(&log));
            front.core.set_log(move |line| log(line));
            front
        })
        .map_err(|error| Failure::transient("cannot start", &error))?
    };
    // Nobody else sets it.
    let _ = shared.control.set(handle.control().clone());
    if let Some(address) = shared.options.metrics {
        let bound = metrics::start(&shared, address)
            .map_err(|error| Failure::transient("cannot listen for --metrics", &error))?;
        log(&format!("metrics on http://{bound}/metrics"));
    }
    started(handle.control());
    let watched = Watched {
        source,
        guards: guards.clone(),
        discovery,
        files: configuration.files,
        seen: before,
        is_dynamic: configuration.is_dynamic,
        targets: configuration.targets,
        listens: configuration.listens,
    };
    let certificates = Certificates { door, servers: guards.tls };
    let control = handle.control().clone();
    let watcher =
        watch(&shared, watched, signals, certificates, control, move |line: &str| log(line))
            .map_err(|error| Failure::transient("cannot start", &error))?;
    handle.join();
    watcher.close();
    // Everything that was answered is written.
    drop(spooler);
    Ok(())
}

/// Keeps failed deletes, if that is wanted; what waits for these servers is known when this is back.
fn keep_deletes(
    shared: &Shared,
    targets: Vec<Target>,
    log: impl Fn(&str) + Send + 'static,
) -> Result<Option<Spooler>, Failure> {
    let spooler = keeping::start(&shared.options, shared.registry.clone(), targets, log);
    let spooler = spooler.map_err(|error| Failure { status: EXIT_TRANSIENT, message: error })?;
    if let Some(spooler) = &spooler {
        // Nobody else sets it.
        let _ = shared.deletes.set(spooler.deletes().clone());
    }
    Ok(spooler)
}

/// What makes the TLS sessions of clients; `None` when no port asks for it.
fn door(options: &Options) -> Result<Option<Arc<TlsDoor>>, String> {
    if options.ssl_ports.is_empty() {
        return Ok(None);
    }
    let Some(tls) = options.tls.listener() else {
        return Err("--ssl-port needs --pem-cert-path and --pem-key-path".to_owned());
    };
    let count = |ports: &[u16]| ports.len() * options.listen_addresses.len();
    let mut modes = vec![TlsMode::Plain; count(options.plain_ports())];
    modes.resize(modes.len() + count(&options.ssl_ports), TlsMode::Standard);
    TlsDoor::open(tls, modes).map(|door| Some(Arc::new(door)))
}

/// What is read again by SIGHUP.
struct Certificates {
    door: Option<Arc<TlsDoor>>,
    servers: Option<client::Tls>,
}

impl Certificates {
    fn reload(&self, log: &impl Fn(&str)) {
        let door = self.door.as_ref().map(|door| door.reload());
        let servers = self.servers.as_ref().map(client::Tls::reload);
        for result in door.into_iter().chain(servers) {
            match result {
                Ok(()) => log("the certificates have been read again"),
                Err(error) => log(&format!("the certificates stay as they were: {error}")),
            }
        }
    }
}

/// A worker's front.
#[expect(clippy::expect_used, reason = "without a descriptor for a poller nothing can be served")]
fn front(shared: &Arc<Shared>, index: usize) -> Front {
    let current = shared.current();
    let worker = u32::try_from(index).unwrap_or(0);
    let upstream = Upstream::new(worker, shared.registry.clone(), Instant::now());
    let mut upstream = upstream.expect("a descriptor for the worker's poller");
    if let Some(window) = shared.options.window {
        upstream.set_window_with(window, shared.options.routing.waiting());
    }
    let seed = RandomState::new().build_hasher().finish();
    let core = Core::new(upstream, host_id(), seed, |upstream| (current.build)(upstream));
    let core = core.expect("a descriptor for the worker's poller");
    if let Some(deletes) = shared.deletes.get() {
        core.keep_deletes(deletes.clone()).expect("a descriptor for the worker's mailbox");
    }
    Front::new(core, Arc::clone(shared), current.generation)
}

/// Waits for signals, and looks for changes of the configuration's file in between.
fn watch(
    shared: &Arc<Shared>,
    watched: Watched,
    mut signals: Signals,
    certificates: Certificates,
    control: Control,
    log: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<signal_hook::iterator::Handle> {
    let handle = signals.handle();
    let log = Arc::new(log);
    let reload = {
        let (shared, handle, log) = (Arc::clone(shared), handle.clone(), Arc::clone(&log));
        move || reload(&shared, watched, &handle, &*log)
    };
    let files = Files::open(&shared.options).map_err(io::Error::other)?;
    let is_over = {
        let handle = handle.clone();
        move || handle.is_closed()
    };
    let tell = Arc::clone(&log);
    observer::start(shared, files, is_over, move |line: &str| tell(line))?;
    if !shared.options.disable_reload_configs {
        thread::Builder::new().name("config".to_owned()).spawn(reload)?;
    }
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut is_ending = false;
        for signal in signals.forever() {
            match signal {
                SIGHUP => certificates.reload(&*log),
                _ if is_ending => control.stop(),
                _ => {
                    control.drain(DRAIN_PATIENCE);
                    is_ending = true;
                }
            }
        }
    })?;
    Ok(handle)
}

/// What tells one content of a file from another.
type Stamp = (SystemTime, u64, u64);

/// Files as they were before they were read: what changes while they are read is a change.
type Seen = BTreeMap<String, Option<Stamp>>;

fn look_at(files: &[String]) -> Seen {
    let stamp = |file: &String| {
        let data = std::fs::metadata(file).ok()?;
        Some((data.modified().ok()?, data.len(), data.ino()))
    };
    files.iter().map(|file| (file.clone(), stamp(file))).collect()
}

/// The configuration's file before it is read for the first time. Those that it imports are not known yet.
fn seen_before(source: &Source) -> Seen {
    match source {
        Source::File(path) => look_at(&[path.display().to_string()]),
        Source::Text(_) => Seen::new(),
    }
}

/// What may change while the proxy runs.
struct Watched {
    source: Source,
    guards: Guards,
    discovery: Discovery,
    files: Vec<String>,
    seen: Seen,
    is_dynamic: bool,
    targets: Vec<Target>,
    listens: Vec<String>,
}

/// Takes the file's configuration whenever the file has changed, and whenever its servers are others; one that is wrong is told of, and the
/// old one stays. A file of which is not known how it was before it was read counts as changed.
fn reload(
    shared: &Shared,
    mut watched: Watched,
    end: &signal_hook::iterator::Handle,
    log: &(impl Fn(&str) + ?Sized),
) {
    let is_fixed = shared.options.runtime_vars_file.is_none() && !watched.is_dynamic;
    if matches!(watched.source, Source::Text(_)) && is_fixed {
        return;
    }
    let period = Duration::from_millis(shared.options.file_observer_poll_period_ms);
    let asks_every = Duration::from_millis(shared.options.discovery_period_ms);
    let (mut asked, mut told) = (Instant::now(), String::new());
    while !end.is_closed() {
        thread::sleep(period);
        let now = look_at(&watched.files);
        let is_changed = now != watched.seen;
        let is_due = watched.is_dynamic && asked.elapsed() >= asks_every;
        if !is_changed && !is_due {
            continue;
        }
        watched.seen = now;
        asked = Instant::now();
        match take(shared, &mut watched, is_changed) {
            Ok(None) => told.clear(),
            Ok(Some(warnings)) => {
                told.clear();
                warnings.iter().for_each(|warning| log(warning));
                log("the configuration has been replaced");
            }
            // A source that stays away is told of once.
            Err(error) if !is_changed && error == told => {}
            Err(error) => {
                shared.config.failures.fetch_add(1, Ordering::Relaxed);
                log(&format!("the configuration stays as it was: {error}"));
                told = error;
            }
        }
    }
}

/// Reads the configuration again, and takes it if it is another. Returns what its author should know then.
fn take(
    shared: &Shared,
    watched: &mut Watched,
    is_changed: bool,
) -> Result<Option<Vec<String>>, String> {
    shared.config.attempts.fetch_add(1, Ordering::Relaxed);
    shared.config.last_attempt.store(unix_secs(), Ordering::Relaxed);
    let text = config::read(&watched.source)?;
    let (guards, discovery) = (&watched.guards, &watched.discovery);
    let read = config::understand(&text, &watched.source, &shared.options, guards, discovery)?;
    if !is_changed && read.targets == watched.targets {
        return Ok(None);
    }
    if read.listens != watched.listens {
        return Err("where pools listen cannot change while the proxy runs".to_owned());
    }
    watched.files = read.files;
    watched.seen.retain(|file, _| watched.files.contains(file));
    watched.is_dynamic = read.is_dynamic;
    let before = std::mem::replace(&mut watched.targets, read.targets.clone());
    if let Some(deletes) = shared.deletes.get() {
        // Who joins is asked only when it is known what waits for it; who leaves is asked until then.
        let is_gone = |one: &Target| read.targets.iter().all(|other| other.0 != one.0);
        let both = before.into_iter().filter(is_gone).chain(read.targets.clone());
        deletes.set_targets(both.collect());
        shared.replace(read.read);
        deletes.set_targets(read.targets);
    } else {
        shared.replace(read.read);
    }
    Ok(Some(read.warnings))
}
