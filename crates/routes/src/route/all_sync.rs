//! `AllSyncRoute`: asks all children and replies with the worst answer.

use std::sync::Arc;

use super::all::{ask, words_of_copy, worse};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::join;
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
        Box::pin(async move {
            let words = words_of_copy(&request);
            let words = words.as_deref().unwrap_or(request.words);
            let replies = join::all(ask(&self.children, cx, request, words)).await;
            replies
                .into_iter()
                .reduce(worse)
                .unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
