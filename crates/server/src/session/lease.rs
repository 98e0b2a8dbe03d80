//! Replies to lease reads that find nothing, in text and in meta.
//!
//! ```text
//!     lease-get k  ->  VALUE k 0 5        it is there
//!                      LVALUE k T 0 n     absent: fill it with token T; n stale bytes follow
//!                      LVALUE k 1 0 n     absent, and another client fills it: wait and ask again
//!     mg k v G     ->  VA 5               it is there
//!                      VA n W GT          absent: W, fill it with token T; X: it is stale
//!                      VA n Z             absent, and Z, another client fills it
//! ```

use engine::{Key, LEASE_WAIT, LeaseMiss, MetaHit, Miss};
use net::Output;
use proto::meta::Request;
use proto::meta::reply::{self as meta_reply, ItemFacts, Status};
use proto::reply;
use proto::text::GetLine;
use store::{Pin, Section};

use super::Worker;
use super::retrieve::KeyReply;
use super::state::Session;
use super::value_out::{LINE_END, Outgoing, outgoing};
use crate::prefixes::Kind;

impl Worker {
    /// Answers one key of a lease-get.
    pub(super) fn lease_key(
        &self,
        session: &Session,
        key: Key<'_>,
        line: &GetLine,
        output: &mut Output<'_>,
    ) -> KeyReply {
        let section = self.engine.section();
        let found = self.engine.lease_get(&section, key);
        if self.reporter.is_busy() {
            self.reporter.fetched(session, key.bytes, found.as_ref().map_err(|_| &Miss::Absent));
        }
        if self.shared.prefixes.is_on() {
            self.shared.prefixes.count(key.bytes, Kind::Get { is_hit: found.is_ok() });
        }
        let miss = match found {
            Ok(item) => return self.write_item(&key, &item, line, output),
            Err(miss) => miss,
        };
        let token = miss.token.unwrap_or(LEASE_WAIT);
        let (flags, len) = miss.stale.map_or((0, 0), |item| (item.flags(), item.value_len()));
        match miss.stale.as_ref().map_or(Outgoing::Inline(b""), outgoing) {
            Outgoing::Inline(value) => {
                reply::write_lease_header(output.buf(), key.bytes, token, flags, len);
                output.buf().extend_from_slice(value);
                output.buf().extend_from_slice(LINE_END);
                KeyReply::Written
            }
            Outgoing::Pinned(pin) if self.inflight.begin_send(len) => {
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

    /// Answers an `mg` that asked for a lease or for stale values, and missed. `None`: it is to
    /// look again.
    #[cold]
    pub(super) fn meta_lease_miss(
        &self,
        section: &Section<'_>,
        session: &Session,
        request: &Request<'_>,
        key: Key<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Option<Pin>> {
        let wants_lease = request.options.lease.is_some();
        let miss = if wants_lease {
            self.engine.lease_miss(section, key)?
        } else {
            LeaseMiss { token: None, stale: self.engine.stale(section, key) }
        };
        let is_wait = wants_lease && miss.token.is_none();
        if let Some(item) = miss.stale {
            let hit = MetaHit::stale(item, miss.token, is_wait);
            return Some(self.answer_hit(session, request, &hit, out));
        }
        if !wants_lease {
            self.answer_miss(session, request, Miss::Absent, out);
            return Some(None);
        }
        if self.reporter.is_busy() {
            self.reporter.fetched(session, request.key, Err(&Miss::Absent));
        }
        let facts = ItemFacts {
            won: miss.token.is_some(),
            win_sent: is_wait,
            lease: miss.token,
            key_is_base64: request.options.base64,
            ..ItemFacts::default()
        };
        if request.options.value {
            meta_reply::write_value_header(out, request, 0, &facts);
            out.extend_from_slice(LINE_END);
        } else {
            meta_reply::write_item(out, request, Status::Done, &facts);
        }
        Some(None)
    }
}
