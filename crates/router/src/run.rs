//! Runs a proxy from its options to its end.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ::metrics::{Console, End, LastReload, RunningConsole, reachable, supervisor};
use discovery::Discovery;
use net::{
    Consolidation, Control, Handle, Inherited, Placement, Sockets, TlsAcceptor, TlsError, TlsMode,
    inherited_listener,
};
use routes::{Core, Spooler, Target, host_id};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use telemetry::{Settings, Telemetry};
use thiserror::Error;
use upstream::Upstream;

use crate::config::Reader;
use crate::delete_spool;
use crate::failure::EXIT_TRANSIENT;
pub use crate::failure::Failure;
use crate::front::Front;
use crate::listeners::{listeners, warnings};
use crate::logins::Logins;
use crate::metrics::Shown;
use crate::options::{Options, Source, Validate};
use crate::periodic;
use crate::reload::{Watched, first, reload, seen_before};
use crate::shared::Shared;
use crate::sources::{self, Away};
use crate::stats::files::Files;

/// The time limit of a client's login, as in a server.
const LOGIN_PATIENCE: Duration = Duration::from_secs(10);

/// The time that clients have at the end to receive the replies to their requests.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// The reason why clients cannot use TLS.
#[derive(Debug, Error)]
enum AcceptorError {
    #[error("--ssl-port needs --pem-cert-path and --pem-key-path")]
    NoCertificate,
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Runs a proxy until a signal ends it; `log` takes log lines. `started` receives the proxy's
/// addresses.
///
/// # Errors
///
/// If the proxy cannot start; nothing is left bound or running then.
pub fn run(
    mut options: Options,
    log: impl Fn(&str) + Send + Sync + 'static,
    started: impl FnOnce(&Control),
) -> Result<(), Failure> {
    let Some(source) = options.source() else {
        return Err(Failure::fatal("a configuration is missing: --config or -f"));
    };
    // The signal waits while servers are looked up, and until the proxy serves.
    let signals = Signals::new([SIGHUP]).map_err(not_caught)?;
    let mut handed = take_over(&mut options)?;
    let fewer_clients = options.count_by_host();
    let console = options.console.take();
    let mut seen = seen_before(&source, &options);
    let discovery = Discovery::new(options.discovery_dir.clone());
    let discovery = discovery.with_access(&options.discovery_access()).map_err(Failure::fatal)?;
    let tls = options.tls.open().map_err(Failure::fatal)?;
    let files = Files::open(&options).map_err(Failure::fatal)?;
    let counted = files.as_ref().map(|files| files.pools().clone()).unwrap_or_default();
    let (configuration, is_kept) = {
        let (source, options, tls) = (&source, &options, tls.as_ref());
        let reader = Reader { source, options, tls, discovery: &discovery, counted: &counted };
        first(&reader, &mut seen, &log).map_err(Failure::fatal)?
    };
    configuration.warnings.iter().for_each(|warning| log(warning));
    let mut away = Away::default();
    away.report(&discovery, &log);
    if options.validate_config == Some(Validate::Exit) {
        return Ok(());
    }
    let telemetry = telemetry(&options)?;
    let acceptor = acceptor(&options).map_err(Failure::fatal)?;
    let (listen, listeners) =
        listeners(&options, &configuration.listens).map_err(Failure::fatal)?;
    warnings(&options, &listen).iter().chain(&fewer_clients).for_each(|line| log(line));
    let operators = options.metrics.and_then(|address| handed.take_metrics(address));
    let sockets = listen.bind_or_inherit(&mut handed);
    let sockets = sockets.map_err(|error| Failure::transient("cannot listen", &error))?;
    catch_ends(&signals)?;
    let logins = Logins::open(&options.logins, &log).map_err(Failure::fatal)?;
    let login_timeout = logins.as_ref().map(|_| LOGIN_PATIENCE);
    let config = net::Config { login_timeout, ..net_config(&options, acceptor.clone()) };
    let shared = Shared::new(options, logins, listeners, configuration.read, is_kept);
    telemetry.iter().for_each(|telemetry| share(telemetry, &shared));
    let (shared, log) = (Arc::new(shared), Arc::new(log));
    let _auth_worker = check_logins(&shared, &log)?;
    let spooler = {
        let log = Arc::clone(&log);
        keep_deletes(&shared, configuration.targets.clone(), move |line: &str| log(line))?
    };
    let handle = start_workers(&shared, sockets, &config, &log)?;
    let shown = Shown::start(&shared, operators, telemetry, &log)?;
    started(handle.control());
    let _console = console.and_then(|text| start_console(&text, &source, &shared, &log));
    let watched = Watched {
        source,
        tls: tls.clone(),
        discovery: Arc::new(discovery),
        away,
        counted,
        seen,
        is_dynamic: configuration.is_dynamic,
        plan: configuration.plan,
        targets: configuration.targets,
        listens: configuration.listens,
    };
    let certificates = Certificates::new(acceptor, tls, &shared, &*log);
    let (control, end) = (handle.control().clone(), shown.end(DRAIN_PATIENCE * 2));
    let log = move |line: &str| log(line);
    let watcher = watch(&shared, watched, signals, certificates, (control, end), files, log)
        .map_err(|error| Failure::transient("cannot start", &error))?;
    handle.join();
    watcher.close();
    drop(shown);
    // All answered deletes are written.
    drop(spooler);
    Ok(())
}

/// Exports the workers' spans, and shows the counts of exports with the others.
fn share(telemetry: &Telemetry, shared: &Shared) {
    // No other code sets it.
    let _ = shared.export_counts.set(Arc::clone(telemetry.export_counts()));
    telemetry.spans().iter().for_each(|spans| shared.registry.set_spans(spans));
}

/// Starts the console of this proxy and the servers of its configuration. If one does not start,
/// the proxy serves anyway.
fn start_console(
    console: &Console,
    source: &Source,
    shared: &Shared,
    log: &Arc<impl Fn(&str) + Send + Sync + 'static>,
) -> Option<RunningConsole> {
    let addresses = shared.control.get().into_iter().flat_map(Control::tcp_addresses);
    let members: Vec<String> =
        addresses.take(1).map(|address| reachable(address).to_string()).collect();
    let config = match source {
        Source::File(path) => Some((path.as_path(), shared.options.route_prefix.as_str())),
        Source::Text(_) => None,
    };
    let said = Arc::clone(log);
    match console.start(&members, config, move |line| said(line)) {
        Ok(running) => Some(running),
        Err(error) => {
            log(&format!("warning: --console: it cannot be started: {error}"));
            None
        }
    }
}

/// The telemetry for an OpenTelemetry collector.
fn telemetry(options: &Options) -> Result<Option<Telemetry>, Failure> {
    let variable = |name: &str| std::env::var(name).ok();
    let settings = Settings::read("route", options.otlp.as_deref(), &variable);
    let settings = settings.map_err(Failure::fatal)?;
    if options.trace_sample.is_some() && !settings.as_ref().is_some_and(Settings::has_traces) {
        return Err(Failure::fatal("--trace-sample needs a collector for spans: --otlp URL"));
    }
    let opened = settings.as_ref().map(Telemetry::open).transpose();
    opened.map_err(|error| Failure::fatal(format!("--otlp: {error}")))
}

/// Starts the workers, and gives the shared state control over them.
fn start_workers(
    shared: &Arc<Shared>,
    sockets: Sockets,
    config: &net::Config,
    log: &Arc<impl Fn(&str) + Send + Sync + 'static>,
) -> Result<Handle, Failure> {
    let (fronts, log) = (Arc::clone(shared), Arc::clone(log));
    let handle = net::start(sockets, config, shared.budget.clone(), move |index, _| {
        let (front, log) = (front(&fronts, index), Arc::clone(&log));
        front.core.set_log(move |line| log(line));
        front
    })
    .map_err(|error| Failure::transient("cannot start", &error))?;
    // No other code sets it.
    let _ = shared.control.set(handle.control().clone());
    Ok(handle)
}

/// Starts the thread that checks logins, if clients must log in. It ends when the returned value is
/// dropped.
fn check_logins(
    shared: &Shared,
    log: &Arc<impl Fn(&str) + Send + Sync + 'static>,
) -> Result<Option<access::Working>, Failure> {
    let started = shared.logins.as_ref().map(|logins| {
        let log = Arc::clone(log);
        logins.start(move |line| log(line))
    });
    started.transpose().map_err(|error| Failure::transient("cannot start a thread", &error))
}

/// The inherited socket, if any. The options then name its address. A check of the configuration
/// takes none: it may have neither the sockets nor the environment of the proxy.
fn take_over(options: &mut Options) -> Result<Inherited, Failure> {
    let mut handed = Inherited::default();
    if options.validate_config == Some(Validate::Exit) {
        return Ok(handed);
    }
    let Some(number) = options.listen_sock_fd else { return activated(options) };
    let named = |error: io::Error| Failure::fatal(format!("--listen-sock-fd {number}: {error}"));
    let (address, socket) = inherited_listener(number).map_err(named)?;
    handed.add("tcp", socket).map_err(named)?;
    options.ports = vec![address.port()];
    options.listen_addresses = vec![address.ip()];
    Ok(handed)
}

/// The sockets that systemd opened for this process, if any: that of `--metrics`, and one that
/// replaces the addresses in the options.
fn activated(options: &mut Options) -> Result<Inherited, Failure> {
    let mut activated = net::activated().map_err(Failure::fatal)?;
    let sockets = activated.len();
    let clients = |activated: &Inherited| activated.tcp().collect::<Vec<_>>();
    let of_metrics = options.metrics.is_some_and(|address| {
        activated.name_metrics(address);
        clients(&activated).len() < sockets
    });
    match (clients(&activated).as_slice(), sockets - usize::from(of_metrics)) {
        ([], 0) => {}
        ([address], 1) => listen_only_at(*address, options),
        _ => {
            return Err(Failure::fatal(
                "systemd is to pass one TCP socket for clients, one at the address of --metrics, \
                 and no other",
            ));
        }
    }
    Ok(activated)
}

/// Replaces the addresses in the options by that of a systemd socket. It uses TLS like its port in
/// the options. If they do not name the port, it uses plain text only without TLS.
fn listen_only_at(address: SocketAddr, options: &mut Options) {
    let port = address.port();
    let has_tls = !options.ssl_ports.is_empty();
    let is_encrypted =
        options.ssl_ports.contains(&port) || has_tls && !options.ports.contains(&port);
    (options.ports, options.ssl_ports) = match is_encrypted {
        true => (Vec::new(), vec![port]),
        false => (vec![port], Vec::new()),
    };
    options.listen_addresses = vec![address.ip()];
}

/// The placement of clients on workers: fewer workers send more requests in one write.
fn placement(options: &Options) -> Placement {
    match options.gather_below {
        0 => Placement::Even,
        percent => Placement::Consolidated(Consolidation::below(percent)),
    }
}

/// Keeps failed deletes, if enabled. On return, the pending deletes of these servers are known.
fn keep_deletes(
    shared: &Shared,
    targets: Vec<Target>,
    log: impl Fn(&str) + Send + 'static,
) -> Result<Option<Spooler>, Failure> {
    let (options, port) = (&shared.options, shared.listeners.first_port);
    let spooler = delete_spool::start(options, port, shared.registry.clone(), targets, log);
    let spooler =
        spooler.map_err(|error| Failure { status: EXIT_TRANSIENT, message: error.to_string() })?;
    if let Some(spooler) = &spooler {
        // No other code sets it.
        let _ = shared.deletes.set(spooler.deletes().clone());
    }
    Ok(spooler)
}

/// Makes the TLS sessions of clients; `None` if no port uses TLS.
fn acceptor(options: &Options) -> Result<Option<Arc<TlsAcceptor>>, AcceptorError> {
    if options.ssl_ports.is_empty() {
        return Ok(None);
    }
    let Some(tls) = options.tls.listener() else {
        return Err(AcceptorError::NoCertificate);
    };
    let count = |ports: &[u16]| ports.len() * options.listen_addresses.len();
    let mut modes = vec![TlsMode::Plain; count(options.plain_ports())];
    modes.resize(modes.len() + count(&options.ssl_ports), TlsMode::Standard);
    Ok(Some(Arc::new(TlsAcceptor::open(tls, modes)?)))
}

/// TLS sessions may use one part in this number of the clients' memory limit. The next constant is
/// for the buffers of the event loops, with the kernel's for clients that do not read.
const TLS_SHARE: usize = 2;
const BUFFER_SHARE: usize = 4;

/// The event loops' settings.
fn net_config(options: &Options, tls: Option<Arc<TlsAcceptor>>) -> net::Config {
    let share = |part: usize| options.client_memory_max / part / options.num_proxies.max(1);
    let usual = net::Config::default();
    net::Config {
        workers: options.num_proxies,
        placement: placement(options),
        rejection: Some(proto::reply::TOO_MANY_CONNECTIONS),
        session_bytes_max: share(TLS_SHARE),
        buffer_bytes_max: share(BUFFER_SHARE),
        counts_unread: true,
        // 0 stays only without a limit of open files.
        max_connections: if options.max_conns == 0 { usize::MAX } else { options.max_conns },
        tls,
        ..usual
    }
}

/// The certificates that SIGHUP reloads.
struct Certificates {
    acceptor: Option<Arc<TlsAcceptor>>,
    servers: Option<upstream::Tls>,
}

impl Certificates {
    /// For listeners and servers. From now on, metrics show the outcome of reloads.
    fn new(
        acceptor: Option<Arc<TlsAcceptor>>,
        servers: Option<upstream::Tls>,
        shared: &Shared,
        log: &impl Fn(&str),
    ) -> Self {
        if acceptor.is_some() || servers.is_some() {
            // No other code sets these two.
            let _ = shared.certificates.set(LastReload::default());
        }
        if let Some(acceptor) = &acceptor {
            let _ = shared.acceptor.set(Arc::clone(acceptor));
        }
        let this = Self { acceptor, servers };
        this.warn(log);
        this
    }

