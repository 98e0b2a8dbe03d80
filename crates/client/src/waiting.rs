//! Waiting for a future: the thread sleeps, or drives an inbox's connections (see
//! [`crate::driver_handoff`]).

use std::cell::RefCell;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::driver_guard::DriverGuard;
use crate::driver_handoff::DriverKind;
use crate::inbox::Inbox;
use crate::signal::Signal;

/// What the future that a thread waits for has asked while it was polled.
#[derive(Default)]
struct Polled {
    /// Of the signal; 0 outside of [`block_on`].
    number: u64,
    /// Whose driver this thread has had for that.
    inbox: Option<Arc<Inbox>>,
}

thread_local! {
    /// The thread's signal, unless it waits already and is polling.
    static SIGNAL: RefCell<Option<(Arc<Signal>, Waker)>> = const { RefCell::new(None) };
    static POLLED: RefCell<Polled> = const { RefCell::new(Polled { number: 0, inbox: None }) };
}

/// The caller: the number of the thread's signal, and 0 if it waits for no future.
pub(crate) fn caller() -> u64 {
    POLLED.with_borrow(|polled| polled.number)
}

/// The future that is being polled has asked `inbox`, whose driver this thread has had.
pub(crate) fn has_asked(inbox: &Arc<Inbox>) {
    POLLED.with_borrow_mut(|polled| polled.inbox = Some(Arc::clone(inbox)));
}

/// While it lives, this thread's future is polled. If that ends without anybody waiting, what was
/// asked is the background driver's.
struct Polling(Polled);

impl Polling {
    fn begin(number: u64) -> Self {
        Self(POLLED.replace(Polled { number, inbox: None }))
    }

    /// The inbox that was asked.
    fn end(self) -> Option<Arc<Inbox>> {
        POLLED.with_borrow_mut(|polled| polled.inbox.take())
    }
}

impl Drop for Polling {
    fn drop(&mut self) {
        let polled = POLLED.replace(std::mem::take(&mut self.0));
        polled.inbox.iter().for_each(|inbox| inbox.call_background());
    }
}

/// Waits for a future on this thread, which sleeps meanwhile, or drives the client's connections if
/// nobody else does.
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
        if let Some(inbox) = polling.end()
            && let Some(driver) = inbox.take_driver()
        {
            DriverGuard::new(driver, &inbox, DriverKind::Caller).drive(&signal);
        }
        // Whoever wakes has stored first; a wake that came already ends the sleep at once.
        signal.wait();
    };
    SIGNAL.set(Some((signal, waker)));
    output
}
