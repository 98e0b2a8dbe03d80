//! Starts a server from its options, and ends it.
//!
//! ```text
//!     limits -> bind TCP, UDP -> drop rights -> bind unix socket -> store -> background -> threads
//!         -> ready
//!     SIGTERM -> accept no more, answer what was read, close -> threads end
//!         -> memory file in order -> pid file removed
//! ```
//!
//! The order matters. Low ports need rights, so they are bound before the rights are dropped. The
//! unix socket and the pid file belong to the user that the server runs as, so they come after. All
//! steps that can fail come before the process goes to the background, where stderr is not read.

mod background;
mod cleaner;
mod confine;
mod findings;
mod limits;
mod listeners;
mod live;
mod memory;
mod operators;
mod pace;
mod pid_file;
mod privileges;
mod reload;
mod sampler;
mod signals;
mod starting;
mod takeover;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use net::{Control, Inherited, Sockets};
use options::{Affinity, EXIT_USAGE, Eviction, Options, Style};
use rustix::process::{Uid, geteuid};
use store::Store;

use crate::admin::tuning::per_mille;
use crate::clock::Clock;
use crate::entry::{self, Entry};
use crate::log::Log;
use crate::shared::Shared;
use cleaner::CleanerThread;
pub use findings::{Finding, findings};
use live::{Live, Present};
pub use live::{RereadSettings, Settled};
use operators::Shown;
use pid_file::PidFile;
use reload::{Reload, Seen, Watching};
use signals::Caught;
use starting::Starting;
use takeover::{HandedOver, Predecessor, SuccessorListener};

/// The reason why a server did not start, or failed to end properly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit status, memcached's if it has one.
    pub status: u8,
    /// A sentence for stderr. It starts with the faulty flag or file.
    pub message: String,
    /// Advice.
    pub hint: Option<&'static str>,
}

/// Runs a server until a signal or the `shutdown` command ends it. With `-d` the calling process
/// ends here, and its child continues.
///
/// # Errors
///
/// A [`Failure`] for each fault that prevents the start: nothing is left bound or running then.
pub fn run(options: Options) -> Result<(), Failure> {
    run_by(Settled { options, given: Vec::new(), files: Vec::new() }, None)
}

/// Starts the log of this process, with warnings about the options.
pub fn tell(options: &Options, warnings: &[String]) {
    let log = Log::new(options);
    log.start(options);
    warnings.iter().for_each(|warning| log.warning(format_args!("{warning}")));
}

