//! `LoggingRoute`: a line in the log for every request and its reply.

use std::sync::Arc;

use super::null::default_outcome;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{OwnedReply, Request};

/// Logs every request and its reply.
#[derive(Debug)]
pub struct LoggingRoute {
    /// The child; without one the reply is a miss.
    pub target: Option<RouteRef>,
}

impl Route for LoggingRoute {
    fn name(&self) -> String {
        "logging".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let reply = match &self.target {
                Some(target) => target.route(cx, request).await,
                None => OwnedReply::of(default_outcome(request.op)),
            };
            let key = request.key.escape_ascii();
            let (op, sent, got) = (request.op.name(), request.value.len(), reply.value.len());
            cx.log(&format!(
                "request {op} {key} value {sent} reply {:?} value {got}",
                reply.outcome
            ));
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.target.iter().cloned().collect()
    }
}
