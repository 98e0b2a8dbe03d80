//! `WarmUpRoute`: fills a cold cluster from a warm one instead of the database (section 4.3 of the
//! paper).
//!
//! A miss in the cold cluster goes to the warm one, and a hit there is stored in the cold one
//! before the client gets it. The cold cluster must not store a value that the warm one still has
//! although it was deleted in the cold one. Two methods prevent that.
//!
//! **Leases** (`leases`): a copy is stored with a token of the cold server, and the warm server
//! executes a delete before the cold one does so for the last time.
//!
//! ```text
//!     copy    token (cold) < get (warm) < lease-set (cold)
//!     delete  cold, at once;  warm < cold
//! ```
//!
//! A copy is old if its get preceded the delete in the warm cluster. The cold cluster's delete then
//! comes either between token and lease-set, and voids the token, or after the lease-set, and
//! removes the copy. No clock is involved, so delays and pauses of any participant do not matter. A
//! delete that the warm server does not execute goes to the spool, for both in this order; if it
//! cannot be spooled, it fails.
//!
//! **A hold-off** (`hold_off`) is the paper's method: deletes go only to the cold cluster and
//! refuse `add`, the command of copies, for a time. The warm cluster's own delete must come within
//! that time, and a copy must take less; the paper uses two seconds. If the cold server has no room
//! for the hold-off, the warm cluster gets the delete, too, so that there is nothing old to copy.
//!
//! If a copy is refused, the cold cluster is asked again. If it still has no value, the reply is a
//! miss, so that the client reads the database. Sets go only to the cold cluster.

use std::sync::Arc;

use super::all::{copy_aside, worse};
use super::destination::DestinationRoute;
use super::lease::{self, HOT_MISS};
use super::ttl::{self, Ttl};
use super::{Answer, Route, RouteRef, words};
use crate::context::Context;
use crate::deletes;
use crate::join;
use proto::answer::MetaCode;
use upstream::{Command, Outcome, OwnedReply, Request, is_sendable};

/// Fills a cold cluster from a warm one.
#[derive(Debug)]
pub struct WarmUpRoute {
    /// The cluster with the data.
    pub warm: RouteRef,
    /// The cluster to fill.
    pub cold: RouteRef,
    /// Lifetime of copies, in seconds; 0 is forever. `None`: as long as their originals, which are
    /// not copied if the warm cluster does not report that.
    pub exptime: Option<i64>,
    /// Seconds for which a delete refuses copies; 0 is none. The cold cluster's servers must
    /// support it (ours do).
    pub hold_off: i64,
    /// Copies take a token, and deletes go to the warm cluster first. The cold cluster's servers
    /// must support leases (ours do).
    pub leases: bool,
}

impl WarmUpRoute {
    /// A delete for the cold cluster. One that already has a hold-off stays as it is. If the
    /// hold-off is refused, deletes also in the warm cluster.
    async fn delete_held_off(&self, cx: &Arc<Context>, mut request: Request<'_>) -> OwnedReply {
        let mut words = request.words.to_vec();
        if request.op == Command::Delete {
            if request.exptime == 0 {
                request.exptime = self.hold_off;
            }
        } else if !request.words.split(|byte| *byte == b' ').any(|word| word.starts_with(b"H")) {
            if !words.is_empty() {
                words.push(b' ');
            }
            words.extend_from_slice(format!("H{}", self.hold_off).as_bytes());
        }
        let reply = self.cold.route(cx, Request { words: &words, ..request }).await;
        if reply.outcome != Outcome::OnlyDeleted {
            return reply;
        }
        worse(reply, self.warm.route(cx, deletes::plain(&request)).await)
    }

    /// Deletes in both clusters: in the cold one at once, and again after the warm one.
    async fn delete_in_order(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let plain = Request { unkept: true, ..deletes::plain(&request) };
        cx.takes_steps.set(true);
        let both = vec![self.warm.route(cx, plain), self.cold.route(cx, request)];
        let mut replies = join::all(both).await.into_iter();
        let (Some(warm), Some(early)) = (replies.next(), replies.next()) else {
            return OwnedReply::from(upstream::Failure::LocalError);
        };
        // The cas unique differs: nothing is deleted.
        if early.outcome == Outcome::Meta(MetaCode::Ex) {
            return early;
        }
        if warm.outcome.failure().is_some() {
            return if self.keep(cx, &request).await { early } else { warm };
        }
        // A copy made in the meantime has another cas unique.
        let words = words::without_unique(request.words);
        let words = words.as_deref().unwrap_or(request.words);
        let late = self.cold.route(cx, Request { words, ..request }).await;
        let is_told = late.outcome.failure().is_none() && early.outcome.failure().is_none();
        if is_told { early } else { late }
    }

