//! The operators' side of a running server: the endpoint of `--metrics`, the exporter of `--otlp`,
//! and systemd.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use metrics::supervisor::Watchdog;
use metrics::{
    Console, End, Endpoint, Health, Pages, RunningConsole, Turns, reachable, supervisor,
};
use net::{Control, Inherited, ListenAddress, Sockets};
use options::{Options, Style};
use telemetry::{Exporter, Settings, Telemetry};

use super::signals::STOP_PATIENCE;
use super::{Failure, listeners};
use crate::log::Log;
use crate::shared::Shared;
use crate::status::Status;

/// Binds the address of `--metrics`, unless its socket is inherited. A low port needs rights.
pub(super) fn bind(
    options: &Options,
    inherited: &mut Inherited,
) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = options.metrics else { return Ok(None) };
    if let Some(listener) = inherited.take_metrics(address) {
        return Ok(Some(listener));
    }
    TcpListener::bind(address).map(Some).map_err(|error| {
        let named = io::Error::new(error.kind(), format!("--metrics {address}: {error}"));
        match inherited.overlapping(address) {
            Some(old) if error.kind() == io::ErrorKind::AddrInUse => {
                listeners::old_address_in_the_way(&named, old)
            }
            _ => Failure::os(named.to_string()),
        }
    })
}

/// The value of `--console`.
pub(super) fn console(options: &Options) -> Result<Option<Console>, Failure> {
    let console = options.console.as_deref().map(Console::parse).transpose();
    console.map_err(|why| Failure::usage(format!("--console: {why}")))
}

/// Starts the console of a server with these sockets. If it does not start, the server still
/// serves.
pub(super) fn start_console(
    console: Option<&Console>,
    sockets: &Sockets,
    log: Log,
) -> Option<RunningConsole> {
    let member = sockets.addresses().find_map(|address| match &**address {
        ListenAddress::Tcp(address, _) => Some(reachable(*address).to_string()),
        ListenAddress::Unix(path) => Some(format!("unix:{}", path.display())),
        ListenAddress::Udp(..) => None,
    });
    match console?.start(&[member?], None, by_level(log)) {
        Ok(running) => Some(running),
        Err(error) => {
            log.warning(format_args!("--console: it cannot be started: {error}"));
            None
        }
    }
}

/// Logs lines of other parts, whose warnings say so.
fn by_level(log: Log) -> impl Fn(&str) + Send + 'static {
    move |line| match line.strip_prefix("warning: ") {
        Some(line) => log.warning(format_args!("{line}")),
        None => log.always(format_args!("{line}")),
    }
}

/// The exports, by `--otlp` and OpenTelemetry's variables. Under the name memcached, only flags
/// count.
pub(super) fn exports(options: &Options) -> Result<Option<Settings>, Failure> {
    let variable = |name: &str| match options.style {
        Style::Holdall => std::env::var(name).ok(),
        Style::Memcached => None,
    };
    Settings::read("serve", options.otlp.as_deref(), &variable)
        .map_err(|fault| Failure::usage(fault.to_string()))
}

/// Opens the exports.
pub(super) fn telemetry(settings: Option<&Settings>) -> Result<Option<Telemetry>, Failure> {
    let opened = settings.map(Telemetry::open).transpose();
    opened.map_err(|error| Failure::usage(format!("--otlp: {error}")))
}

/// Shows a server whose workers run to its operators, until this is dropped.
#[derive(Debug)]
pub(super) struct Shown {
    health: Arc<Health>,
    endpoint: Option<Endpoint>,
    exporter: Option<Exporter>,
    watchdog: Watchdog,
}

impl Shown {
    /// Starts it; the endpoint has at most `connections_max` connections. `watchdog` is the
    /// interval of a predecessor.
    pub(super) fn start(
        listener: Option<&TcpListener>,
        watchdog: Option<Duration>,
        shared: Arc<Shared>,
        control: &Control,
        telemetry: Option<Telemetry>,
        connections_max: usize,
        log: Log,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        let status = Arc::new(Status::new(shared, control.clone(), Arc::clone(&health)));
        let exporter = telemetry.map(|telemetry| {
            let status = Arc::clone(&status);
            telemetry.start(move || status.metrics(), by_level(log))
        });
        let exporter = exporter.transpose();
        let exporter = exporter.map_err(|error| Failure::os(format!("no exporter: {error}")))?;
        let endpoint = match listener {
            None => None,
            Some(listener) => {
                let started = listener
                    .try_clone()
                    .and_then(|copy| Endpoint::start(copy, status, connections_max));
                Some(started.map_err(|error| Failure::os(format!("--metrics: {error}")))?)
            }
        };
        let (turns, control) = (Turns::default(), control.clone());
        let watchdog = Watchdog::start(watchdog, move || {
            let check = turns.look(&control.turns());
            control.wake();
            check.fault.is_none()
        });
        let watchdog =
            watchdog.map_err(|error| Failure::os(format!("no watchdog thread: {error}")))?;
        Ok(Self { health, endpoint, exporter, watchdog })
    }

    /// Ends the server by the settings of that time.
    pub(super) fn end(&self, shared: Arc<Shared>) -> impl Fn() -> End + Send + 'static {
        let health = Arc::clone(&self.health);
        move || {
            let (health, window) = (Arc::clone(&health), shared.drain());
            End { health, window, patience: STOP_PATIENCE }
        }
    }

    /// Clients are served: reports this to systemd and in the readiness check.
    pub(super) fn ready(&self, is_successor: bool, log: &Log) {
        self.health.start();
        if let Err(error) = supervisor::ready(is_successor) {
            log.warning(format_args!("the service manager was not told: {error}"));
        }
    }

    /// The interval of the watchdog, for a successor.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog.interval()
    }

    /// The address of the endpoint, as bound.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// Called when the workers have ended: shows nothing any more, starts to export the rest, and
    /// lets systemd wait for it.
    pub(super) fn close(self) -> Closing {
        let Self { endpoint, exporter, watchdog, .. } = self;
        drop(endpoint);
        exporter.iter().for_each(Exporter::finish);
        watchdog.relax();
        Closing { _exporter: exporter, _watchdog: watchdog }
    }
}

/// The last part to end: when dropped, it waits for the exporter, at most a few seconds.
#[derive(Debug)]
pub(super) struct Closing {
    _exporter: Option<Exporter>,
    _watchdog: Watchdog,
}
