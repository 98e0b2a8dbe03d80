//! `L1L2SizeSplitRoute`: L2 keeps large values, and L1 keeps marks in their place.
//!
//! The mark has client flag 0x20. Its value is empty, or the number under which L2 keeps the value
//! of a lease-set: `key|==|number`, so that a late store never appears behind a newer mark. Formats
//! are mcrouter's.

use std::sync::Arc;

use proto::answer::MetaCode;

use super::all::ask_aside;
use super::big_value::refused;
use super::plain_store::{failed, marked, plain_form, refused_change, refused_flag, stores_flag};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Command, Failure, Outcome, OwnedReply, Request, is_sendable};

/// Identifies a mark in client flags (mcrouter: `MC_MSG_FLAG_SIZE_SPLIT`).
const SIZE_SPLIT: u32 = 0x20;

/// Keeps large values in L2, and marks for them in L1.
#[derive(Debug)]
pub struct L1L2SizeSplitRoute {
    /// Small values, and marks for large ones.
    pub l1: RouteRef,
    /// Large values.
    pub l2: RouteRef,
    /// The size in bytes from which a value is large; 0: none is.
    pub large_bytes: u64,
    /// Seconds; items with a lower expiry time stay in L1. 0: lifetimes do not matter.
    pub lifetime_secs: i64,
    /// Lifetime in seconds of a large value that L2 refused and L1 keeps.
    pub failure_secs: i64,
    /// Stores the value in both, without a mark.
    pub stores_both: bool,
    /// The number of new lease requests after a mark and a value that do not match.
    pub retries: u32,
}

/// The name of a value in L2.
fn far_key(key: &[u8], mark: &[u8]) -> Vec<u8> {
    if mark.is_empty() { key.to_vec() } else { [key, b"|==|", mark].concat() }
}

impl L1L2SizeSplitRoute {
    fn is_small(&self, request: &Request<'_>) -> bool {
        // As in mcrouter, forever counts as short, because 0 is compared like any number.
        let is_short = self.lifetime_secs != 0 && request.exptime < self.lifetime_secs;
        let is_off = self.large_bytes == 0;
        is_off || (request.value.len() as u64) < self.large_bytes || is_short
    }

