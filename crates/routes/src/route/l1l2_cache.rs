//! `L1L2CacheRoute`: a small cache before a large one. Hits of the large one are copied into the
//! small one. Its misses can also be noted there for a while. Clients never see such a noted miss:
//! gets take it for a miss, and changes of items remove it first.

use std::sync::Arc;

use proto::answer::MetaCode;
use proto::meta::Options;
use proto::text::Words;

use super::all::copy_aside;
use super::big_value::refused;
use super::plain_store::{plain_form, refused_flag, stores_flag};
use super::{Answer, Route, RouteRef, words};
use crate::context::Context;
use upstream::SendCell;
use upstream::{Command, Outcome, OwnedReply, Request};

/// Marks a noted miss, in client flags (mcrouter: `MC_MSG_FLAG_NEGATIVE_CACHE`).
const NOTED_MISS: u32 = 0x1_0000;

/// The value of a noted miss.
const NOTED_VALUE: &[u8] = b"ncache";

/// Returns true for an `mg` that creates the missing item, or requests a token: its client will
/// fill the small one.
fn is_tied(request: &Request<'_>) -> bool {
    let parsed = Options::parse(Words::new(request.words));
    parsed.is_ok_and(|(asked, _)| asked.autoviv_exptime.is_some() || asked.lease.is_some())
}

/// Returns true for a command that would take a noted miss for an item. A plain store replaces it.
fn needs_an_item(request: &Request<'_>) -> bool {
    let has = |letter| words::find(request.words, letter).is_some();
    match request.op {
        Command::Add
        | Command::Append
        | Command::Cas
        | Command::Decr
        | Command::Incr
        | Command::MetaArithmetic
        | Command::MetaDebug
        | Command::MetaInfo
        | Command::Prepend
        | Command::Replace
        | Command::Touch => true,
        // The item stays.
        Command::MetaDelete => has(b'I') || has(b'x'),
        Command::MetaSet => {
            !has(b'G') && plain_form(request).is_none_or(|plain| plain.op != Command::Set)
        }
        _ => false,
    }
}

/// Gets go to the small one, then to the large one; all else goes only to the small one.
#[derive(Debug)]
pub struct L1L2CacheRoute {
    /// The small one.
    pub l1: RouteRef,
    /// The large one.
    pub l2: RouteRef,
    /// Lifetime of copies in the small one, in seconds.
    pub upgrading_exptime: i64,
    /// Lifetime of noted misses, in seconds; 0: forever.
    pub miss_exptime: i64,
    /// The number of noted misses after which the large one is asked again; 0: none are noted.
    pub miss_period: u32,
    /// Noted misses until then.
    pub misses: SendCell<u32>,
}

