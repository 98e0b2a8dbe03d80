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
//! 4. A reply of the cache shows that a value is current to the callers that joined before its
//!    request was sent. Another process may have deleted the key before a later caller's request.

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
    /// A value; `is_current` if the cache had it after this caller requested it.
    Value { value: Value, is_current: bool },
}

/// The end of a flight.
#[derive(Debug)]
enum End {
    GivenUp,
    Failed(Arc<dyn Any + Send + Sync>),
    /// A value, and the number of the request that has shown that it is current; 0: none has.
    Value(Value, u64),
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
    end: Option<End>,
    /// The leaders' requests since the flight began.
    requests: u64,
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
    /// The number of this caller's last request; 0: none yet.
    request: u64,
    loads: bool,
    has_ended: bool,
}

/// A caller that waits for a flight's outcome.
#[derive(Debug)]
pub(crate) struct Follower {
    flight: Arc<Flight>,
    /// The number of the leaders' last request before it joined.
    joined_after: u64,
}

/// The role of a caller after a miss.
#[derive(Debug)]
pub(crate) enum Joined<'f> {
    Follower(Follower),
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
            return Joined::Follower(Follower::new(flight));
        }
        Joined::Leader(self.begin(&mut keys, key))
    }

    /// Joins the flight after that of `old`, or starts it.
    pub(crate) fn join_after<'f>(&'f self, key: &'f [u8], old: &Follower) -> Joined<'f> {
        let mut keys = lock(&self.keys);
        match keys.get(key).filter(|flight| !Arc::ptr_eq(flight, &old.flight)) {
            Some(flight) => Joined::Follower(Follower::new(flight)),
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
        Leader { flights: self, key, flight, request: 0, loads: false, has_ended: false }
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

    /// Counts a request whose reply may show that a value is current. The caller sends it
    /// afterwards.
    pub(crate) fn requests(&mut self) {
        let mut state = lock(&self.flight.0);
        state.requests += 1;
        self.request = state.requests;
    }

    /// Waits for the outcome of another leader of the same flight.
    pub(crate) fn follows(&self) -> Follower {
        Follower::new(&self.flight)
    }

    /// Ends the flight with a value, which is made only if a caller waits. `is_current`: the last
    /// [request](Self::requests) has shown that.
    pub(crate) fn finish(mut self, value: impl FnOnce() -> Value, is_current: bool) {
        let request = if is_current { self.request } else { 0 };
        self.end(|_| true, || End::Value(value(), request));
    }

    /// Ends the flight with the error of this caller's loader, unless another one loads.
    pub(crate) fn fail(mut self, error: Arc<dyn Any + Send + Sync>) {
        self.end(|state| state.loaders == 0, || End::Failed(error));
    }

    /// Stops leading; the flight ends if it `ends`.
    fn end(&mut self, ends: impl FnOnce(&State) -> bool, end: impl FnOnce() -> End) {
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
            self.flight.settle(end());
        }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(|state| state.leaders == 0, || End::GivenUp);
        }
    }
}

impl Flight {
    /// The first outcome counts.
    fn settle(&self, end: End) {
        let mut state = lock(&self.0);
        state.end.get_or_insert(end);
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Follower {
    fn new(flight: &Arc<Flight>) -> Self {
        let joined_after = lock(&flight.0).requests;
        Self { flight: Arc::clone(flight), joined_after }
    }

    fn outcome(&self, end: &End) -> Finished {
        match end {
            End::GivenUp => Finished::GivenUp,
            End::Failed(error) => Finished::Failed(Arc::clone(error)),
            End::Value(value, request) => {
                Finished::Value { value: value.clone(), is_current: *request > self.joined_after }
            }
        }
    }

    /// Waits for the outcome.
    pub(crate) async fn finished(&self) -> Finished {
        poll_fn(|context| {
            let mut state = lock(&self.flight.0);
            if let Some(end) = &state.end {
                return Poll::Ready(self.outcome(end));
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

    fn land(mut leader: Leader<'_>) {
        leader.requests();
        leader.finish(Value::default, true);
    }

    fn follower<'f>(flights: &'f Flights, key: &'f [u8]) -> Follower {
        match flights.join(key) {
            Joined::Follower(follower) => follower,
            Joined::Leader(_) => panic!("there is a flight"),
        }
    }

    fn outcome(flight: &Follower) -> Option<Finished> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(flight.finished()).poll(&mut context) {
            Poll::Ready(finished) => Some(finished),
            Poll::Pending => None,
        }
    }

    #[test]
    fn followers_get_the_outcome_and_the_next_caller_leads() {
        let flights = Flights::default();
        let Joined::Leader(leader) = flights.join(b"k") else { panic!("nobody flies") };
        assert!(matches!(flights.join(b"other"), Joined::Leader(_)));
        let flight = follower(&flights, b"k");
        assert!(outcome(&flight).is_none());
        land(leader);
        assert!(matches!(outcome(&flight), Some(Finished::Value { is_current: true, .. })));
        assert!(matches!(flights.join(b"k"), Joined::Leader(_)));
    }

    /// The second caller's request may have come after a delete, and the leader's before it.
    #[test]
    fn a_value_is_current_for_those_who_joined_before_its_request() {
        let flights = Flights::default();
        let Joined::Leader(mut leader) = flights.join(b"k") else { panic!("nobody flies") };
        let before = follower(&flights, b"k");
        leader.requests();
        let after = follower(&flights, b"k");
        leader.finish(Value::default, true);
        assert!(matches!(outcome(&before), Some(Finished::Value { is_current: true, .. })));
        assert!(matches!(outcome(&after), Some(Finished::Value { is_current: false, .. })));
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
    fn a_stuck_flight_is_replaced_by_one_other() {
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
        assert!(matches!(outcome(&asks.follows()), Some(Finished::Failed(_))));
        assert_eq!(flights.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_outcome_without_followers_is_not_computed() {
        let flights = Flights::default();
        flights.lead(b"k").finish(|| panic!("nobody waits"), true);
    }

    #[test]
    fn after_a_write_no_caller_joins_an_older_flight() {
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