    /// gets and similar commands: the value from L2, the cas unique from L1.
    async fn get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let near = self.l1.route(cx, request).await;
        if near.outcome != Outcome::Found || near.flags & SIZE_SPLIT == 0 {
            return near;
        }
        let key = far_key(request.key, &near.value);
        let far = match request.op {
            Command::Gat | Command::Gats => {
                Request { exptime: request.exptime, ..request.derived(Command::Gat, &key) }
            }
            _ => request.derived(Command::Get, &key),
        };
        let far = self.l2.route(cx, far).await;
        OwnedReply { number: near.number, ..far }
    }

    /// Touches the item in L1, then the value in L2, if any: the client's later requests must not
    /// overtake its touch.
    async fn touch(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.l1.route(cx, request).await;
        if reply.outcome != Outcome::Touched {
            return reply;
        }
        let near = self.l1.route(cx, request.derived(Command::Get, request.key)).await;
        if near.flags & SIZE_SPLIT != 0 {
            let key = far_key(request.key, &near.value);
            let exptime = request.exptime;
            let touch = Request { exptime, ..request.derived(Command::Touch, &key) };
            let far = self.l2.route(cx, touch).await;
            if far.outcome != Outcome::Touched {
                return far;
            }
        }
        reply
    }

    /// Adds to an item in L1 or counts in it. If that was the mark of a value in L2, the value is
    /// lost.
    async fn change(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.l1.route(cx, request).await;
        let is_done = matches!(
            reply.outcome,
            Outcome::Stored | Outcome::Number | Outcome::Meta(MetaCode::Hd | MetaCode::Va)
        );
        let look = request.derived(Command::Get, request.key);
        // Marks have keys that need no base64.
        if !is_done || !is_sendable(&look) {
            return reply;
        }
        let near = self.l1.route(cx, look).await;
        // An empty mark is newer than the change.
        if near.flags & SIZE_SPLIT == 0 || near.value.is_empty() {
            return reply;
        }
        refused_change(b"the value was in L2, and is lost")
    }

    async fn lease_get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        for _ in 0..=self.retries {
            let near = self.l1.route(cx, request).await;
            if near.flags & SIZE_SPLIT == 0 {
                return near;
            }
            if near.outcome != Outcome::Found {
                // The stale value is a mark, so only the token is useful.
                return OwnedReply { flags: 0, value: Vec::new(), ..near };
            }
            let key = far_key(request.key, &near.value);
            let far = self.l2.route(cx, request.derived(Command::Get, &key)).await;
            if far.outcome == Outcome::Found || far.outcome.failure().is_some() {
                return far;
            }
            let now = self.l1.route(cx, request.derived(Command::Gets, request.key)).await;
            if now.outcome == Outcome::Found && now.value == near.value {
                let (exptime, number) = (-1, now.number);
                let dead =
                    Request { exptime, number, ..request.derived(Command::Cas, request.key) };
                drop(self.l1.route(cx, dead).await);
            }
        }
        let value = b"L1L2SizeSplitRoute: the value does not stay".to_vec();
        OwnedReply { value, ..OwnedReply::from(Failure::LocalError) }
    }

    /// Stores the value first, so that a mark never precedes its value. `plain` is the plain form
    /// of the request.
    async fn store(
        &self,
        cx: &Arc<Context>,
        request: Request<'_>,
        plain: Request<'_>,
    ) -> OwnedReply {
        let mark = match request.op {
            Command::LeaseSet => format!("{}", cx.random_below(usize::MAX)).into_bytes(),
            _ => Vec::new(),
        };
        let key = far_key(request.key, &mark);
        if key.len() > proto::KEY_BYTES_MAX {
            return self.l1.route(cx, request).await;
        }
        let far_request = Request {
            flags: plain.flags,
            exptime: plain.exptime,
            value: request.value,
            ..request.derived(Command::Set, &key)
        };
        if self.stores_both {
            let far_request = Request { key: request.key, ..far_request };
            let near = self.l1.route(cx, request).await;
            if matches!(near.outcome, Outcome::Stored | Outcome::Meta(MetaCode::Hd)) {
                ask_aside(std::slice::from_ref(&self.l2), cx, &far_request);
            }
            return near;
        }
        cx.takes_steps.set(true);
        let far = self.l2.route(cx, far_request).await;
        if far.outcome == Outcome::Stored {
            let mut words = Vec::new();
            let near = marked(&request, &plain, &mark, SIZE_SPLIT, &mut words);
            return self.l1.route(cx, near).await;
        }
        if request.op != Command::LeaseSet {
            // A mark of the previous value would continue to refer to that value.
            drop(self.l1.route(cx, request.derived(Command::Delete, request.key)).await);
            return failed(far, &request);
        }
        let is_longer = request.exptime == 0 || request.exptime > self.failure_secs;
        let exptime = if is_longer { self.failure_secs } else { request.exptime };
        self.l1.route(cx, Request { exptime, ..request }).await
    }
}

impl Route for L1L2SizeSplitRoute {
    fn name(&self) -> String {
        format!("l1l2-sizesplit|{}", self.large_bytes)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let Some(plain) = plain_form(&request) else { return refused(self) };
        match plain.op {
            _ if stores_flag(&request, SIZE_SPLIT) => refused_flag(self, SIZE_SPLIT),
            Command::Get | Command::Gets | Command::Gat | Command::Gats => {
                Box::pin(self.get(cx, request))
            }
            Command::LeaseGet => Box::pin(self.lease_get(cx, request)),
            Command::MetaGet => refused(self),
            Command::Touch => Box::pin(self.touch(cx, request)),
            Command::Append
            | Command::Prepend
            | Command::Incr
            | Command::Decr
            | Command::MetaArithmetic => Box::pin(self.change(cx, request)),
            Command::Set | Command::LeaseSet if !self.is_small(&plain) => {
                Box::pin(self.store(cx, request, plain))
            }
            _ => self.l1.route(cx, request),
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.l1), Arc::clone(&self.l2)]
    }
}
