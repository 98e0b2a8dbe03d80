//! SIGINT and SIGTERM during a measurement: the first ends the measurement, and its results are
//! still reported; a second Ctrl-C ends the program.
//!
//! One flag for the whole program, because a command consists of many successive runs, and none may
//! start once it is set. A run has another one, which its failure also sets. In commands that use
//! neither, the signal itself ends the program.

use std::ops::Deref;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use generator::Progress;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag::{register, register_conditional_default};
use signal_hook::low_level::unregister;

/// The status of an interrupted command, as shells report SIGINT.
pub(super) const EXIT_INTERRUPTED: u8 = 130;

/// The text in results.
pub(super) const INTERRUPTED: &str = "interrupted";

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// The flag, which signals set from now on.
pub(super) fn flag() -> Arc<AtomicBool> {
    let flag = STOP.get_or_init(|| {
        let flag = Arc::new(AtomicBool::new(false));
        // A signal that cannot be caught ends the program, as requested. The study passes a SIGTERM
        // on to a step that got SIGINT from the terminal, so only a second SIGINT ends at once.
        let _ = register_conditional_default(SIGINT, Arc::clone(&flag));
        for signal in [SIGINT, SIGTERM] {
            let _ = register(signal, Arc::clone(&flag));
        }
        flag
    });
    Arc::clone(flag)
}

/// A run that signals can end.
pub(super) struct Interruptible {
    progress: Progress,
    handlers: Vec<SigId>,
}

/// A run that signals can end, at once if one has come.
pub(super) fn progress() -> Interruptible {
    flag();
    let progress = Progress::default();
    let register = |signal| register(signal, Arc::clone(&progress.stop)).ok();
    let handlers = [SIGINT, SIGTERM].into_iter().filter_map(register).collect();
    if happened() {
        progress.stop.store(true, Ordering::Relaxed);
    }
    Interruptible { progress, handlers }
}

impl Deref for Interruptible {
    type Target = Progress;

    fn deref(&self) -> &Progress {
        &self.progress
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        for handler in self.handlers.drain(..) {
            unregister(handler);
        }
    }
}

/// True once a signal has come. Relaxed: a late observation costs a moment.
pub(super) fn happened() -> bool {
    STOP.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// The status of the command, or that of its interruption.
pub(super) fn status_or(status: ExitCode) -> ExitCode {
    if happened() { ExitCode::from(EXIT_INTERRUPTED) } else { status }
}
