//! Clients that were dropped, and not closed: what they were to ask without a waiter is asked
//! before the program ends.

use std::mem;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use client::{Client, block_on};
use pyo3::prelude::*;

use crate::exit::{detached, is_ending};

/// The threads that close dropped clients. Its lock is taken under the interpreter's alone, so that
/// no fork meets it taken.
static CLOSING: Mutex<Vec<JoinHandle<()>>> = Mutex::new(Vec::new());

/// A client that is closed when it is dropped.
pub(crate) struct Kept {
    client: Arc<Client>,
    pub(crate) is_closed: AtomicBool,
    /// The process that has the client's threads.
    process: u32,
}

impl Kept {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self { client, is_closed: AtomicBool::new(false), process: process::id() }
    }
}

impl Drop for Kept {
    /// Closing waits for replies, so that is done by a thread.
    fn drop(&mut self) {
        // Relaxed: the last reference is gone, and with it whoever could still close.
        let is_closed = self.is_closed.load(Ordering::Relaxed);
        if is_closed || is_ending() || self.process != process::id() {
            return;
        }
        let client = Arc::clone(&self.client);
        let close = move || block_on(client.close());
        if let Ok(thread) = thread::Builder::new().name("holdall-close".into()).spawn(close) {
            let mut closing = closing();
            closing.retain(|thread| !thread.is_finished());
            closing.push(thread);
        }
    }
}

fn closing() -> MutexGuard<'static, Vec<JoinHandle<()>>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all that was dropped is closed.
#[pyfunction]
pub(crate) fn await_dropped(py: Python<'_>) {
    let threads = mem::take(&mut *closing());
    detached(py, || threads.into_iter().for_each(|thread| drop(thread.join())));
}

/// The child has none of these threads.
pub(crate) fn after_fork() {
    mem::forget(mem::take(&mut *closing()));
}
