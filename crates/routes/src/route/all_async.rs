//! `AllAsyncRoute`: asks all children and waits for none.

use std::sync::Arc;

use super::all::{ask, ask_aside, words_of_copy};
use super::null::default_outcome;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{OwnedReply, Request};

/// Answers at once like a miss. The first child decides a delete with a cas unique.
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
        let aside = Request { fails_over: false, ..request };
        match self.children.split_first() {
            Some((first, others)) if words_of_copy(&request).is_some() => {
                let (first, others) = (Arc::clone(first), others.to_vec());
                let (context, aside) = (Arc::clone(cx), aside.to_owned());
                cx.spawn_aside(request.bytes(), async move {
                    drop(ask(&first, &others, &context, aside.get()).await);
                });
            }
            _ => ask_aside(&self.children, cx, &aside),
        }
        Box::pin(async move { OwnedReply::of(default_outcome(request.op)) })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
