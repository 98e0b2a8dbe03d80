//! `BigValueRoute`: stores a value above a limit in pieces under separate names. The key keeps a
//! list of them.
//!
//! ```text
//!     key          -> 1-<pieces>-<suffix>     client flags | 0x8000
//!     key:0:suffix -> the first piece ...
//! ```
//!
//! The suffix is a hash of the value, so pieces of one value are never taken for those of another.
//! A store with a condition has a random suffix: if it is refused, the pieces of the present
//! value are as they were. Format and flag are mcrouter's. No client reads the list: the route
//! refuses `mg`, `ms` except plain stores, and appends of more than a piece, which would follow the
//! list as a value. A shorter append destroys the list.

use std::ops::Range;
use std::sync::Arc;

use hashing::spooky_hash32;
use proto::answer::MetaCode;

use super::all::worse;
use super::plain_store::{failed, marked, plain_form, refused_change, refused_flag, stores_flag};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::join;
use upstream::{Command, CommandClass, Failure, Outcome, OwnedReply, Request};

/// Marks the list of pieces in client flags (mcrouter: `MC_MSG_FLAG_BIG_VALUE`).
const BIG_VALUE: u32 = 0x8000;

/// Maximum number of pieces of a value; a list with more is invalid.
const PIECES_MAX: u32 = 65_536;

/// Stores large values in pieces, and reassembles them.
#[derive(Debug)]
pub struct BigValueRoute {
    /// The child.
    pub target: RouteRef,
    /// Bytes of a piece, and the limit above which a value is cut; at least 1.
    pub split_bytes: usize,
    /// Pieces that are read or stored at once; 0 is all.
    pub batch: usize,
    /// Replies leave the flag 0x8000 out.
    pub hides_flag: bool,
}

/// The content of the key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct List {
    pieces: u32,
    suffix: u64,
}

impl List {
    fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?;
        let (version, rest) = text.split_once('-')?;
        let (pieces, suffix) = rest.split_once('-')?;
        let list = Self { pieces: pieces.parse().ok()?, suffix: suffix.parse().ok()? };
        (version == "1" && list.pieces <= PIECES_MAX).then_some(list)
    }

    fn text(self) -> Vec<u8> {
        format!("1-{}-{}", self.pieces, self.suffix).into_bytes()
    }

    fn key(self, key: &[u8], piece: u32) -> Vec<u8> {
        [key, format!(":{piece}:{}", self.suffix).as_bytes()].concat()
    }
}

impl BigValueRoute {
    fn batches(&self, pieces: u32) -> impl Iterator<Item = Range<u32>> {
        let batch =
            if self.batch == 0 { pieces } else { u32::try_from(self.batch).unwrap_or(pieces) };
        let batch = batch.max(1);
        let starts = (0..pieces).step_by(batch as usize);
        starts.map(move |start| start..start.saturating_add(batch).min(pieces))
    }

    /// The whole value; the worst reply, if a piece is unavailable. Pieces get the lifetime that
    /// the request sets; after a touch, the value is empty.
    async fn collect(&self, cx: &Arc<Context>, request: &Request<'_>, list: List) -> OwnedReply {
        let op = match request.op {
            Command::Gat | Command::Gats => Command::Gat,
            Command::Touch => Command::Touch,
            _ => Command::Get,
        };
        let exptime = request.exptime;
        let mut whole = OwnedReply::of(Outcome::Found);
        for batch in self.batches(list.pieces) {
            let keys: Vec<_> = batch.map(|piece| list.key(request.key, piece)).collect();
            let asked = keys
                .iter()
                .map(|key| self.target.route(cx, Request { exptime, ..request.derived(op, key) }));
            for piece in join::all(asked.collect()).await {
                if !matches!(piece.outcome, Outcome::Found | Outcome::Touched) {
                    return OwnedReply { value: piece.value, ..OwnedReply::of(piece.outcome) };
                }
                whole.value.extend_from_slice(&piece.value);
            }
        }
        whole
    }

