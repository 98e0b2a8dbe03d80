//! The remaining lifetime of an item, by `mg key t`. Stock servers support it since memcached 1.6.
//! It counts as a use of the item, as mcrouter's `metaget` does.

use std::sync::Arc;

use proto::answer::MetaCode;
use proto::exptime::OFFSET_SECS_MAX;
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
    /// The expiry time that a client would set now: the remaining seconds, a Unix time if they are
    /// more than thirty days, or 0 for ever.
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
            Ttl::Lives(secs.map_or(1, |secs| as_exptime(secs, cx.unix_secs())))
        }
        Outcome::Failed(failure) => Ttl::Failed(failure),
        _ => Ttl::Absent,
    }
}

fn as_exptime(secs: i64, unix_secs: u64) -> i64 {
    match secs {
        ..0 => 0,
        // An item in its last second reports 0, which would mean forever.
        0..=OFFSET_SECS_MAX => secs.max(1),
        _ => secs.saturating_add(i64::try_from(unix_secs).unwrap_or(i64::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::as_exptime;

    #[test]
    fn a_lifetime_of_more_than_thirty_days_becomes_a_unix_time() {
        let of = |secs| as_exptime(secs, 1_800_000_000);
        assert_eq!([of(-1), of(0), of(1), of(2_592_000)], [0, 1, 1, 2_592_000]);
        assert_eq!(of(2_592_001), 1_802_592_001);
    }
}
