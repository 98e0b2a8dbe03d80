//! Ticks of the main thread: while it waits in a call, it returns to Python now and then, whose
//! handlers of signals run then.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

const TICK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    /// Of the main thread, if it has waited since the last tick.
    waker: Option<Waker>,
    ticks: u64,
    is_asleep: bool,
}

/// Wakes the main thread at each tick. Its thread sleeps while no call waits.
#[derive(Default)]
struct Ticker {
    state: Mutex<State>,
    called: Condvar,
}

thread_local! {
    /// `None` before the thread's first call; `Some(None)` where it is not the main thread.
    static TICKER: RefCell<Option<Option<Arc<Ticker>>>> = const { RefCell::new(None) };
}

impl Ticker {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs for ever, in a thread of its own.
    fn run(&self) {
        loop {
            let mut state = self.lock();
            while state.waker.is_none() {
                state.is_asleep = true;
                state = self.called.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.is_asleep = false;
            drop(state);
            thread::sleep(TICK);
            let mut state = self.lock();
            state.ticks += 1;
            let waker = state.waker.take();
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Has the next tick wake this; how many there were.
    fn wake_later(&self, waker: &Waker) -> u64 {
        let mut state = self.lock();
        state.waker = Some(waker.clone());
        let (ticks, is_asleep) = (state.ticks, state.is_asleep);
        drop(state);
        if is_asleep {
            self.called.notify_one();
        }
        ticks
    }
}

/// The ticker of this thread, which is started at the main thread's first call.
fn ticker() -> Option<Arc<Ticker>> {
    TICKER.with_borrow_mut(|ticker| ticker.get_or_insert_with(start).clone())
}

fn start() -> Option<Arc<Ticker>> {
    if rustix::thread::gettid() != rustix::process::getpid() {
        return None;
    }
    let ticker = Arc::new(Ticker::default());
    let own = Arc::clone(&ticker);
    // Without a thread calls wait to their end.
    thread::Builder::new().name("holdall-ticks".into()).spawn(move || own.run()).ok()?;
    Some(ticker)
}

/// The output of a future; `None` when signals are to be handled before it is polled again.
pub(crate) async fn until_tick<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let ticker = ticker();
    let mut begun = None;
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        let Some(ticker) = &ticker else { return Poll::Pending };
        match begun {
            Some(begun) if ticker.lock().ticks != begun => Poll::Ready(None),
            Some(_) => Poll::Pending,
            None => {
                begun = Some(ticker.wake_later(context.waker()));
                Poll::Pending
            }
        }
    })
    .await
}

/// A fork copies no thread but this one, which is the child's main thread.
pub(crate) fn after_fork() {
    TICKER.set(None);
}
