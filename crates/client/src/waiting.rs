//! Waiting for a future: the thread sleeps, or drives an inbox's connections (see
//! [`crate::driver_handoff`]).

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::asking::release_held;
use crate::driver_guard::DriverGuard;
use crate::driver_handoff::DriverKind;
use crate::polled::Polling;
use crate::signal::Signal;

thread_local! {
    /// The thread's signal, unless it already waits and is polling.
    static SIGNAL: RefCell<Option<(Arc<Signal>, Waker)>> = const { RefCell::new(None) };
}

/// Waits for a future on this thread, which sleeps meanwhile, or drives the client's connections if
/// no other thread does.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let (signal, waker) = SIGNAL.take().unwrap_or_else(|| {
        let signal = Signal::new();
        (Arc::clone(&signal), Waker::from(signal))
    });
    let mut context = Context::from_waker(&waker);
    let output = loop {
        let polling = Polling::begin(signal.number);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            break output;
        }
        release_held();
        if let Some(inbox) = polling.end()
            && let Some(driver) = inbox.take_driver()
        {
            DriverGuard::new(driver, &inbox, DriverKind::Caller).drive(&signal);
        }
        // A waking thread has stored first; an earlier wake ends the sleep at once.
        signal.wait();
    };
    SIGNAL.set(Some((signal, waker)));
    output
}