    /// Keeps the delete for the warm server and then the cold one. Returns false if these are
    /// unknown, or if no deletes are kept.
    async fn keep(&self, cx: &Arc<Context>, request: &Request<'_>) -> bool {
        if !cx.keeps_deletes() {
            return false;
        }
        let plain = deletes::plain(request);
        let servers = [&self.warm, &self.cold].map(|route| route.server(cx, &mut { plain }));
        let [Some(warm), Some(cold)] = servers else { return false };
        let Some(pool) = &cold.asynclog else { return false };
        let name: Arc<str> = deletes::ordered_name(&warm.label, &cold.label).into();
        let is_kept = cx.keep(&name, pool, &plain).await;
        if let Some(trail) = request.trail.filter(|_| is_kept) {
            trail.note_kept();
        }
        is_kept
    }

    async fn get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        // A get whose miss will be filled with a token requests it at once.
        let is_lease = self.leases && request.op == Command::Get;
        let op = if is_lease { Command::LeaseGet } else { request.op };
        let mut missed = self.cold.route(cx, Request { op, ..request }).await;
        let asks_lease = lease::is_asked(&request);
        let mut token = lease::token(&request, &missed);
        if !missed.outcome.is_miss() && token.is_none() {
            return missed;
        }
        if is_lease {
            missed = OwnedReply::of(Outcome::NotFound);
        } else if self.leases && token.is_none() {
            let lease = Request { words: b"", ..Request { op: Command::LeaseGet, ..request } };
            let lease = self.cold.route(cx, lease).await;
            token = (lease.outcome == Outcome::Lease).then_some(lease.number);
            if token.is_none() {
                return missed;
            }
        }
        // Another client fills the key. A client that cannot wait gets the warm cluster's value.
        let waits = token == Some(HOT_MISS);
        if waits && !is_lease {
            return missed;
        }
        let Some((mut found, exptime)) = self.warm_value(cx, &request).await else {
            return missed;
        };
        found.number = 0;
        if waits {
            return found;
        }
        let Some(exptime) = exptime else {
            // The client keeps a token that it asked for.
            if let Some(number) = token.filter(|_| !asks_lease) {
                let back = request.derived(Command::LeaseSet, request.key);
                copy_aside(&self.cold, cx, &Request { number, exptime: -1, ..back });
            }
            return if request.op == Command::Get { found } else { missed };
        };
        // A hold-off refuses adds, not stores with a token.
        let token = token.filter(|_| self.leases || self.hold_off == 0);
        let copy = Request {
            flags: found.flags,
            exptime,
            value: &found.value,
            number: token.unwrap_or(0),
            ..request.derived(
                if token.is_some() { Command::LeaseSet } else { Command::Add },
                request.key,
            )
        };
        let stored = self.cold.route(cx, copy).await;
        let is_plain = matches!(request.op, Command::Get | Command::LeaseGet);
        if stored.outcome == Outcome::Stored && is_plain {
            return found;
        }
        if asks_lease && stored.outcome != Outcome::Stored {
            return missed;
        }
        // The cas unique, the flags of a meta command, or another client's value: the cold
        // cluster's current answer.
        self.cold.route(cx, request).await
    }

    /// The warm cluster's value, and the lifetime of a copy, if it may be copied.
    async fn warm_value(
        &self,
        cx: &Arc<Context>,
        request: &Request<'_>,
    ) -> Option<(OwnedReply, Option<i64>)> {
        let found = self.warm.route(cx, request.derived(Command::Get, request.key)).await;
        if found.outcome != Outcome::Found {
            return None;
        }
        if self.exptime.is_some() {
            return Some((found, self.exptime));
        }
        match ttl::of(&self.warm, cx, request).await {
            Ttl::Lives(exptime) => Some((found, Some(exptime))),
            Ttl::Absent => None,
            Ttl::Failed(_) => Some((found, None)),
        }
    }
}

impl Route for WarmUpRoute {
    fn name(&self) -> String {
        "warm-up".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let is_get = matches!(
            request.op,
            Command::Get
                | Command::Gets
                | Command::Gat
                | Command::Gats
                | Command::LeaseGet
                | Command::MetaGet
        );
        let is_delete = matches!(request.op, Command::Delete | Command::MetaDelete);
        // The copy needs commands that have no base64.
        if is_get && is_sendable(&Request::new(Command::Get, request.key)) {
            Box::pin(self.get(cx, request))
        } else if is_delete && self.leases {
            Box::pin(self.delete_in_order(cx, request))
        } else if is_delete && self.hold_off > 0 {
            Box::pin(self.delete_held_off(cx, request))
        } else {
            self.cold.route(cx, request)
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.cold), Arc::clone(&self.warm)]
    }

    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        self.cold.server(cx, request)
    }
}
