//! `AllInitialRoute`: asks all children and replies with the first child's answer.

use std::sync::Arc;

use super::all::{ask_aside, decide, words_of_copy};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};

/// Asks the other children in the background. The first decides a delete with a cas unique.
#[derive(Debug)]
pub struct AllInitialRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Route for AllInitialRoute {
    fn name(&self) -> String {
        "all-initial".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let Some((first, others)) = self.children.split_first() else {
            return Box::pin(async { OwnedReply::from(Failure::LocalError) });
        };
        // Requests behind the reply do not fail over.
        let aside = move || ask_aside(others, cx, &Request { fails_over: false, ..request });
        if words_of_copy(&request).is_some() {
            return Box::pin(decide(cx, first.route(cx, request), aside));
        }
        aside();
        first.route(cx, request)
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
