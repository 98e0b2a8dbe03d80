//! Sends a request to all children, for the routes that do so.

use std::sync::Arc;

use super::{Answer, RouteRef};
use crate::context::Context;
use upstream::{CommandClass, OwnedReply, Request};

/// The pending answers of `children`.
pub(super) fn ask<'a>(
    children: &'a [RouteRef],
    cx: &'a Arc<Context>,
    request: Request<'a>,
) -> Vec<Answer<'a>> {
    children.iter().map(|child| child.route(cx, request)).collect()
}

/// Asks `children` without delaying the reply. If there is no room for that, a shadow loses the
/// request, unless it is a delete; for everything else the client waits.
pub(super) fn ask_aside(children: &[RouteRef], cx: &Arc<Context>, request: &Request<'_>) {
    let may_be_missing = request.is_shadow && request.op.class() != CommandClass::Delete;
    for child in children {
        if may_be_missing {
            copy_aside(child, cx, request);
        } else {
            cx.spawn_aside(request.bytes(), owned(child, cx, request));
        }
    }
}

/// Asks `child` for an optional copy without delaying the reply, if there is room.
pub(super) fn copy_aside(child: &RouteRef, cx: &Arc<Context>, request: &Request<'_>) {
    if let Some(charge) = cx.copy_room(request.bytes()) {
        cx.spawn_charged(charge, owned(child, cx, request));
    }
}

/// Asks `child` with copies of its arguments, which are made at once.
fn owned(
    child: &RouteRef,
    cx: &Arc<Context>,
    request: &Request<'_>,
) -> impl Future<Output = ()> + Send + use<> {
    let (child, request, context) = (Arc::clone(child), request.to_owned(), Arc::clone(cx));
    async move { drop(child.route(&context, request.get()).await) }
}

/// The worse of two replies, the first if they are equally bad.
pub(super) fn worse(one: OwnedReply, other: OwnedReply) -> OwnedReply {
    if other.outcome.severity() > one.outcome.severity() { other } else { one }
}