/// [`run`]s a server that reads its settings with `again` on SIGHUP, and when a file changes.
///
/// # Errors
///
/// Those of [`run`].
pub fn run_by(settled: Settled, again: Option<RereadSettings>) -> Result<(), Failure> {
    let Settled { mut options, given, files } = settled;
    // The files that it has read again are those of `settled`, or later ones.
    let hangups = Caught::hangups()?;
    let log = Log::new(&options);
    log.start(&options);
    let config = store_config(&options);
    let exports = operators::exports(&options)?;
    let console = operators::console(&options)?;
    let identity = privileges::identity(&options, &log)?;
    let user = identity.as_ref().map_or_else(geteuid, |user| Uid::from_raw(user.uid.as_raw()));
    let (predecessor, mut inherited) = predecessor(&options, &config, user)?;
    listeners::activate(&mut options, &mut inherited, &log)?;
    limits::raise(&options)?;
    // First, so that clients can get the old address of the metrics.
    let metrics = operators::bind(&options, &mut inherited)?;
    let (mut sockets, tls_modes) = listeners::bind_network(&options, &mut inherited)?;
    entry::warn_of_open_listeners(&options, &sockets, &tls_modes, &log);
    let seen = Seen::new(&options, &files);
    let entry = Entry::open(&options, tls_modes, &log)
        .map_err(|error| Failure::usage(error.to_string()).hint(FILES_HINT))?;
    privileges::assume(&mut options, identity, &log)?;
    listeners::bind_unix(&options, &mut sockets, &mut inherited)?;
    listeners::give_up_unclaimed(inherited, &mut sockets, &log)?;
    let cores = cores(&options)?;
    // With a predecessor, every step that can fail comes before it stops serving, and it waits for
    // this process.
    if options.daemon && predecessor.is_some() {
        background::enter(&options)?;
    }
    let (mut store, mut clock) = match &predecessor {
        None => {
            let _starting = starting(&options, metrics.as_ref())?;
            memory::open(&options, config.clone(), &log)?
        }
        Some(predecessor) => take_over(predecessor, &options, &config, &sockets, &log)
            .inspect_err(|failure| refuse(&options, predecessor, failure))?,
    };
    if options.daemon && predecessor.is_none() {
        background::enter(&options)?;
    }
    // A process that waits for the file of the ports may end the server from now on.
    let mut signals = hangups.ends()?;
    listeners::write_ports(&options, &sockets)?;
    // Before the filters of system calls, which prevent program starts.
    let _console = operators::start_console(console.as_ref(), &sockets, log);
    let mut server = Server {
        options,
        present: live::by_key(given),
        again,
        seen,
        log,
        cores,
        entry,
        metrics,
        exports,
        watchdog: predecessor.as_ref().and_then(|one| one.watchdog),
        predecessor,
        pid_file: None,
        is_confined: false,
    };
    while let Some(kept) = server.serve_or_refuse(sockets, signals, &store, clock)? {
        let file = store.share_file().ok().flatten();
        let file = file.ok_or_else(|| Failure::os("-e: the memory file is lost".to_owned()))?;
        drop(store);
        let config = store_config(&server.options);
        (store, clock) = memory::inherit(&server.options, &config, file, kept.ticket, &log)?;
        (sockets, signals) = (kept.sockets, kept.signals);
        if let Err(error) = sockets.set_modes() {
            log.warning(format_args!("-a: {error}"));
        }
    }
    log.detail(format_args!("ended"));
    Ok(())
}

/// Shows that the server starts, if it may have to recover items.
fn starting(options: &Options, metrics: Option<&TcpListener>) -> Result<Option<Starting>, Failure> {
    let shown = options.memory_file.as_ref().map(|_| {
        Starting::show(metrics, limits::metrics_connections(options))
            .map_err(|error| Failure::os(format!("cannot show the start: {error}")))
    });
    shown.transpose()
}

/// The server to replace, and its sockets. `user` is the user of this process when it serves.
fn predecessor(
    options: &Options,
    config: &store::Config,
    user: Uid,
) -> Result<(Option<Predecessor>, Inherited), Failure> {
    match &options.memory_file {
        Some(path) if options.takeover => {
            memory::check(path, config)?;
            let (predecessor, inherited) =
                Predecessor::ask(path, memory::format(path, config)?, user)?;
            Ok((Some(predecessor), inherited))
        }
        None if options.takeover => Err(Failure::usage(
            "--takeover: needs -e, the memory file of the running server".to_owned(),
        )),
        _ => Ok((None, Inherited::default())),
    }
}

/// Takes over the memory of a server, which then no longer serves.
fn take_over(
    predecessor: &Predecessor,
    options: &Options,
    config: &store::Config,
    sockets: &Sockets,
    log: &Log,
) -> Result<(Arc<Store>, Clock), Failure> {
    let path = options.memory_file.as_deref().unwrap_or_else(|| Path::new(""));
    let (file, ticket) = predecessor.take_memory(path)?;
    let inherited = memory::inherit(options, config, file, ticket, log)?;
    sockets.set_modes().map_err(|error| Failure::os(format!("-a: {error}")))?;
    Ok(inherited)
}

/// A server that is ready except for its sockets and its memory.
struct Server {
    options: Options,
    /// The settings behind the options.
    present: Present,
    /// Makes them again.
    again: Option<RereadSettings>,
    /// The files that are read again.
    seen: Seen,
    log: Log,
    cores: Option<Vec<usize>>,
    entry: Entry,
    /// The listener of `--metrics`.
    metrics: Option<TcpListener>,
    /// The exports to a collector.
    exports: Option<telemetry::Settings>,
    predecessor: Option<Predecessor>,
    /// The interval of the watchdog: of the predecessor, then of this process.
    watchdog: Option<Duration>,
    pid_file: Option<PidFile>,
    is_confined: bool,
}

