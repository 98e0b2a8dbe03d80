//! `DestinationRoute`: the leaf of every tree, one server; and mcrouter's `AsynclogRoute`, which
//! keeps deletes that the server does not accept.

use std::sync::Arc;

use super::all::words_of_copy;
use super::{Answer, Pick, Route, RouteRef, default_outcome};
use crate::context::Context;
use upstream::{
    Command, CommandClass, DestinationId, Event, Failure, OwnedReply, Request, SendCell,
};

/// Asks one server.
#[derive(Debug)]
pub struct DestinationRoute {
    /// The server.
    pub id: DestinationId,
    /// Its address, for display and in the spool.
    pub label: Arc<str>,
    /// Keeps failed deletes under the name of this pool.
    pub asynclog: Option<String>,
    /// Leaves the routing prefix in the keys that the server sees.
    pub keeps_prefix: bool,
    /// The limit on concurrent shadow requests.
    pub shadows: ShadowLimit,
}

/// A limit on the concurrent shadow requests at one place of a pool, in each worker. The default is
/// no limit.
#[derive(Debug, Default)]
pub struct ShadowLimit {
    max: u32,
    pending: SendCell<u32>,
}

impl ShadowLimit {
    /// `max` concurrent requests; 0: any number.
    #[must_use]
    pub const fn new(max: u32) -> Self {
        Self { max, pending: SendCell::new(0) }
    }

    /// A place, if there is one.
    fn pass(&self) -> Option<ShadowPlace<'_>> {
        let pending = self.pending.get();
        if self.max > 0 && pending >= self.max {
            return None;
        }
        self.pending.set(pending.saturating_add(1));
        Some(ShadowPlace(self))
    }
}

struct ShadowPlace<'a>(&'a ShadowLimit);

impl Drop for ShadowPlace<'_> {
    fn drop(&mut self) {
        self.0.pending.set(self.0.pending.get().saturating_sub(1));
    }
}

impl DestinationRoute {
    /// The pool's name, if the request is kept after a failure.
    #[inline]
    fn kept_as(&self, cx: &Context, request: &Request<'_>) -> Option<&str> {
        let is_delete =
            matches!(request.op, Command::Delete | Command::MetaDelete) && !request.unkept;
        if !is_delete || !cx.keeps_deletes() {
            return None;
        }
        self.asynclog.as_deref()
    }

    /// Asks the server. Beyond the limit, a shadow's requests are dropped, except deletes: without
    /// them the server would keep stale values.
    fn ask<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if !request.is_shadow || request.op.class() == CommandClass::Delete {
            return Box::pin(cx.ask(self.id, request));
        }
        Box::pin(async move {
            let Some(_place) = self.shadows.pass() else {
                cx.traffic().event(Event::CopyDropped);
                return Failure::LocalError.into();
            };
            cx.ask(self.id, request).await
        })
    }
}

impl Route for DestinationRoute {
    fn name(&self) -> String {
        format!("host|{}", self.label)
    }

    #[inline]
    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        let is_plain = !self.keeps_prefix || request.prefix.is_empty();
        if is_plain && self.kept_as(cx, request).is_none() { Pick::Ask(self.id) } else { Pick::Run }
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if self.keeps_prefix && !request.prefix.is_empty() {
            return Box::pin(async move {
                let key = [request.prefix, request.key].concat();
                let whole = Request { key: &key, prefix: b"", ..request };
                if key.len() > proto::KEY_BYTES_MAX {
                    return OwnedReply::from(Failure::ClientError);
                }
                self.route(cx, whole).await
            });
        }
        let Some(pool) = self.kept_as(cx, &request) else {
            return self.ask(cx, request);
        };
        Box::pin(async move {
            let reply = cx.ask(self.id, request).await;
            let is_undone = reply.outcome.failure().is_some_and(Failure::fails_over);
            if !is_undone {
                return reply;
            }
            // A unique is valid only now, and only if this server gave it.
            let words = words_of_copy(&request);
            let words = words.as_deref().unwrap_or(request.words);
            if cx.keep(&self.label, pool, &Request { words, ..request }).await {
                if let Some(trail) = request.trail {
                    trail.note_kept();
                }
                // The delete will be executed; the reply is that of a delete without effect.
                return OwnedReply::of(default_outcome(request.op));
            }
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }

    fn server<'a>(&'a self, _cx: &Context, request: &mut Request<'_>) -> Option<&'a Self> {
        (!self.keeps_prefix || request.prefix.is_empty()).then_some(self)
    }
}
