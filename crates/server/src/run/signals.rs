//! Signals that end a running server or make it reload its files.
//!
//! SIGTERM, SIGINT and SIGUSR1 end it gracefully, once; a second one ends it at once. SIGHUP makes
//! the authentication worker read the settings, users, rights and certificates again.
//!
//! While a server starts, for example during the recovery of a large memory file, SIGHUP waits
//! until it serves, and the others end it at once.
//!
//! ```text
//!     signal -> not ready, clients are served for --drain -> accept no more, answer what was read,
//!         close between requests -> end
//! ```

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use access::{AuthWorker, Job, Source};
use metrics::End;
use net::Control;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};

use super::Failure;
use crate::admin::DRAIN_PATIENCE;
use crate::log::Log;

/// Signals that are caught and kept until a thread handles them.
#[derive(Debug)]
pub(super) struct Caught {
    signals: Signals,
    /// Signals to a server that had handed over its place in the meantime.
    before: Vec<i32>,
}

/// The thread that acts on them; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Forwarding {
    handle: Handle,
    /// Returns the signal that ended the server, and those that came too late for it.
    thread: Option<JoinHandle<Vec<i32>>>,
}

impl Caught {
    /// From now on SIGHUP does not end the process.
    pub(super) fn hangups() -> Result<Self, Failure> {
        let signals = Signals::new([SIGHUP]).map_err(not_caught)?;
        Ok(Self { signals, before: Vec::new() })
    }

    /// From now on the others do not end it either.
    pub(super) fn ends(self) -> Result<Self, Failure> {
        let mut each = [SIGTERM, SIGINT, SIGUSR1].into_iter();
        each.try_for_each(|signal| self.signals.add_signal(signal)).map_err(not_caught)?;
        Ok(self)
    }

    /// Acts on signals, first on those already caught.
    pub(super) fn forward(
        mut self,
        control: Control,
        end: impl Fn() -> End + Send + 'static,
        auth_worker: Arc<AuthWorker>,
        log: Log,
    ) -> Result<Forwarding, Failure> {
        let handle = self.signals.handle();
        let body = move || {
            let mut ending = None;
            for signal in self.before.into_iter().chain(self.signals.forever()) {
                match signal {
                    SIGHUP => {
                        log.detail(format_args!("SIGHUP: reading files again"));
                        // Its turn comes after at most one login of each address.
                        auth_worker.ask(Source::Operator, Job::Reload);
                    }
                    _ if ending.is_some() => {
                        log.detail(format_args!("{}: ending at once", name_of(signal)));
                        control.stop();
                    }
                    _ => {
                        let end = end();
                        let window = end.window.as_secs();
                        match window {
                            0 => log.detail(format_args!("{}: ending", name_of(signal))),
                            _ => log.always(format_args!(
                                "{}: not ready; ending in {window} s",
                                name_of(signal)
                            )),
                        }
                        let control = control.clone();
                        ending = Some((signal, end.begin(move || control.drain(DRAIN_PATIENCE))));
                    }
                }
            }
            let ended_by = ending.map(|(signal, _)| signal);
            ended_by.into_iter().chain(self.signals.pending()).collect()
        };
        let thread = thread::Builder::new()
            .name("signals".to_owned())
            .spawn(body)
            .map_err(|error| Failure::os(format!("cannot start the signal thread: {error}")))?;
        Ok(Forwarding { handle, thread: Some(thread) })
    }
}

/// The maximum time of a shutdown, for systemd: the last replies, and then the memory file.
pub(super) const STOP_PATIENCE: Duration = Duration::from_secs(15);

impl Forwarding {
    /// Stops acting on signals. From now on they are kept, with the one that ended the server and
    /// those that it has not seen, in case it serves again.
    pub(super) fn keep(mut self) -> Result<Caught, Failure> {
        let mut kept = Caught::hangups()?.ends()?;
        kept.before = self.stop();
        // For a moment both have caught them.
        for signal in kept.signals.pending() {
            if !kept.before.contains(&signal) {
                kept.before.push(signal);
            }
        }
        Ok(kept)
    }

    fn stop(&mut self) -> Vec<i32> {
        self.handle.close();
        // It only forwards; if it has panicked, the server has still ended.
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.stop();
    }
}

fn not_caught(error: io::Error) -> Failure {
    Failure::os(format!("cannot catch signals: {error}"))
}

fn name_of(signal: i32) -> &'static str {
    match signal {
        SIGINT => "SIGINT",
        SIGTERM => "SIGTERM",
        SIGUSR1 => "SIGUSR1",
        _ => "signal",
    }
}