impl L1L2CacheRoute {
    async fn get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let mut near = self.l1.route(cx, request).await;
        if near.outcome == Outcome::Found {
            if near.flags & NOTED_MISS == 0 {
                return near;
            }
            if !matches!(request.op, Command::Gat | Command::Gats) {
                self.look_again(cx, &request);
                return OwnedReply::of(Outcome::NotFound);
            }
            // The noted miss now has the lifetime of the request.
            if let Err(failed) = self.forget(cx, &request).await {
                return failed;
            }
            near = OwnedReply::of(Outcome::NotFound);
        }
        let far: OwnedReply = self.l2.route(cx, request).await;
        if near.outcome != Outcome::NotFound {
            return far;
        }
        match far.outcome {
            // Here it would be a noted miss.
            Outcome::Found if far.flags & NOTED_MISS != 0 => {}
            Outcome::Found => copy_aside(&self.l1, cx, &self.copy(&request, &far)),
            Outcome::NotFound if self.miss_period != 0 => {
                let noted = Request {
                    flags: NOTED_MISS,
                    exptime: self.miss_exptime,
                    value: NOTED_VALUE,
                    ..request.derived(Command::Add, request.key)
                };
                copy_aside(&self.l1, cx, &noted);
            }
            _ => {}
        }
        far
    }

    /// The reply has only the requested fields, so a copy needs a separate get.
    async fn meta_get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let near = self.l1.route(cx, request).await;
        if near.outcome.is_hit() || is_tied(&request) {
            return near;
        }
        let far = self.l2.route(cx, request).await;
        if near.outcome.is_miss() && far.outcome.is_hit() {
            self.fetch(cx, &request, Command::Add);
        }
        far
    }

    fn copy<'a>(&self, request: &Request<'a>, found: &'a OwnedReply) -> Request<'a> {
        let (flags, exptime) = (found.flags, self.upgrading_exptime);
        Request {
            flags,
            exptime,
            value: &found.value,
            ..request.derived(Command::Add, request.key)
        }
    }

    /// A command that would take a noted miss for an item. A refused `add` or `cas` has changed
    /// nothing, so these look for a noted miss only after a refusal.
    async fn change(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let plain = plain_form(&request);
        if plain.is_some_and(|plain| matches!(plain.op, Command::Add | Command::Cas)) {
            let reply = self.l1.route(cx, request).await;
            let is_refused = matches!(
                reply.outcome,
                Outcome::NotStored | Outcome::Exists | Outcome::Meta(MetaCode::Ns | MetaCode::Ex)
            );
            if !is_refused || !matches!(self.forget(cx, &request).await, Ok(true)) {
                return reply;
            }
        } else if let Err(failed) = self.forget(cx, &request).await {
            return failed;
        }
        self.l1.route(cx, request).await
    }

    /// Removes a noted miss. Returns true if there was one, and the reply if L1 failed.
    async fn forget(&self, cx: &Arc<Context>, request: &Request<'_>) -> Result<bool, OwnedReply> {
        let near = self.l1.route(cx, request.derived(Command::Gets, request.key)).await;
        if near.outcome.failure().is_some() {
            return Err(near);
        }
        if near.outcome != Outcome::Found || near.flags & NOTED_MISS == 0 {
            return Ok(false);
        }
        let (exptime, number) = (-1, near.number);
        let dead = Request { exptime, number, ..request.derived(Command::Cas, request.key) };
        let gone = self.l1.route(cx, dead).await;
        if gone.outcome.failure().is_some() { Err(gone) } else { Ok(true) }
    }

    /// A lease belongs to the small one, because only it can accept the value that follows.
    async fn lease_get(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let near = self.l1.route(cx, request).await;
        if near.flags & NOTED_MISS == 0 {
            return near;
        }
        if near.outcome == Outcome::Found {
            self.look_again(cx, &request);
            return OwnedReply::of(Outcome::NotFound);
        }
        OwnedReply { flags: 0, value: Vec::new(), ..near }
    }

    /// Occasionally, a noted miss checks the large one again.
    fn look_again(&self, cx: &Arc<Context>, request: &Request<'_>) {
        if self.miss_period == 0 {
            return;
        }
        self.misses.set(self.misses.get() + 1);
        if self.misses.get() < self.miss_period {
            return;
        }
        self.misses.set(0);
        self.fetch(cx, request, Command::Set);
    }

    /// Copies the large one's value into the small one, by `op`.
    fn fetch(&self, cx: &Arc<Context>, request: &Request<'_>, op: Command) {
        let (l1, l2) = (Arc::clone(&self.l1), Arc::clone(&self.l2));
        let (context, exptime) = (Arc::clone(cx), self.upgrading_exptime);
        let Some(charge) = cx.copy_room(request.bytes()) else { return };
        let request = request.to_owned();
        cx.spawn_charged(charge, async move {
            let request = request.get();
            let far = l2.route(&context, request.derived(Command::Get, request.key)).await;
            if far.outcome == Outcome::Found
                && far.flags & NOTED_MISS == 0
                && let Some(_room) = context.copy_room(far.value.len())
            {
                let (flags, value) = (far.flags, &far.value[..]);
                let store = Request { flags, exptime, value, ..request.derived(op, request.key) };
                drop(l1.route(&context, store).await);
            }
        });
    }
}

impl Route for L1L2CacheRoute {
    fn name(&self) -> String {
        "l1l2-cache".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        match request.op {
            _ if stores_flag(&request, NOTED_MISS) => refused_flag(self, NOTED_MISS),
            Command::Get | Command::Gets | Command::Gat | Command::Gats => {
                Box::pin(self.get(cx, request))
            }
            Command::LeaseGet => Box::pin(self.lease_get(cx, request)),
            Command::MetaGet if self.miss_period != 0 => refused(self),
            Command::MetaGet => Box::pin(self.meta_get(cx, request)),
            _ if self.miss_period != 0 && needs_an_item(&request) => {
                Box::pin(self.change(cx, request))
            }
            _ => self.l1.route(cx, request),
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.l1), Arc::clone(&self.l2)]
    }
}
