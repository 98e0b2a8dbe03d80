//! Asking all children, for the routes that do.

use std::sync::Arc;

use super::{Answer, RouteRef};
use crate::context::Context;
use upstream::{OwnedReply, Request};

/// The answers of `children`, to come.
pub(super) fn ask<'a>(
    children: &'a [RouteRef],
    cx: &'a Arc<Context>,
    request: Request<'a>,
) -> Vec<Answer<'a>> {
    children.iter().map(|child| child.route(cx, request)).collect()
}

/// Asks `children` behind the caller's back.
pub(super) fn ask_aside(children: &[RouteRef], cx: &Arc<Context>, request: &Request<'_>) {
    for child in children {
        let (child, request, context) = (Arc::clone(child), request.to_owned(), Arc::clone(cx));
        cx.spawn(async move { drop(child.route(&context, request.get()).await) });
    }
}

/// The worse of two replies, the first if they are equally bad.
pub(super) fn worse(one: OwnedReply, other: OwnedReply) -> OwnedReply {
    if other.outcome.severity() > one.outcome.severity() { other } else { one }
}