    /// Logs the faults of the certificate that clients see.
    fn warn(&self, log: &impl Fn(&str)) {
        let warnings = self.acceptor.iter().flat_map(|acceptor| acceptor.warnings());
        warnings.for_each(|warning| log(&format!("warning: {warning}")));
    }

    /// Reloads them. Returns true if all are usable.
    fn reload(&self, log: &impl Fn(&str)) -> bool {
        let acceptor = self.acceptor.as_ref();
        let acceptor =
            acceptor.map(|acceptor| acceptor.reload().map_err(|error| error.to_string()));
        let servers = self.servers.as_ref();
        let servers = servers.map(|servers| servers.reload().map_err(|error| error.to_string()));
        let results: Vec<_> = acceptor.into_iter().chain(servers).collect();
        for result in &results {
            match result {
                Ok(()) => log("the certificates have been read again"),
                Err(error) => log(&format!("warning: certificates: unchanged: {error}")),
            }
        }
        self.warn(log);
        results.iter().all(Result::is_ok)
    }
}

/// A worker's front.
#[expect(clippy::expect_used, reason = "without a descriptor for a poller nothing can be served")]
fn front(shared: &Arc<Shared>, index: usize) -> Front {
    let current = shared.current();
    let worker = u32::try_from(index).unwrap_or(0);
    let upstream = Upstream::new(worker, shared.registry.clone(), Instant::now());
    let mut upstream = upstream.expect("a descriptor for the worker's poller");
    if let Some(window) = shared.options.window.flatten() {
        upstream.set_window_with(window, shared.options.routing.waiting());
    }
    let seed = RandomState::new().build_hasher().finish();
    let core = Core::new(upstream, host_id(), seed, |upstream| (current.build)(upstream));
    let core = core.expect("a descriptor for the worker's poller");
    core.share_asides(Arc::clone(shared.budget.asides()));
    if let Some(deletes) = shared.deletes.get() {
        core.keep_deletes(deletes.clone()).expect("a descriptor for the worker's mailbox");
    }
    Front::new(core, Arc::clone(shared), index, current.generation)
}

/// Makes signals end the proxy gracefully from now on.
fn catch_ends(signals: &Signals) -> Result<(), Failure> {
    let mut each = [SIGTERM, SIGINT, SIGUSR1].into_iter();
    each.try_for_each(|signal| signals.add_signal(signal)).map_err(not_caught)
}

fn not_caught(error: io::Error) -> Failure {
    Failure::transient("cannot catch signals", &error)
}

/// Waits for signals, and checks the configuration's file for changes in between.
fn watch(
    shared: &Arc<Shared>,
    watched: Watched,
    mut signals: Signals,
    certificates: Certificates,
    (control, end): (Control, End),
    files: Option<Files>,
    log: impl Fn(&str) + Send + Sync + 'static,
) -> io::Result<signal_hook::iterator::Handle> {
    let (handle, shared) = (signals.handle(), Arc::clone(shared));
    let log = Arc::new(log);
    let is_over = {
        let handle = handle.clone();
        move || handle.is_closed()
    };
    let tell = Arc::clone(&log);
    periodic::start(&shared, files, is_over, move |line: &str| tell(line))?;
    if !shared.options.disable_reload_configs {
        let every = Duration::from_millis(shared.options.discovery_period_ms);
        let asked = sources::start(&watched.discovery, every, handle.clone())?;
        let (shared, handle, log) = (Arc::clone(&shared), handle.clone(), Arc::clone(&log));
        let reload = move || reload(&shared, watched, &asked, &handle, &*log);
        thread::Builder::new().name("config".to_owned()).spawn(reload)?;
    }
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut ending = None;
        for signal in signals.forever() {
            match signal {
                SIGHUP => {
                    supervisor::reloading();
                    let are_good = certificates.reload(&*log);
                    shared.certificates.get().iter().for_each(|read| read.note(are_good));
                    match &shared.logins {
                        Some(logins) => logins.reload(),
                        None => supervisor::reloaded(),
                    }
                }
                _ if ending.is_some() => control.stop(),
                _ => {
                    if !end.window.is_zero() {
                        let secs = end.window.as_secs();
                        log(&format!("not ready; ending in {secs} s"));
                    }
                    let control = control.clone();
                    ending = Some(end.begin(move || control.drain(DRAIN_PATIENCE)));
                }
            }
        }
    })?;
    Ok(handle)
}
