//! `AllAsyncRoute`: asks all children and waits for none.

use std::sync::Arc;

use super::all::ask_aside;
use super::null::default_outcome;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{OwnedReply, Request};

/// Answers at once like a miss.
#[derive(Debug)]
pub struct AllAsyncRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Route for AllAsyncRoute {
    fn name(&self) -> String {
        "all-async".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        // Requests behind the reply do not fail over.
        ask_aside(&self.children, cx, &Request { fails_over: false, ..request });
        Box::pin(async move { OwnedReply::of(default_outcome(request.op)) })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