/// The resources that a server keeps when its successor has failed.
struct Kept {
    sockets: Sockets,
    /// The one under which the memory was left.
    ticket: u64,
    signals: Caught,
}

/// Tells the other server the reason of a failure that nobody else sees: in the background, no user
/// reads stderr.
fn refuse(options: &Options, predecessor: &Predecessor, failure: &Failure) {
    if options.daemon {
        predecessor.refuse(&failure.message);
    }
}

impl Server {
    /// [`Self::serve`]s, or tells a predecessor why not.
    fn serve_or_refuse(
        &mut self,
        sockets: Sockets,
        signals: Caught,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<Option<Kept>, Failure> {
        let served = self.serve(sockets, signals, store, clock);
        if let (Err(failure), Some(predecessor)) = (&served, &self.predecessor) {
            refuse(&self.options, predecessor, failure);
        }
        served
    }

    /// Serves until it is stopped. If a successor failed to take over, returns the resources to
    /// continue with.
    fn serve(
        &mut self,
        sockets: Sockets,
        signals: Caught,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<Option<Kept>, Failure> {
        self.prepare()?;
        let Self { options, log, .. } = self;
        let entry = self.entry.clone();
        let config = net::Config {
            tls: entry.tls.clone(),
            login_timeout: entry.auth.as_ref().map(|_| LOGIN_PATIENCE),
            ..net_config(options, self.cores.clone())
        };
        let budget: Arc<dyn net::BufferBudget> = Arc::new(Charge(Arc::clone(store)));
        let service = Shared::new(options, store, clock, &entry);
        let telemetry = operators::telemetry(self.exports.as_ref())?;
        telemetry.iter().for_each(|telemetry| service.export(telemetry));
        if let Some(file) = &entry.namespaces {
            file.apply(&service.engine).map_err(|error| Failure::usage(error.to_string()))?;
        }
        let cleaner = CleanerThread::start(store, clock, &service)?;
        let sampler = sampler::SamplerThread::start(&service)?;
        let auth_worker = Arc::clone(&service.auth_worker);
        let live = Live::new(self.again.as_ref(), &self.present, &service, *log);
        let reload = Reload::new(live.clone(), entry, &service, *log, self.seen.clone());
        let auth_worker_thread = start_auth_worker(&service, Arc::clone(&reload))?;
        let kept = options.memory_file.as_ref().map(|_| copies(&sockets, self.metrics.as_ref()));
        let shared = Arc::clone(&service);
        let is_confined = options.drop_privileges;
        let handle = net::start(sockets, &config, budget, move |worker, control| {
            if is_confined && let Err(why) = confine::worker() {
                // The process has already taken such a filter, so this one is sound.
                unreachable!("{why}");
            }
            crate::session::Worker::new(&service, worker, control)
        })
        .map_err(|error| Failure::os(format!("cannot start the workers: {error}")))?;
        live.iter().for_each(|live| live.serve(handle.control().clone()));
        let shown = Shown::start(
            self.metrics.as_ref(),
            self.watchdog,
            Arc::clone(&shared),
            handle.control(),
            telemetry,
            limits::metrics_connections(options),
            *log,
        )?;
        let end = shown.end(Arc::clone(&shared));
        let signals = signals.forward(handle.control().clone(), end, auth_worker, *log)?;
        let watching = watching(options.style, &reload)?;
        self.watchdog = shown.watchdog();
        let listener = self.open_successor_listener(kept, store, handle.control())?;
        self.announce(handle.control(), &shown, listener.as_ref());
        // By then, the lines about the start have been written.
        let log_writer = self.log.start_writer();
        if let Err(error) = &log_writer {
            self.log.warning(format_args!(
                "cannot start the log thread ({error}); log lines may delay clients"
            ));
        }

        handle.join();
        let signals = signals.keep();
        drop(watching);
        let closing = shown.close();
        cleaner.stop();
        sampler.stop();
        drop(auth_worker_thread);
        let end = self.close_memory(listener, store, clock);
        drop(log_writer);
        drop(closing);
        match end? {
            HandedOver::Done => Ok(None),
            HandedOver::Failed(sockets, ticket) => {
                self.keep_settings(&shared, live.as_deref());
                Ok(Some(Kept { sockets, ticket, signals: signals? }))
            }
        }
    }

    /// The steps before the process starts threads.
    fn prepare(&mut self) -> Result<(), Failure> {
        let Self { options, log, .. } = self;
        PidFile::hold(&mut self.pid_file, options, log);
        limits::lock_memory(options, log);
        if !self.is_confined {
            confine::process(options, self.exports.is_some(), log)?;
            self.is_confined = true;
        }
        Ok(())
    }

    /// Serves again with the settings that reloads and commands have changed.
    fn keep_settings(&mut self, shared: &Shared, live: Option<&Live>) {
        live::carry_over(&mut self.options, shared);
        if let Some(live) = live {
            self.present.clone_from(&live.present());
        }
    }

    /// Reports that clients are served, to the operator and to a predecessor, which may then end.
    fn announce(&mut self, control: &Control, shown: &Shown, listener: Option<&SuccessorListener>) {
        shown.ready(self.predecessor.is_some(), &self.log);
        announce(&self.options, control, shown, &self.log);
        if let Some(predecessor) = self.predecessor.take() {
            predecessor.dismiss();
            listener.into_iter().for_each(SuccessorListener::claim_files);
        }
    }

    /// Leaves the items to a successor or to the memory file.
    fn close_memory(
        &self,
        listener: Option<SuccessorListener>,
        store: &Arc<Store>,
        clock: Clock,
    ) -> Result<HandedOver, Failure> {
        match listener {
            Some(listener) => listener.close(store, clock),
            None => {
                memory::close(store, clock, 0, &self.log);
                Ok(HandedOver::Done)
            }
        }
    }

    /// Lets a successor replace this server, if there is a memory to hand over.
    fn open_successor_listener(
        &self,
        kept: Option<io::Result<Sockets>>,
        store: &Store,
        control: &Control,
    ) -> Result<Option<SuccessorListener>, Failure> {
        let file = self.options.memory_file.as_ref().zip(store.format());
        let (Some((path, format)), Some(kept)) = (file, kept) else { return Ok(None) };
        let kept =
            kept.map_err(|error| Failure::os(format!("cannot keep the sockets: {error}")))?;
        Ok(SuccessorListener::open(path, format, self.watchdog, kept, control.clone(), self.log))
    }
}

/// Watches the files of settings. memcached reads them on a signal or a command.
fn watching(style: Style, reload: &Arc<Reload>) -> Result<Option<Watching>, Failure> {
    match style {
        Style::Holdall => Watching::start(reload),
        Style::Memcached => Ok(None),
    }
}

impl Failure {
    /// A failure of the system, `EX_OSERR`.
    fn os(message: String) -> Self {
        Self { status: 71, message, hint: None }
    }

    /// A setting that cannot be used, `EX_USAGE`.
    fn usage(message: String) -> Self {
        Self { status: EXIT_USAGE, message, hint: None }
    }

    /// The same with advice.
    fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }
}

/// Memory that connections hold counts towards the store's one memory limit.
struct Charge(Arc<Store>);

impl net::BufferBudget for Charge {
    fn charge(&self, delta: isize) {
        self.0.charge_buffers(delta as i64);
    }
}

fn store_config(options: &Options) -> store::Config {
    store::Config {
        memory_bytes: options.memory_bytes,
        item_bytes_max: options.item_bytes_max,
        growth_factor: options.growth_factor,
        chunk_bytes_min: options.chunk_bytes_min,
        evict: options.evict,
        policy: policy(options.eviction),
        transient_secs: options.transient_secs,
        automove: options.automove,
        automove_ratio_per_mille: per_mille(options.automove_ratio),
        stripes: options.stripes,
        huge_pages: options.huge_pages,
        numa_interleave: options.numa_interleave,
        by_place: false,
        threads_max: options.threads + SPARE_PARTICIPANTS,
        seed: random_seed(),
    }
}

fn eviction(policy: store::Policy) -> Eviction {
    match policy {
        store::Policy::Auto => Eviction::Auto,
        store::Policy::Bag => Eviction::Bag,
        store::Policy::Lru => Eviction::Lru,
    }
}

fn policy(eviction: Eviction) -> store::Policy {
    match eviction {
        Eviction::Auto => store::Policy::Auto,
        Eviction::Bag => store::Policy::Bag,
        Eviction::Lru => store::Policy::Lru,
    }
}

/// The CPUs of the workers, in order.
fn cores(options: &Options) -> Result<Option<Vec<usize>>, Failure> {
    if options.affinity == Affinity::Unbound {
        return Ok(None);
    }
    let allowed = limits::allowed_cpus()
        .map_err(|error| Failure::os(format!("cannot tell which CPUs may be used: {error}")))?;
    (0..options.threads)
        .map(|worker| options.affinity.cpu(worker, &allowed))
        .collect::<Result<Option<Vec<_>>, _>>()
        .map_err(Failure::usage)
}

fn net_config(options: &Options, cores: Option<Vec<usize>>) -> net::Config {
    let share = |part: u64| {
        usize::try_from(options.memory_bytes / part).unwrap_or(usize::MAX) / options.threads
    };
    net::Config {
        workers: options.threads,
        affinity: cores,
        max_connections: options.connections_max,
        rejection: options.maxconns_fast.then_some(proto::reply::TOO_MANY_CONNECTIONS),
        idle_timeout: options.idle_timeout,
        stall_timeout: options.stall_timeout,
        buffer_bytes_max: share(BUFFER_SHARE).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX),
        session_bytes_max: share(TLS_SHARE).max(TLS_BYTES_MIN),
        ..net::Config::default()
    }
}