    /// The reply to a get, with the whole value.
    async fn get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let mut reply = self.target.route(cx, request).await;
        if reply.outcome != Outcome::Found || reply.flags & BIG_VALUE == 0 {
            return reply;
        }
        let Some(list) = List::parse(&reply.value) else {
            return OwnedReply::of(Outcome::NotFound);
        };
        let whole = self.collect(cx, &request, list).await;
        if whole.outcome != Outcome::Found {
            return whole;
        }
        reply.value = whole.value;
        self.hide(&mut reply);
        reply
    }

    /// Touches an item, and then the pieces if it is a list: the client's later requests must not
    /// overtake its touch.
    async fn touch(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.target.route(cx, request).await;
        if reply.outcome != Outcome::Touched {
            return reply;
        }
        let held = self.target.route(cx, request.derived(Command::Get, request.key)).await;
        if held.flags & BIG_VALUE != 0
            && let Some(list) = List::parse(&held.value)
        {
            let touched = self.collect(cx, &request, list).await;
            if touched.outcome != Outcome::Found {
                return touched;
            }
        }
        reply
    }

    /// Adds to an item. If that was a list, it is one no more, and its value is lost.
    async fn append(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.target.route(cx, request).await;
        let is_done = matches!(reply.outcome, Outcome::Stored | Outcome::Meta(MetaCode::Hd));
        if !is_done || request.value.is_empty() {
            return reply;
        }
        let held = self.target.route(cx, request.derived(Command::Get, request.key)).await;
        if held.flags & BIG_VALUE == 0 {
            return reply;
        }
        refused_change(b"the value was stored in pieces, and is lost")
    }

    fn hide(&self, reply: &mut OwnedReply) {
        if self.hides_flag {
            reply.flags &= !BIG_VALUE;
        }
    }

    /// A list without its pieces would block all leases. It is deleted, and the lease requested
    /// again.
    async fn lease_get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        for _ in 0..2 {
            let mut reply = self.target.route(cx, request).await;
            if reply.flags & BIG_VALUE == 0 {
                return reply;
            }
            if reply.outcome != Outcome::Found {
                return self.stale(cx, &request, reply).await;
            }
            let listed = self.target.route(cx, request.derived(Command::Gets, request.key)).await;
            let whole = match List::parse(&reply.value) {
                Some(list) => self.collect(cx, &request, list).await,
                None => OwnedReply::of(Outcome::NotFound),
            };
            match whole.outcome {
                Outcome::Found => {
                    reply.value = whole.value;
                    self.hide(&mut reply);
                    return reply;
                }
                Outcome::NotFound if listed.value == reply.value => {
                    let dead = Request {
                        exptime: -1,
                        number: listed.number,
                        ..request.derived(Command::Cas, request.key)
                    };
                    drop(self.target.route(cx, dead).await);
                }
                Outcome::NotFound => {}
                _ => return whole,
            }
        }
        let value = b"BigValueRoute: the pieces of the value do not stay".to_vec();
        OwnedReply { value, ..OwnedReply::from(Failure::RemoteError) }
    }

    /// A lease whose stale value is a list: the value, or only the token if pieces are missing.
    async fn stale(
        &self,
        cx: &Arc<Context>,
        request: &Request<'_>,
        lease: OwnedReply,
    ) -> OwnedReply {
        let whole = match List::parse(&lease.value) {
            Some(list) => self.collect(cx, request, list).await,
            None => OwnedReply::of(Outcome::NotFound),
        };
        if whole.outcome != Outcome::Found {
            return OwnedReply { flags: 0, value: Vec::new(), ..lease };
        }
        let mut reply = OwnedReply { value: whole.value, ..lease };
        self.hide(&mut reply);
        reply
    }

    /// Stores the pieces, then their list. `plain` is the plain form of the request.
    async fn store(
        &self,
        cx: &Arc<Context>,
        request: Request<'_>,
        plain: Request<'_>,
    ) -> OwnedReply {
        let pieces = request.value.len().div_ceil(self.split_bytes);
        let suffix = match plain.op {
            Command::Set => u64::from(spooky_hash32(request.value, 0)),
            _ => cx.random_below(usize::MAX) as u64,
        };
        // More than 32 bits are more than `PIECES_MAX`, too.
        let list = List { pieces: u32::try_from(pieces).unwrap_or(u32::MAX), suffix };
        let longest = list.key(request.key, list.pieces);
        if list.pieces > PIECES_MAX || longest.len() > proto::KEY_BYTES_MAX {
            return refused_change(b"the value is too long to be cut, or its key is");
        }
        cx.takes_steps.set(true);
        for batch in self.batches(list.pieces) {
            let keys: Vec<_> = batch.clone().map(|piece| list.key(request.key, piece)).collect();
            let stored = batch.zip(&keys).map(|(piece, key)| {
                let start = piece as usize * self.split_bytes;
                let end = (start + self.split_bytes).min(request.value.len());
                let value = request.value.get(start..end).unwrap_or_default();
                let exptime = plain.exptime;
                self.target
                    .route(cx, Request { exptime, value, ..request.derived(Command::Set, key) })
            });
            let worst = join::all(stored.collect()).await.into_iter().reduce(worse);
            if let Some(worst) = worst.filter(|worst| worst.outcome != Outcome::Stored) {
                return failed(worst, &request);
            }
        }
        let (value, mut words) = (list.text(), Vec::new());
        self.target.route(cx, marked(&request, &plain, &value, BIG_VALUE, &mut words)).await
    }
}

impl Route for BigValueRoute {
    fn name(&self) -> String {
        format!("big-value|{}", self.split_bytes)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let Some(plain) = plain_form(&request) else { return refused(self) };
        // A list has the flag anyway, and its value is found.
        let is_lost = request.value.len() <= self.split_bytes || self.hides_flag;
        match plain.op {
            _ if is_lost && stores_flag(&request, BIG_VALUE) => refused_flag(self, BIG_VALUE),
            Command::Get | Command::Gets | Command::Gat | Command::Gats => {
                Box::pin(self.get(cx, request))
            }
            Command::LeaseGet => Box::pin(self.lease_get(cx, request)),
            Command::MetaGet => refused(self),
            Command::Append | Command::Prepend if request.value.len() > self.split_bytes => {
                let what = b"a value that is added is longer than the pieces of large values";
                Box::pin(async move { refused_change(what) })
            }
            Command::Append | Command::Prepend => Box::pin(self.append(cx, request)),
            Command::Touch => Box::pin(self.touch(cx, request)),
            op if op.class() == CommandClass::Update && request.value.len() > self.split_bytes => {
                Box::pin(self.store(cx, request, plain))
            }
            _ => self.target.route(cx, request),
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.target)]
    }
}

/// The reply to a meta command that would reveal how a value is stored.
pub(super) fn refused(route: &dyn Route) -> Answer<'static> {
    let value = format!("{} does not serve this meta command", route.name()).into_bytes();
    Box::pin(async move { OwnedReply { value, ..OwnedReply::from(Failure::ClientError) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_lists_are_parsed() {
        let list = List { pieces: 3, suffix: 4_294_967_295 };
        assert_eq!(list.text(), b"1-3-4294967295");
        assert_eq!(List::parse(&list.text()), Some(list));
        assert_eq!(list.key(b"k", 2), b"k:2:4294967295");
        for wrong in ["", "1-3", "2-3-4", "1-3-4-5", "1-99999999-1", "1-3-x", "1--1-4", "1-3-4 "] {
            assert_eq!(List::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
