//! Signals of `holdall invalidate run`: SIGTERM and SIGINT end it; SIGHUP makes it continue with
//! the current configuration. Signals that arrive while one process replaces another wait for the
//! new one.
//!
//! Each part of the pipeline is made from the configuration, so all of it restarts: the process
//! delivers what it read and saves its position; a new one takes its place and process id.
//!
//! Relaxed is enough for the flags here: they carry no other data.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics::supervisor;
use nix::sys::signal::SigSet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::message::Failure;
use crate::reload::Reload;

/// The maximum time that the shutdown takes, for systemd.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// The signals, caught from the creation of this value.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches them, and admits those that waited for this process.
    ///
    /// # Errors
    ///
    /// When the system refuses to catch them.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        };
        // One thread that receives them is enough.
        all().thread_unblock()?;
        for ends in [SIGTERM, SIGINT] {
            flag::register(ends, Arc::clone(&ASKED_TO_END))?;
        }
        Ok(caught)
    }

    /// Sets a watch to true when a signal requests the end, or a new configuration that is usable.
    /// Only the end sets `is_ending`.
    pub(crate) fn stop(
        mut self,
        is_ending: Arc<AtomicBool>,
        reload: Reload,
    ) -> watch::Receiver<bool> {
        let (ask, asked) = watch::channel(false);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = self.term.recv() => break,
                    _ = self.interrupt.recv() => break,
                    _ = self.hangup.recv() => {
                        // The check may wait for the database.
                        let is_usable = tokio::select! {
                            is_usable = reload.begin() => is_usable,
                            _ = self.term.recv() => break,
                            _ = self.interrupt.recv() => break,
                        };
                        if is_usable {
                            // The pipeline may already have ended.
                            let _ = ask.send(true);
                        }
                    }
                }
            }
            reload.cancel();
            supervisor::stopping(STOP_PATIENCE);
            is_ending.store(true, Relaxed);
            // See above.
            let _ = ask.send(true);
            std::future::pending::<()>().await;
        });
        asked
    }
}

/// Set by a signal that requests the end, even when no task listens any more.
static ASKED_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Blocks signals from now on, also over an exec by this thread, where handlers are gone and a
/// signal would end the process. True if the end was requested before.
pub(crate) fn hold() -> bool {
    // It refuses only numbers that are no signals.
    let _ = all().thread_block();
    ASKED_TO_END.load(Relaxed)
}

fn all() -> SigSet {
    use nix::sys::signal::Signal;
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}
