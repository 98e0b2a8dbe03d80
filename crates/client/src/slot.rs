//! The place where answers meet the caller that waits for them.
//!
//! # Laws
//!
//! 1. A slot belongs to one call. Its holder can write only the answers of this call, each once.
//! 2. Answers after the last one, or after the deadline, are dropped; but a lease is returned
//!    (`driver.rs`).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use proto::answer::MetaCode;
use proto::number::parse_u64;
use upstream::{Failure, Outcome, OwnedReply, Reply};

/// The token of a lease that asks to wait.
pub(crate) const HOT_MISS: u64 = 1;

/// The answers of one call, and the thread or task that waits for them.
#[derive(Debug)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Debug)]
struct State {
    /// One for each request of the call.
    replies: Vec<Option<OwnedReply>>,
    /// The number of missing replies.
    left: usize,
    /// The caller takes no more replies.
    is_abandoned: bool,
    /// The key of a request for a lease.
    lease_key: Vec<u8>,
    waker: Option<Waker>,
}

impl Slot {
    /// For a call of `requests` requests.
    pub(crate) fn new(requests: usize) -> Arc<Self> {
        Self::with_lease_key(requests, Vec::new())
    }

    /// For a call of one request, which may bring a lease of this key.
    pub(crate) fn for_lease(key: &[u8]) -> Arc<Self> {
        Self::with_lease_key(1, key.to_vec())
    }

    fn with_lease_key(requests: usize, lease_key: Vec<u8>) -> Arc<Self> {
        let replies = (0..requests).map(|_| None).collect();
        Arc::new(Self(Mutex::new(State {
            replies,
            left: requests,
            is_abandoned: false,
            lease_key,
            waker: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the answer to one of the requests. With the last one, returns the waker.
    #[must_use = "somebody waits"]
    pub(crate) fn answer(&self, index: usize, reply: OwnedReply) -> Option<Waker> {
        let mut state = self.lock();
        let place @ None = state.replies.get_mut(index)? else { return None };
        *place = Some(reply);
        state.left -= 1;
        if state.left == 0 { state.waker.take() } else { None }
    }

    /// Gives up the call; returns the token of a lease that has come.
    pub(crate) fn abandon(&self) -> Option<u64> {
        let mut state = self.lock();
        state.is_abandoned = true;
        state.replies.iter().flatten().find_map(|reply| token_of(&reply.get()))
    }

    /// The key whose lease must be returned, if the call was given up.
    pub(crate) fn abandoned_lease(&self) -> Option<Vec<u8>> {
        let mut state = self.lock();
        state.is_abandoned.then(|| std::mem::take(&mut state.lease_key))
    }

    /// Answers all missing replies with this failure.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        if state.left == 0 {
            return;
        }
        state.is_abandoned = true;
        for place in state.replies.iter_mut().filter(|place| place.is_none()) {
            *place = Some(failure.into());
        }
        state.left = 0;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The token of a lease in a reply to lease-get, or to `mg` with `G`.
pub(crate) fn token_of(reply: &Reply<'_>) -> Option<u64> {
    let token = match reply.outcome {
        Outcome::Lease => Some(reply.number),
        Outcome::Meta(MetaCode::Va | MetaCode::Hd) => meta_token(reply.words),
        _ => None,
    };
    token.filter(|token| *token > HOT_MISS)
}

fn meta_token(words: &[u8]) -> Option<u64> {
    words.split(|byte| *byte == b' ').find_map(|word| parse_u64(word.strip_prefix(b"G")?))
}

/// The replies of a call, in the order of its requests. Dropping it gives the call up.
#[derive(Debug)]
#[must_use = "the replies come by awaiting it"]
pub(crate) struct Pending(pub(crate) Arc<Slot>);

impl Future for Pending {
    type Output = Vec<OwnedReply>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<OwnedReply>> {
        let mut state = self.0.lock();
        if state.left > 0 {
            // The same task polls again, so its waker need not be cloned.
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                state.waker = Some(context.waker().clone());
            }
            return Poll::Pending;
        }
        Poll::Ready(std::mem::take(&mut state.replies).into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(pending: &mut Pending) -> Poll<Vec<OwnedReply>> {
        Pin::new(pending).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn replies_are_returned_in_request_order() {
        let mut pending = Pending(Slot::new(2));
        assert!(pending.0.answer(1, OwnedReply::of(Outcome::Stored)).is_none());
        assert_eq!(poll(&mut pending), Poll::Pending);
        assert!(pending.0.answer(0, OwnedReply::of(Outcome::Deleted)).is_some());
        let Poll::Ready(replies) = poll(&mut pending) else { panic!("pending") };
        assert_eq!(replies[0].outcome, Outcome::Deleted);
        assert_eq!(replies[1].outcome, Outcome::Stored);
    }

    #[test]
    fn the_lease_token_of_either_command_is_found() {
        let lease = |number| Reply { number, ..Reply::of(Outcome::Lease) };
        assert_eq!((token_of(&lease(7)), token_of(&lease(HOT_MISS))), (Some(7), None));
        let meta = |words| Reply { words, ..Reply::of(Outcome::Meta(MetaCode::Va)) };
        assert_eq!(token_of(&meta(b" f7 c0 X G99")), Some(99));
        assert_eq!((token_of(&meta(b" f7 c0 G1")), token_of(&meta(b" f7 c8"))), (None, None));
        let slot = Slot::for_lease(b"k");
        assert_eq!(slot.abandoned_lease(), None, "its caller waits");
        assert_eq!(slot.abandon(), None, "nothing has come");
        assert_eq!(slot.abandoned_lease().as_deref(), Some(&b"k"[..]));
    }

    #[test]
    fn replies_after_the_deadline_are_dropped() {
        let mut pending = Pending(Slot::new(2));
        assert!(pending.0.answer(0, OwnedReply::of(Outcome::Stored)).is_none());
        pending.0.fail(Failure::DeadlineExceeded);
        assert!(pending.0.answer(1, OwnedReply::of(Outcome::Found)).is_none());
        assert!(pending.0.answer(7, OwnedReply::of(Outcome::Found)).is_none());
        let Poll::Ready(replies) = poll(&mut pending) else { panic!("pending") };
        assert_eq!(replies[0].outcome, Outcome::Stored);
        assert_eq!(replies[1].outcome, Outcome::Failed(Failure::DeadlineExceeded));
        assert!(pending.0.answer(0, OwnedReply::of(Outcome::Found)).is_none());
        pending.0.fail(Failure::Busy);
    }
}
