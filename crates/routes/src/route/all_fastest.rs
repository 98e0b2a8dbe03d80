//! `AllFastestRoute`: asks all children; the first reply that is not a failure wins.

use std::sync::Arc;

use super::race::Race;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};

/// If all fail, the reply is the last one. The other requests continue in the background. The first
/// child decides a delete with a cas unique.
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
            let race = Race::among(&self.children, cx, request).await;
            let succeeds =
                |reply: &OwnedReply| !reply.outcome.failure().is_some_and(Failure::fails_over);
            race.first(succeeds).await.unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
