//! Sends a request to all children, for the routes that do so.

use std::sync::Arc;

use super::{RouteRef, words};
use crate::context::Context;
use crate::join;
use proto::answer::MetaCode;
use upstream::{CommandClass, Failure, Outcome, OwnedReply, Request};

/// Asks `first` and `others`, and returns the worst reply. `first` decides a delete with a cas
/// unique.
pub(super) async fn ask(
    first: &RouteRef,
    others: &[RouteRef],
    cx: &Arc<Context>,
    request: Request<'_>,
) -> OwnedReply {
    let Some(words) = words_of_copy(&request) else {
        let all = std::iter::once(first).chain(others);
        let replies = join::all(all.map(|child| child.route(cx, request)).collect()).await;
        let worst = replies.into_iter().reduce(worse);
        return worst.unwrap_or_else(|| OwnedReply::from(Failure::LocalError));
    };
    cx.takes_steps.set(true);
    let reply = first.route(cx, request).await;
    if is_refused(&reply) {
        return reply;
    }
    let copy = Request { words: &words, ..request };
    let replies = join::all(others.iter().map(|child| child.route(cx, copy)).collect()).await;
    replies.into_iter().fold(reply, worse)
}

/// Waits for the server that decides a delete with a cas unique, and then has `others` ask the
/// others, unless the unique differs.
pub(super) async fn decide(
    cx: &Context,
    first: impl Future<Output = OwnedReply>,
    others: impl FnOnce(),
) -> OwnedReply {
    cx.takes_steps.set(true);
    let reply = first.await;
    if !is_refused(&reply) {
        others();
    }
    reply
}

/// Returns true if the server that decides a delete has another cas unique. Nothing is deleted.
pub(super) fn is_refused(reply: &OwnedReply) -> bool {
    reply.outcome == Outcome::Meta(MetaCode::Ex)
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
