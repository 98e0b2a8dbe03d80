//! One load of a key at a time in a process: a caller that misses a key while another one loads it
//! waits for that one's outcome (Go's libraries call this singleflight).
//!
//! # Laws
//!
//! 1. Every caller has sent its own request to the cache before it joins a flight, so hits are not
//!    shared.
//! 2. A flight ends when its leader is dropped for any reason: no caller waits for one without a
//!    leader.
//! 3. A caller that joined a flight after a write of the same client would get a value loaded
//!    before it, so a write makes the next caller start a new flight.

use std::any::Any;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::value::Value;

/// The outcome of a flight.
#[derive(Clone, Debug)]
pub(crate) enum Finished {
    /// The leader was dropped, or has no result for others.
    GivenUp,
    /// The error of the leader's loader.
    Failed(Arc<dyn Any + Send + Sync>),
    /// A value; `is_current` if the cache has shown that nothing changed the key since the waiting
    /// callers requested it.
    Value { value: Value, is_current: bool },
}

/// The flights of a client, by key.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    keys: Mutex<HashMap<Vec<u8>, Arc<Flight>>>,
    /// The number of keys, so that writes need not lock.
    count: AtomicUsize,
}

/// An ongoing load, or a wait for another process's.
#[derive(Debug, Default)]
pub(crate) struct Flight(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    finished: Option<Finished>,
    waiting: Vec<Waker>,
    /// The callers that query the cache or load, and the number of those that load.
    leaders: usize,
    loaders: usize,
}

/// A caller that queries the cache until another client has filled the key, or [loads](Self::load)
/// it. A flight may have both: the cache may give the lease to another caller of this process.
#[derive(Debug)]
pub(crate) struct Leader<'f> {
    flights: &'f Flights,
    key: &'f [u8],
    flight: Arc<Flight>,
    loads: bool,
    has_ended: bool,
}

/// The role of a caller after a miss.
#[derive(Debug)]
pub(crate) enum Joined<'f> {
    Follower(Arc<Flight>),
    Leader(Leader<'f>),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Flights {
    /// Joins the flight of `key`, or starts one.
    pub(crate) fn join<'f>(&'f self, key: &'f [u8]) -> Joined<'f> {
        let mut keys = lock(&self.keys);
        if let Some(flight) = keys.get(key) {
            return Joined::Follower(Arc::clone(flight));
        }
        Joined::Leader(self.begin(&mut keys, key))
    }

    /// Joins the flight after `old`, or starts it.
    pub(crate) fn join_after<'f>(&'f self, key: &'f [u8], old: &Arc<Flight>) -> Joined<'f> {
        let mut keys = lock(&self.keys);
        match keys.get(key).filter(|flight| !Arc::ptr_eq(flight, old)) {
            Some(flight) => Joined::Follower(Arc::clone(flight)),
            None => Joined::Leader(self.begin(&mut keys, key)),
        }
    }

    /// Leads the key's flight, or starts one, because the cache has chosen this caller to load.
    pub(crate) fn lead<'f>(&'f self, key: &'f [u8]) -> Leader<'f> {
        let mut keys = lock(&self.keys);
        let mut leader = match keys.get(key).cloned() {
            Some(flight) => self.leader(key, flight),
            None => self.begin(&mut keys, key),
        };
        leader.load();
        leader
    }

    fn begin<'f>(&'f self, keys: &mut HashMap<Vec<u8>, Arc<Flight>>, key: &'f [u8]) -> Leader<'f> {
        let flight = Arc::new(Flight::default());
        keys.insert(key.to_vec(), Arc::clone(&flight));
        // Relaxed: its caller orders a write with a flight, or nothing does.
        self.count.store(keys.len(), Ordering::Relaxed);
        self.leader(key, flight)
    }

    /// Called under the lock of the keys, so that a flight does not end in the meantime.
    fn leader<'f>(&'f self, key: &'f [u8], flight: Arc<Flight>) -> Leader<'f> {
        lock(&flight.0).leaders += 1;
        Leader { flights: self, key, flight, loads: false, has_ended: false }
    }

    /// Detaches the current flight, because the key is being written: later callers do not join it.
    pub(crate) fn detach(&self, key: &[u8]) {
        // Relaxed: see above.
        if self.count.load(Ordering::Relaxed) > 0 {
            let mut keys = lock(&self.keys);
            keys.remove(key);
            self.count.store(keys.len(), Ordering::Relaxed);
        }
    }
}

