//! Replies to the keys of `lease-get`.
//!
//! ```text
//!     lease-get k  ->  VALUE k 0 5        it is there
//!                      LVALUE k T 0 n     absent: fill it with token T; n stale bytes follow
//!                      LVALUE k 1 0 n     absent, and another client fills it: wait and ask again
//! ```

use engine::{Key, LEASE_WAIT, Miss};
use net::Output;
use proto::reply;
use proto::text::GetLine;

use super::KeyReply;
use crate::prefixes::Kind;
use crate::session::context::Context;
use crate::session::state::Session;
use crate::session::value_out::{self, LINE_END, Outgoing, outgoing};

/// Answers one key of a lease-get.
pub(super) fn answer_key(
    cx: &Context,
    session: &Session,
    key: Key<'_>,
    line: &GetLine,
    output: &mut Output<'_>,
) -> KeyReply {
    let section = cx.engine.section();
    let found = cx.engine.lease_get(&section, key);
    if cx.reporter.is_busy() {
        cx.reporter.fetched(session, key.bytes, found.as_ref().map_err(|_| &Miss::Absent));
    }
    cx.shared.prefixes.count(key.bytes, Kind::Get { is_hit: found.is_ok() });
    let miss = match found {
        Ok(item) => return super::write_item(cx, session.id, &key, &item, line, output),
        Err(miss) => miss,
    };
    let token = miss.token.unwrap_or(LEASE_WAIT);
    let (flags, len) = miss.stale.map_or((0, 0), |item| (item.flags(), item.value_len()));
    match miss.stale.as_ref().map_or(Outgoing::Inline(b""), outgoing) {
        Outgoing::Inline(value) => {
            reply::write_lease_header(output.buf(), key.bytes, token, flags, len);
            short::append(output.buf(), value);
            output.buf().extend_from_slice(LINE_END);
            KeyReply::Written
        }
        Outgoing::Pinned(pin) if value_out::begin(cx, session.id, &pin) => {
            reply::write_lease_header(output.buf(), key.bytes, token, flags, len);
            KeyReply::Value(pin)
        }
        // There is no room to send it; the token is worth more than the stale value.
        Outgoing::Pinned(_) => {
            reply::write_lease_header(output.buf(), key.bytes, token, 0, 0);
            output.buf().extend_from_slice(LINE_END);
            KeyReply::Written
        }
    }
}
