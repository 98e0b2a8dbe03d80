//! Sends a request to all children, for the routes that do so.

use std::sync::Arc;

use super::{Answer, RouteRef, words};
use crate::context::Context;
use upstream::{CommandClass, OwnedReply, Request};

/// The pending answers of `children`; all but the first get `words` in place of the request's.
pub(super) fn ask<'a>(
    children: &'a [RouteRef],
    cx: &'a Arc<Context>,
    request: Request<'a>,
    words: &'a [u8],
) -> Vec<Answer<'a>> {
    let ask = |(index, child): (usize, &'a RouteRef)| {
        let words = if index == 0 { request.words } else { words };
        child.route(cx, Request { words, ..request })
    };
    children.iter().enumerate().map(ask).collect()
}

/// The words of a delete for another server than the one that decides it: without the cas unique,
/// which would keep the value in the others. `None`: those of the request.
pub(super) fn words_of_copy(request: &Request<'_>) -> Option<Vec<u8>> {
    let is_delete = request.op.class() == CommandClass::Delete;
    is_delete.then(|| words::without_unique(request.words)).flatten()
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

/// Asks `child` with copies of its arguments, which are made at once. A delete has no cas unique.
fn owned(
    child: &RouteRef,
    cx: &Arc<Context>,
    request: &Request<'_>,
) -> impl Future<Output = ()> + Send + use<> {
    let words = words_of_copy(request);
    let words = words.as_deref().unwrap_or(request.words);
    let request = Request { words, ..*request }.to_owned();
    let (child, context) = (Arc::clone(child), Arc::clone(cx));
    async move { drop(child.route(&context, request.get()).await) }
}

/// The worse of two replies, the first if they are equally bad.
pub(super) fn worse(one: OwnedReply, other: OwnedReply) -> OwnedReply {
    if other.outcome.severity() > one.outcome.severity() { other } else { one }
}
