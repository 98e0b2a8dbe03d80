//! Signals of `holdall invalidate run`: SIGTERM and SIGINT end it, SIGHUP has it go on by what the
//! configuration says now. Those that come while one process takes the place of another wait for
//! the new one.
//!
//! Each part of the pipeline is made of the configuration, so all of it begins again: the present
//! process delivers what it read and saves its position, and a new one takes its place and number.
//!
//! Relaxed is enough for the flags here: they carry no other data.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use metrics::supervisor;
use nix::sys::signal::SigSet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::config::{Config, Kind};
use crate::message::{Failure, log};

/// The time that the end takes at the most, for systemd.
const STOP_PATIENCE: Duration = Duration::from_secs(30);

/// The signals, caught from when this is made.
#[derive(Debug)]
pub(crate) struct Signals {
    term: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Catches them, and lets those come that waited for this process.
    ///
    /// # Errors
    ///
    /// The system lets none be caught.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let caught = Self {
            term: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        };
        // One thread that takes them is enough.
        all().thread_unblock()?;
        for ends in [SIGTERM, SIGINT] {
            flag::register(ends, Arc::clone(&ASKED_TO_END))?;
        }
        Ok(caught)
    }

    /// Sets a watch to true when a signal asks for the end, or for a new configuration that can be
    /// used. `is_ending` is set by the end alone.
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
                    _ = self.hangup.recv() => if reload.begin() {
                        // The pipeline may have ended by itself.
                        let _ = ask.send(true);
                    },
                }
            }
            reload.is_reloading.store(false, Relaxed);
            supervisor::stopping(STOP_PATIENCE);
            is_ending.store(true, Relaxed);
            // See above.
            let _ = ask.send(true);
            std::future::pending::<()>().await;
        });
        asked
    }
}

/// Set by a signal that asks for the end, also when nobody listens any more.
static ASKED_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Makes signals wait from now on, also over an exec by this thread, where handlers are gone and a
/// signal would end the process. True if the process has been asked to end before.
pub(crate) fn hold() -> bool {
    // It refuses numbers alone that are no signals.
    let _ = all().thread_block();
    ASKED_TO_END.load(Relaxed)
}

fn all() -> SigSet {
    use nix::sys::signal::Signal;
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

/// What SIGHUP does.
#[derive(Debug)]
pub(crate) struct Reload {
    path: PathBuf,
    /// False where the sender of lines cannot be asked to begin again.
    can_begin_again: bool,
    is_reloading: Arc<AtomicBool>,
}

impl Reload {
    /// `is_reloading` is set when the end is asked for to make place for a new process.
    pub(crate) fn new(config: &Config, path: PathBuf, is_reloading: Arc<AtomicBool>) -> Self {
        let can_begin_again = match config.source.kind {
            Kind::Ndjson | Kind::Debezium => config.lines().listen.is_some(),
            Kind::MariaDb | Kind::MySql | Kind::Postgresql => true,
        };
        Self { path, can_begin_again, is_reloading }
    }

    /// Looks at the configuration. A wrong one changes nothing.
    fn begin(&self) -> bool {
        if !self.can_begin_again {
            log("SIGHUP: the configuration stays as it was: lines on stdin cannot be read again");
            return false;
        }
        if let Err(why) = self.check() {
            log(&format!("SIGHUP: the configuration stays as it was: {why}"));
            return false;
        }
        log("SIGHUP: restarting with the new configuration at the saved position");
        supervisor::reloading();
        self.is_reloading.store(true, Relaxed);
        true
    }

    fn check(&self) -> Result<(), Failure> {
        let config = Config::read(&self.path)?;
        config.plan()?;
        config.network()?;
        match config.source.kind {
            Kind::MariaDb | Kind::MySql => config.mysql().map(drop)?,
            Kind::Postgresql => config.postgres().map(drop)?,
            Kind::Ndjson | Kind::Debezium => {}
        }
        Ok(())
    }
}