impl Leader<'_> {
    /// Makes this caller load from now on.
    pub(crate) fn load(&mut self) {
        if !std::mem::replace(&mut self.loads, true) {
            lock(&self.flight.0).loaders += 1;
        }
    }

    pub(crate) const fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// Ends the flight with a value, which is made only if a caller waits.
    pub(crate) fn finish(mut self, value: impl FnOnce() -> Value, is_current: bool) {
        self.end(|_| true, || Finished::Value { value: value(), is_current });
    }

    /// Ends the flight with the error of this caller's loader, unless another one loads.
    pub(crate) fn fail(mut self, error: Arc<dyn Any + Send + Sync>) {
        self.end(|state| state.loaders == 0, || Finished::Failed(error));
    }

    /// Stops leading; the flight ends if it `ends`.
    fn end(&mut self, ends: impl FnOnce(&State) -> bool, finished: impl FnOnce() -> Finished) {
        self.has_ended = true;
        let mut keys = lock(&self.flights.keys);
        let mut state = lock(&self.flight.0);
        state.leaders -= 1;
        state.loaders -= usize::from(self.loads);
        let ends = ends(&state);
        drop(state);
        if ends && keys.get(self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            keys.remove(self.key);
            self.flights.count.store(keys.len(), Ordering::Relaxed);
        }
        drop(keys);
        // Two: this one's, and a waiting caller's; no other can join any more.
        if ends && Arc::strong_count(&self.flight) > 1 {
            self.flight.settle(finished());
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(|state| state.leaders == 0, || Finished::GivenUp);
        }
    }
}

impl Flight {
    /// The first outcome counts.
    fn settle(&self, finished: Finished) {
        let mut state = lock(&self.0);
        state.finished.get_or_insert(finished);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for the outcome.
    pub(crate) async fn finished(&self) -> Finished {
        poll_fn(|context| {
            let mut state = lock(&self.0);
            if let Some(finished) = &state.finished {
                return Poll::Ready(finished.clone());
            }
            if !state.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                state.waiting.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::Context;

    fn land(leader: Leader<'_>) {
        leader.finish(Value::default, true);
    }

    fn follower<'f>(flights: &'f Flights, key: &'f [u8]) -> Arc<Flight> {
        match flights.join(key) {
            Joined::Follower(flight) => flight,
            Joined::Leader(_) => panic!("there is a flight"),
        }
    }

    fn outcome(flight: &Flight) -> Option<Finished> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(flight.finished()).poll(&mut context) {
            Poll::Ready(finished) => Some(finished),
            Poll::Pending => None,
        }
    }

    #[test]
    fn followers_get_the_outcome_and_the_next_begins_anew() {
        let flights = Flights::default();
        let Joined::Leader(leader) = flights.join(b"k") else { panic!("nobody flies") };
        assert!(matches!(flights.join(b"other"), Joined::Leader(_)));
        let flight = follower(&flights, b"k");
        assert!(outcome(&flight).is_none());
        land(leader);
        assert!(matches!(outcome(&flight), Some(Finished::Value { is_current: true, .. })));
        assert!(matches!(flights.join(b"k"), Joined::Leader(_)));
    }

    #[test]
    fn a_leader_that_is_dropped_leaves_nobody_waiting() {
        let flights = Flights::default();
        let leader = flights.lead(b"k");
        let flight = follower(&flights, b"k");
        drop(leader);
        assert!(matches!(outcome(&flight), Some(Finished::GivenUp)));
        assert_eq!(flights.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_flight_that_lasts_too_long_is_followed_by_one_other() {
        let flights = Flights::default();
        let stuck = flights.lead(b"k");
        let flight = follower(&flights, b"k");
        let Joined::Leader(next) = flights.join_after(b"k", &flight) else { panic!("stuck") };
        assert!(matches!(flights.join_after(b"k", &flight), Joined::Follower(_)));
        drop(stuck);
        assert!(matches!(flights.join(b"k"), Joined::Follower(_)), "the next goes on");
        drop(next);
    }

    /// The cache gave the lease to another caller than the one that polls.
    #[test]
    fn polling_and_loading_callers_share_a_flight() {
        let error = || -> Arc<dyn Any + Send + Sync> { Arc::new(5) };
        let flights = Flights::default();
        let Joined::Leader(asks) = flights.join(b"k") else { panic!("nobody flies") };
        let flight = follower(&flights, b"k");
        let given_up = flights.lead(b"k");
        drop(given_up);
        assert!(outcome(&flight).is_none(), "one asks on");
        let (first, second) = (flights.lead(b"k"), flights.lead(b"k"));
        first.fail(error());
        assert!(outcome(&flight).is_none(), "another loads");
        second.fail(error());
        assert!(matches!(outcome(&flight), Some(Finished::Failed(_))));
        assert!(matches!(outcome(asks.flight()), Some(Finished::Failed(_))));
        assert_eq!(flights.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_nobody_waits_for_is_not_made() {
        let flights = Flights::default();
        flights.lead(b"k").finish(|| panic!("nobody waits"), true);
    }

    #[test]
    fn after_a_write_nobody_joins_what_was_begun_before() {
        let flights = Flights::default();
        let old = flights.lead(b"k");
        let flight = follower(&flights, b"k");
        flights.detach(b"k");
        let Joined::Leader(new) = flights.join(b"k") else { panic!("an old flight is joined") };
        land(old);
        assert!(outcome(&flight).is_some());
        let flight = follower(&flights, b"k");
        assert!(outcome(&flight).is_none(), "the new flight goes on");
        land(new);
        assert!(outcome(&flight).is_some());
    }
}
