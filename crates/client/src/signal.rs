//! Waiting for a future: the thread sleeps, or drives an inbox's connections (see
//! [`crate::driver_handoff`]).

use std::cell::RefCell;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use crate::driver_handoff::DriverKind;
use crate::inbox::Inbox;

/// What wakes a thread that waits.
#[derive(Debug)]
pub(crate) struct Signal {
    thread: Thread,
    /// Names the one who waits.
    number: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_woken: bool,
    /// Where the thread sleeps as the caller driver.
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
    fn new() -> Arc<Self> {
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

    /// Sleeps by `sleep`, which ends when the eventfd of this inbox's caller driver rings; not at
    /// all once it is woken.
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
    fn wait(&self) {
        while !std::mem::take(&mut self.lock().is_woken) {
            thread::park();
        }
    }
}

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
pub(crate) fn asker() -> u64 {
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
        if let Some(guard) = polling.end().and_then(|inbox| inbox.take_driver()) {
            guard.drive(&signal);
        }
        // Whoever wakes has stored first; a wake that came already ends the sleep at once.
        signal.wait();
    };
    SIGNAL.set(Some((signal, waker)));
    output
}
