//! `AllSyncRoute`: asks all children and replies with the worst answer.

use std::sync::Arc;

use super::all::ask;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};

/// Waits for all. The first decides a delete with a cas unique.
#[derive(Debug)]
pub struct AllSyncRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Route for AllSyncRoute {
    fn name(&self) -> String {
        "all-sync".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let Some((first, others)) = self.children.split_first() else {
            return Box::pin(async { OwnedReply::from(Failure::LocalError) });
        };
        Box::pin(ask(first, others, cx, request))
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
