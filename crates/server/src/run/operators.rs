//! The operators' side of a running server: the endpoint of `--metrics`, and systemd.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use metrics::supervisor::Watchdog;
use metrics::{End, Endpoint, Health, Turns, supervisor};
use net::{Control, Inherited};
use options::Options;

use super::Failure;
use super::signals::STOP_PATIENCE;
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
    let failed = |error: io::Error| Failure::os(format!("--metrics {address}: {error}"));
    TcpListener::bind(address).map(Some).map_err(failed)
}

/// Shows a server whose workers run to its operators, until this is dropped.
#[derive(Debug)]
pub(super) struct Shown {
    health: Arc<Health>,
    endpoint: Option<Endpoint>,
    watchdog: Watchdog,
}

impl Shown {
    pub(super) fn start(
        listener: Option<&TcpListener>,
        shared: Arc<Shared>,
        control: &Control,
    ) -> Result<Self, Failure> {
        let health = Arc::new(Health::default());
        let status = Status::new(shared, control.clone(), Arc::clone(&health));
        let endpoint = match listener {
            None => None,
            Some(listener) => {
                let started =
                    listener.try_clone().and_then(|copy| Endpoint::start(copy, Arc::new(status)));
                Some(started.map_err(|error| Failure::os(format!("--metrics: {error}")))?)
            }
        };
        let (turns, control) = (Turns::default(), control.clone());
        let watchdog = Watchdog::start(move || {
            let check = turns.look(&control.turns());
            control.wake();
            check.fault.is_none()
        });
        let watchdog =
            watchdog.map_err(|error| Failure::os(format!("no watchdog thread: {error}")))?;
        Ok(Self { health, endpoint, watchdog })
    }

    /// The way in which the server ends.
    pub(super) fn end(&self, window: Duration) -> End {
        End { health: Arc::clone(&self.health), window, patience: STOP_PATIENCE }
    }

    /// Clients are served: says so to systemd, and to whoever asks.
    pub(super) fn ready(&self, is_successor: bool, log: &Log) {
        self.health.start();
        if let Err(error) = supervisor::ready(is_successor) {
            log.warning(format_args!("the service manager was not told: {error}"));
        }
    }

    /// The address of the endpoint, as bound.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.endpoint.as_ref().map(Endpoint::address)
    }

    /// The workers have ended: shows nothing any more, and lets systemd wait for the rest.
    pub(super) fn close(mut self) -> Watchdog {
        drop(self.endpoint.take());
        self.watchdog.relax();
        self.watchdog
    }
}