/// Starts the thread that checks logins and reads files again. It ends with the returned value.
fn start_auth_worker(service: &Shared, reload: Arc<Reload>) -> Result<access::Working, Failure> {
    let started = service.auth_worker.start(move || reload.all());
    started.map_err(|error| Failure::os(format!("cannot start the authentication worker: {error}")))
}

/// Copies of all sockets, for a process that replaces this one.
fn copies(sockets: &Sockets, metrics: Option<&TcpListener>) -> io::Result<Sockets> {
    let mut copies = sockets.try_clone()?;
    copies.keep_metrics(metrics.map(TcpListener::try_clone).transpose()?);
    Ok(copies)
}

/// Reports the listening addresses to the operator.
fn announce(options: &Options, control: &Control, shown: &Shown, log: &Log) {
    let addresses: Vec<_> = control.listeners().iter().map(ToString::to_string).collect();
    let line = format!(
        "listening on {}; {} MB, {} workers",
        addresses.join(", "),
        options.memory_bytes >> 20,
        options.threads
    );
    match options.style {
        Style::Holdall => log.always(format_args!("{line}")),
        Style::Memcached => log.detail(format_args!("{line}")),
    }
    if let Some(address) = shown.address() {
        log.always(format_args!("metrics and health on http://{address}/"));
    }
}

/// A seed that a client cannot guess: std's hasher is keyed by the system's random numbers.
fn random_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Advice for files of users, rights and certificates.
const FILES_HINT: &str = "the file is read as the user who starts the server";

/// Threads that use the store in addition to the workers: the cleaner, and those that dump keys.
const SPARE_PARTICIPANTS: usize = 8;

/// The time in which a client must log in, where this is required.
const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// Connections may hold this part of the memory limit, in their buffers.
const BUFFER_SHARE: u64 = 8;

/// TLS sessions may take this part of the memory limit.
const TLS_SHARE: u64 = 4;

/// The minimum memory of one worker's TLS sessions: some dozens of them.
const TLS_BYTES_MIN: usize = 1 << 20;

/// The minimum buffers of one worker: a few clients with large requests that read slowly.
const BUFFER_BYTES_MIN: usize = 2 << 20;

/// The maximum buffers of one worker.
const BUFFER_BYTES_MAX: usize = 256 << 20;
