//! Before a server of a pool whose statistics are wanted: what comes of clients' requests counts for the pool that was asked last.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Answer, DestinationRoute, Route, RouteRef};
use crate::context::Context;
use crate::reply::Outcome;
use crate::request::Request;

/// What came of the requests that a pool was asked; all workers count here. Relaxed: who reads may see one sum newer than another.
#[derive(Debug, Default)]
pub struct PoolCounts {
    /// Requests to servers of the pool, whatever came of them.
    pub asked: AtomicU64,
    /// Replies to clients for which this pool was asked last.
    pub replied: AtomicU64,
    /// Those of them that were errors.
    pub failed: AtomicU64,
    /// The microseconds from these clients' requests to their replies.
    pub total_us: AtomicU64,
}

/// Which pool was asked last for a client's request.
#[derive(Debug, Default)]
pub struct Trail(Mutex<Option<Arc<PoolCounts>>>);

impl Trail {
    fn note(&self, counts: &Arc<PoolCounts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(counts));
    }

    /// The client is given its reply, after so long.
    pub(crate) fn finish(self, outcome: Outcome, us: u64) {
        let last = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        let Some(counts) = last else { return };
        counts.replied.fetch_add(1, Ordering::Relaxed);
        counts.failed.fetch_add(u64::from(outcome.failure().is_some()), Ordering::Relaxed);
        counts.total_us.fetch_add(us, Ordering::Relaxed);
    }
}

impl PartialEq for Trail {
    /// The same one.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Trail {}

/// See the head of this file.
#[derive(Debug)]
pub struct CountedRoute {
    /// Where to.
    pub target: RouteRef,
    /// The pool's name.
    pub pool: String,
    /// Where it is counted.
    pub counts: Arc<PoolCounts>,
}

impl Route for CountedRoute {
    fn name(&self) -> String {
        format!("counted|{}", self.pool)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        self.counts.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(trail) = request.trail {
            trail.note(&self.counts);
        }
        self.target.route(cx, request)
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target)]
    }

    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        self.target.server(cx, request)
    }
}
