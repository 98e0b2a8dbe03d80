//! Keeps the order of requests for a key of which one takes several steps.
//!
//! Most requests are sent in the turn in which they are submitted, and so reach a server in order.
//! A store or delete in several steps sends its last request only after earlier replies. A later
//! request for the key would overtake it, so it waits for the end of the last step.
//!
//! Routes announce such requests with [`Steps::note`]. Only requests for these keys wait, of any
//! client of the worker. A request in several steps waits for none, so there is no deadlock.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use upstream::{SendCell, SendRefCell};

/// The keys of one worker whose requests have steps ahead of them.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    /// The currently polled future takes several steps.
    is_noted: SendCell<bool>,
    keys: SendRefCell<HashMap<Box<[u8]>, Held>>,
    /// The number of keys. Every request reads it, and a cell is read faster than a borrow.
    count: SendCell<usize>,
}

#[derive(Debug, Default)]
struct Held {
    holders: usize,
    /// Requests that wait, in their order.
    waiting: Vec<Waker>,
}

impl Steps {
    /// Announces, before the first step, that the currently polled request takes several.
    pub(crate) fn note(&self) {
        self.is_noted.set(true);
    }

    /// Returns true if no key is held.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.get() == 0
    }

    /// Returns true if requests for the key must wait.
    pub(crate) fn holds(&self, key: &[u8]) -> bool {
        self.keys.borrow().contains_key(key)
    }

    /// Waits until no request for the key has steps ahead of it. Those that wait continue in their
    /// order: they are woken together, and the next one with several steps stops those behind it.
    pub(crate) async fn end(&self, key: &[u8]) {
        poll_fn(|context| match self.keys.borrow_mut().get_mut(key) {
            None => Poll::Ready(()),
            Some(held) => {
                held.waiting.push(context.waker().clone());
                Poll::Pending
            }
        })
        .await;
    }

    /// Runs a request for this key. Later ones wait for its end if it takes several steps.
    pub(crate) async fn run<T>(&self, key: &[u8], request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        let mut hold = None;
        poll_fn(|context| {
            let is_outer_noted = self.is_noted.replace(false);
            let poll = request.as_mut().poll(context);
            let is_noted = self.is_noted.get();
            if is_noted && hold.is_none() && poll.is_pending() {
                hold = Some(self.hold(key));
            }
            // The outer request may have another key.
            self.is_noted.set(is_noted || is_outer_noted);
            poll
        })
        .await
    }

    fn hold<'a>(&'a self, key: &'a [u8]) -> Hold<'a> {
        let mut keys = self.keys.borrow_mut();
        keys.entry(key.into()).or_default().holders += 1;
        self.count.set(keys.len());
        drop(keys);
        Hold { steps: self, key }
    }
}

/// A key that is held until this is dropped.
struct Hold<'a> {
    steps: &'a Steps,
    key: &'a [u8],
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let mut keys = self.steps.keys.borrow_mut();
        let Some(held) = keys.get_mut(self.key) else { return };
        held.holders -= 1;
        if held.holders > 0 {
            return;
        }
        let waiting = std::mem::take(&mut held.waiting);
        keys.remove(self.key);
        self.steps.count.set(keys.len());
        drop(keys);
        waiting.into_iter().for_each(Waker::wake);
    }
}
