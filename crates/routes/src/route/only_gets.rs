//! mcrouter's `--allow-only-gets`: only gets reach servers. Other commands are answered as misses.

use std::sync::Arc;

use super::{Answer, Pick, Route, RouteRef, default_outcome};
use crate::context::Context;
use upstream::{CommandClass, OwnedReply, Request};

/// Passes only gets.
#[derive(Debug)]
pub struct OnlyGetsRoute {
    /// The child for gets.
    pub child: RouteRef,
}

fn is_get(request: &Request<'_>) -> bool {
    request.op.class() == CommandClass::Get
}

impl Route for OnlyGetsRoute {
    fn name(&self) -> String {
        "only-gets".to_owned()
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        if is_get(request) {
            self.child.pick(cx, request)
        } else {
            Pick::Answer(default_outcome(request.op))
        }
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if is_get(&request) {
            return self.child.route(cx, request);
        }
        Box::pin(async move { OwnedReply::of(default_outcome(request.op)) })
    }

    fn next(&self, _cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        if is_get(request) { vec![Arc::clone(&self.child)] } else { Vec::new() }
    }
}
