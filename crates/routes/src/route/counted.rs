//! Wraps a server of a pool to count its results. The result of a client's request counts for the
//! pool that was used last.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Answer, DestinationRoute, Route, RouteRef};
use crate::context::Context;
use upstream::{PoolCounts, Request};

/// Counts requests, and their results, for a pool.
#[derive(Debug)]
pub struct CountedRoute {
    /// The child.
    pub target: RouteRef,
    /// The pool's name.
    pub pool: String,
    /// The pool's counts.
    pub counts: Arc<PoolCounts>,
}

impl Route for CountedRoute {
    fn name(&self) -> String {
        format!("counted|{}", self.pool)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        // Relaxed: the number is only for display.
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
