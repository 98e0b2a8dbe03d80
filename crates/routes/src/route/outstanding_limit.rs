//! `OutstandingLimitRoute`: limits a worker's concurrent outstanding requests. The others wait,
//! first come, first served.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{CommandClass, Count, Event, Failure, OwnedReply, Request, Traffic};
use upstream::{SendCell, SendRefCell};

/// Maximum number of waiting requests; further ones are [`Failure::Busy`].
const WAITING_MAX: usize = 100_000;

/// Maximum bytes of their values, as for unsent requests of a server
/// (`Settings::unsent_bytes_max`).
const WAITING_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Limits a worker's concurrent outstanding requests.
#[derive(Debug)]
pub struct OutstandingLimitRoute {
    /// The child.
    pub target: RouteRef,
    /// The places, and the requests that wait for one.
    pub semaphore: Semaphore,
}

/// Lets a number of requests pass at once.
#[derive(Debug)]
pub struct Semaphore {
    free: SendCell<u32>,
    /// The waiting requests, oldest first. A called ticket already has a place.
    waiting: SendRefCell<VecDeque<Arc<Waiter>>>,
    /// Bytes of their values.
    waiting_bytes: SendCell<usize>,
}

#[derive(Debug, Default)]
struct Waiter {
    is_called: SendCell<bool>,
    waker: SendRefCell<Option<Waker>>,
}

impl Semaphore {
    /// Allows `limit` requests at once.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        let (free, waiting) = (SendCell::new(limit), SendRefCell::default());
        Self { free, waiting, waiting_bytes: SendCell::new(0) }
    }

    /// Waits for a place; `None` if too many wait.
    async fn pass(&self, cx: &Context, request: &Request<'_>) -> Option<Place<'_>> {
        if self.free.get() > 0 {
            self.free.set(self.free.get() - 1);
            return Some(Place { semaphore: self });
        }
        let waiter = Arc::new(Waiter::default());
        let bytes = request.value.len();
        let waiting_bytes = self.waiting_bytes.get().saturating_add(bytes);
        let is_full = bytes > 0 && waiting_bytes > WAITING_BYTES_MAX;
        if is_full || self.waiting.borrow().len() >= WAITING_MAX {
            return None;
        }
        self.waiting_bytes.set(waiting_bytes);
        let (ahead, began_us) = (self.waiting.borrow().len() as u64, cx.now_us());
        self.waiting.borrow_mut().push_back(Arc::clone(&waiter));
        let turn = Turn { semaphore: self, waiter, bytes };
        poll_fn(|task| {
            if turn.waiter.is_called.get() {
                return Poll::Ready(());
            }
            *turn.waiter.waker.borrow_mut() = Some(task.waker().clone());
            Poll::Pending
        })
        .await;
        turn.waiter.is_called.set(false);
        count(cx.traffic(), request.op.class(), ahead, cx.now_us().saturating_sub(began_us));
        Some(Place { semaphore: self })
    }

    /// Gives a free place to the next request.
    fn leave(&self) {
        let Some(next) = self.waiting.borrow_mut().pop_front() else {
            self.free.set(self.free.get() + 1);
            return;
        };
        next.is_called.set(true);
        let waker = next.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Counts a request that has waited `us` microseconds, behind `ahead` others.
fn count(traffic: &Traffic, class: CommandClass, ahead: u64, us: u64) {
    let events = match class {
        CommandClass::Get => [Event::QueuedGets, Event::QueuedGetsAhead, Event::QueuedGetsUs],
        _ => [Event::QueuedUpdates, Event::QueuedUpdatesAhead, Event::QueuedUpdatesUs],
    };
    for (event, number) in events.into_iter().zip([1, ahead, us]) {
        traffic.add(Count::Event(event), number);
    }
}

/// A waiting request, which may give up.
struct Turn<'a> {
    semaphore: &'a Semaphore,
    waiter: Arc<Waiter>,
    bytes: usize,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting_bytes = &self.semaphore.waiting_bytes;
        waiting_bytes.set(waiting_bytes.get().saturating_sub(self.bytes));
        self.semaphore.waiting.borrow_mut().retain(|other| !Arc::ptr_eq(other, &self.waiter));
        if self.waiter.is_called.get() {
            self.semaphore.leave();
        }
    }
}

struct Place<'a> {
    semaphore: &'a Semaphore,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.semaphore.leave();
    }
}

impl Route for OutstandingLimitRoute {
    fn name(&self) -> String {
        "outstanding-limit".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let passed = self.semaphore.pass(cx, &request).await;
            let Some(_place) = passed else { return Failure::Busy.into() };
            let reply: OwnedReply = self.target.route(cx, request).await;
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target)]
    }
}
