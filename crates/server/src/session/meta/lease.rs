//! Replies to `mg` with a lease that finds nothing.
//!
//! ```text
//!     mg k v G     ->  VA 5               it is there
//!                      VA n W GT          absent: W, fill it with token T; X: it is stale
//!                      VA n Z             absent, and Z, another client fills it
//! ```

use engine::{Key, LeaseMiss, MetaHit, Miss};
use proto::meta::Request;
use proto::meta::reply::{self, ItemFacts, Status};
use store::{Pin, Section};

use crate::session::context::Context;
use crate::session::state::Session;
use crate::session::value_out::LINE_END;

/// Answers an `mg` with a lease or for stale values that missed. `None`: the caller looks up again.
#[cold]
pub(super) fn miss(
    cx: &Context,
    section: &Section<'_>,
    session: &Session,
    request: &Request<'_>,
    key: Key<'_>,
    out: &mut Vec<u8>,
) -> Option<Option<Pin>> {
    let wants_lease = request.options.lease.is_some();
    let miss = if wants_lease {
        cx.engine.lease_miss(section, key)?
    } else {
        LeaseMiss { token: None, stale: cx.engine.stale(section, key) }
    };
    let is_wait = wants_lease && miss.token.is_none();
    if let Some(item) = miss.stale {
        let hit = MetaHit::stale(item, miss.token, is_wait);
        return Some(super::answer_hit(cx, session, request, &hit, out));
    }
    if !wants_lease {
        super::answer_miss(cx, session, request, Miss::Absent, out);
        return Some(None);
    }
    if cx.reporter.is_busy() {
        cx.reporter.fetched(session, request.key, Err(&Miss::Absent));
    }
    let facts = ItemFacts {
        won: miss.token.is_some(),
        win_sent: is_wait,
        lease: miss.token,
        key_is_base64: request.options.base64,
        ..ItemFacts::default()
    };
    if request.options.value {
        reply::write_value_header(out, request, 0, &facts);
        out.extend_from_slice(LINE_END);
    } else {
        reply::write_item(out, request, Status::Done, &facts);
    }
    Some(None)
}
