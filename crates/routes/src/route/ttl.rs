//! The remaining lifetime of an item, by `mg key t`. Stock servers support it since memcached 1.6.
//! It counts as a use of the item, as mcrouter's `metaget` does.

use std::sync::Arc;

use proto::answer::MetaCode;
use proto::number::parse_i64;

use super::RouteRef;
use crate::context::Context;
use upstream::{Command, Failure, Outcome, Request};

/// A server's report of an item's lifetime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ttl {
    /// The item does not exist.
    Absent,
    /// The server does not report it.
    Failed(Failure),
    /// The remaining lifetime in seconds, as a client would set it: 0 is forever.
    Lives(i64),
}

/// Asks `route` for the remaining lifetime of the item with the key of `request`.
pub(super) async fn of(route: &RouteRef, cx: &Arc<Context>, request: &Request<'_>) -> Ttl {
    let request = Request { words: b"t", ..request.derived(Command::MetaGet, request.key) };
    let reply = route.route(cx, request).await;
    match reply.outcome {
        Outcome::Meta(MetaCode::Hd | MetaCode::Va) => {
            let mut words = reply.words.split(|byte| *byte == b' ');
            let secs = words.find_map(|word| word.strip_prefix(b"t").and_then(parse_i64));
            // An item in its last second reports 0, which would mean forever.
            Ttl::Lives(secs.map_or(1, |secs| if secs < 0 { 0 } else { secs.max(1) }))
        }
        Outcome::Failed(failure) => Ttl::Failed(failure),
        _ => Ttl::Absent,
    }
}
