//! The signal that wakes a thread: one that sleeps, or that drives an inbox's connections (see
//! [`crate::driver_handoff`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread::{self, Thread};

use crate::driver_handoff::DriverKind;
use crate::inbox::Inbox;

/// Wakes a waiting thread.
#[derive(Debug)]
pub(crate) struct Signal {
    thread: Thread,
    /// Identifies the waiting thread; never 0.
    pub(crate) number: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    /// The inbox at which the thread sleeps as the caller driver.
    leads: Option<Arc<Inbox>>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.lock();
        state.is_woken = true;
        let leads = state.leads.take();
        drop(state);
        match leads {
            Some(inbox) => inbox.notify(DriverKind::Caller),
            None => self.thread.unpark(),
        }
    }
}

impl Signal {
    pub(crate) fn new() -> Arc<Self> {
        /// Relaxed: numbers need only differ.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { thread: thread::current(), number, state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_woken(&self) -> bool {
        self.lock().is_woken
    }

    /// Sleeps by `sleep`, which ends when the eventfd of this inbox's caller driver is written;
    /// returns at once if it was woken before.
    pub(crate) fn sleep(&self, inbox: &Arc<Inbox>, sleep: impl FnOnce()) {
        let mut state = self.lock();
        if state.is_woken {
            return;
        }
        state.leads = Some(Arc::clone(inbox));
        drop(state);
        sleep();
        self.lock().leads = None;
    }

    /// Sleeps until it is woken.
    pub(crate) fn wait(&self) {
        while !std::mem::take(&mut self.lock().is_woken) {
            thread::park();
        }
    }
}
