//! The end of the program, while other threads are in calls.
//!
//! Python before 3.14 ends a daemon thread that asks for the interpreter's lock after the end by
//! unwinding its stack, and Rust's frames cannot be unwound so. From the moment when the program
//! begins to end, a thread that comes out of a call therefore pauses before it asks for the lock.
//! It goes on if there still is an interpreter: what ends a program may wait for such a thread.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

/// Longer than Python takes from its last `atexit` function to the end of its other threads.
const PAUSE: Duration = Duration::from_secs(1);

static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// The threads that are about to ask for the lock, and do not look at `IS_ENDING` any more.
static RETURNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Of the thread that ends the program.
    static ENDS_PROGRAM: Cell<bool> = const { Cell::new(false) };
}

/// Whether the program has begun to end.
pub(crate) fn is_ending() -> bool {
    // Relaxed: nothing depends on when that is seen.
    IS_ENDING.load(Ordering::Relaxed)
}

/// Works without the interpreter's lock, and takes it again.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    let output = py.detach(|| {
        let output = work();
        before_attaching();
        output
    });
    // Relaxed: the interpreter's lock orders it.
    RETURNING.fetch_sub(1, Ordering::Relaxed);
    output
}

fn before_attaching() {
    // SeqCst, with `begin_exit`: that sees this thread counted, or this thread sees that.
    RETURNING.fetch_add(1, Ordering::SeqCst);
    if IS_ENDING.load(Ordering::SeqCst) && !ENDS_PROGRAM.get() {
        RETURNING.fetch_sub(1, Ordering::Relaxed);
        sleep(PAUSE);
        while Python::try_attach(|_| ()).is_none() {
            sleep(PAUSE);
        }
        RETURNING.fetch_add(1, Ordering::Relaxed);
    }
}

/// The program ends by this thread. Waits for those that take the lock already.
#[pyfunction]
pub(crate) fn begin_exit(py: Python<'_>) {
    ENDS_PROGRAM.set(true);
    let end = Instant::now() + PAUSE;
    // SeqCst, the partner of `before_attaching`: the flag is set, and then the threads are counted.
    IS_ENDING.store(true, Ordering::SeqCst);
    while RETURNING.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        py.detach(|| sleep(Duration::from_millis(1)));
    }
}

/// In the child there is this thread alone.
pub(crate) fn after_fork() {
    RETURNING.store(0, Ordering::Relaxed);
}
