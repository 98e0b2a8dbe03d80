//! `AllFastestRoute`: all children, and the first reply that is no failure.

use std::sync::Arc;

use super::all::ask;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::join;
use upstream::{Failure, OwnedReply, Request};

/// If all fail, the reply is the last one.
#[derive(Debug)]
pub struct AllFastestRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Route for AllFastestRoute {
    fn name(&self) -> String {
        "all-fastest".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let mut answers = ask(&self.children, cx, request);
            let mut last = OwnedReply::from(Failure::LocalError);
            while let Some(reply) = join::next(&mut answers).await {
                let fails = reply.outcome.failure().is_some_and(Failure::fails_over);
                last = reply;
                if !fails {
                    break;
                }
            }
            last
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
