//! `LatencyInjectionRoute`: deliberate delays, to test an application with a slow server.

use std::sync::Arc;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Event, Request};

/// Delays requests and replies; times are in microseconds.
#[derive(Debug)]
pub struct LatencyInjectionRoute {
    /// The child.
    pub child: RouteRef,
    /// The delay before the request is sent on.
    pub before_us: u64,
    /// The delay after the reply has come.
    pub after_us: u64,
    /// The minimum total time of a request.
    pub total_us: u64,
}

impl Route for LatencyInjectionRoute {
    fn name(&self) -> String {
        let [before, after, total] = [self.before_us, self.after_us, self.total_us];
        format!("latency-injection|before:{before}us|after:{after}us|total:{total}us")
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let began_us = cx.now_us();
            if self.before_us > 0 {
                cx.traffic().event(Event::DelayedBefore);
                cx.sleep_until(began_us.saturating_add(self.before_us)).await;
            }
            let reply = self.child.route(cx, request).await;
            if self.after_us > 0 {
                cx.traffic().event(Event::DelayedAfter);
                cx.sleep_until(cx.now_us().saturating_add(self.after_us)).await;
            }
            let end_us = began_us.saturating_add(self.total_us);
            if end_us > cx.now_us() {
                cx.traffic().event(Event::DelayedTotal);
                cx.sleep_until(end_us).await;
            }
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.child)]
    }
}
