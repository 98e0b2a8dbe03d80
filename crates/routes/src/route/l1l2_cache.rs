//! `L1L2CacheRoute`: a small cache before a large one. Hits of the large one are copied into the
//! small one. Its misses can also be noted there for a while. Gets take a noted miss for a miss,
//! and most changes that found one remove it. `replace`, `me`, and `ms` and `md` with `I` see it.

use std::sync::Arc;

use proto::answer::MetaCode;
use proto::meta::Options;
use proto::number::write_u64;
use proto::text::Words;

use super::all::copy_aside;
use super::big_value::refused;
use super::plain_store::{plain_form, refused_flag, stores_flag};
use super::{Answer, Route, RouteRef, words};
use crate::context::Context;
use upstream::SendCell;
use upstream::{Command, Failure, Outcome, OwnedReply, Request, is_sendable};

/// Marks a noted miss, in client flags (mcrouter: `MC_MSG_FLAG_NEGATIVE_CACHE`).
const NOTED_MISS: u32 = 0x1_0000;

/// The value of a noted miss.
const NOTED_VALUE: &[u8] = b"ncache";

/// A cas unique in place of L2's. Stores go to L1, whose items have other ones, so L1 could refuse
/// or accept any store with L2's. No server gives this one to an item.
const NO_UNIQUE: u64 = u64::MAX;

/// The words of a meta reply of L2, without its cas unique.
fn without_unique(told: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(told.len());
    for word in Words::new(told) {
        out.push(b' ');
        if word.first() == Some(&b'c') {
            out.push(b'c');
            write_u64(&mut out, NO_UNIQUE);
        } else {
            out.extend_from_slice(word);
        }
    }
    out
}

/// The reply that a request would get for a missing item, if `outcome` can come from a noted miss.
/// `op` is the plain form's. Nothing has to be known of a plain store, which replaces a noted miss.
fn of_missing(op: Command, outcome: Outcome) -> Option<(Outcome, MetaCode)> {
    match (op, outcome) {
        (Command::Add, Outcome::NotStored | Outcome::Meta(MetaCode::Ns))
        | (Command::Append | Command::Prepend, Outcome::Stored | Outcome::Meta(MetaCode::Hd)) => {
            Some((Outcome::NotStored, MetaCode::Ns))
        }
        (Command::Cas, Outcome::Exists | Outcome::Meta(MetaCode::Ex))
        | (Command::Touch, Outcome::Touched)
        | (
            Command::Incr | Command::Decr | Command::MetaArithmetic,
            Outcome::Failed(Failure::ClientError),
        ) => Some((Outcome::NotFound, MetaCode::Nf)),
        _ => None,
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
        let tells_unique = matches!(request.op, Command::Gets | Command::Gats);
        let is_missing = near.outcome == Outcome::NotFound;
        match far.outcome {
            Outcome::Found if tells_unique => {
                if is_missing {
                    self.copy(cx, &request, &far).await;
                    let gets = request.derived(Command::Gets, request.key);
                    let near = self.l1.route(cx, gets).await;
                    if near.outcome == Outcome::Found && near.flags & NOTED_MISS == 0 {
                        return near;
                    }
                }
                return OwnedReply { number: NO_UNIQUE, ..far };
            }
            // Here it would be a noted miss.
            Outcome::Found if far.flags & NOTED_MISS != 0 => {}
            Outcome::Found if is_missing => {
                copy_aside(&self.l1, cx, &self.copied(&request, &far));
            }
            Outcome::NotFound if is_missing && self.miss_period != 0 => {
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
        let Ok((asked, _)) = Options::parse(Words::new(request.words)) else { return near };
        // The client that creates the missing item, or requests a token, will fill the small one.
        let is_tied = asked.autoviv_exptime.is_some() || asked.lease.is_some();
        if near.outcome.is_hit() || is_tied {
            return near;
        }
        if asked.wants_cas && near.outcome.is_miss() {
            let get = request.derived(Command::Get, request.key);
            let found = self.l2.route(cx, get).await;
            if found.outcome == Outcome::Found {
                self.copy(cx, &request, &found).await;
                let near = self.l1.route(cx, request).await;
                if near.outcome.is_hit() {
                    return near;
                }
            }
        }
        let mut far = self.l2.route(cx, request).await;
        if far.outcome.is_hit() && asked.wants_cas {
            far.words = without_unique(&far.words);
        } else if far.outcome.is_hit() && near.outcome.is_miss() {
            self.fetch(cx, &request, Command::Add);
        }
        far
    }

    /// Copies an item into the small one before the reply, which needs its cas unique there.
    async fn copy(&self, cx: &Arc<Context>, request: &Request<'_>, found: &OwnedReply) {
        if found.flags & NOTED_MISS == 0 {
            drop(self.l1.route(cx, self.copied(request, found)).await);
        }
    }

    fn copied<'a>(&self, request: &Request<'a>, found: &'a OwnedReply) -> Request<'a> {
        let (flags, exptime) = (found.flags, self.upgrading_exptime);
        Request {
            flags,
            exptime,
            value: &found.value,
            ..request.derived(Command::Add, request.key)
        }
    }

    /// A command that would take a noted miss for an item. The route looks for one only after the
    /// command: the client's later requests must not overtake it.
    async fn change(&self, cx: &Arc<Context>, request: Request<'_>, op: Command) -> OwnedReply {
        if matches!(op, Command::Add | Command::MetaArithmetic) {
            // These may be repeated.
            cx.takes_steps.set(true);
        }
        let reply = self.l1.route(cx, request).await;
        let Some((plain, meta)) = of_missing(op, reply.outcome) else { return reply };
        if !matches!(self.forget(cx, &request).await, Ok(true)) {
            return reply;
        }
        // With `N`, a count creates the missing item.
        if matches!(op, Command::Add | Command::MetaArithmetic) {
            return self.l1.route(cx, request).await;
        }
        let outcome = if request.op.is_meta() { Outcome::Meta(meta) } else { plain };
        OwnedReply { outcome, value: Vec::new(), ..reply }
    }

    /// Removes a noted miss. Returns true if there was one, and the reply if L1 failed.
    async fn forget(&self, cx: &Arc<Context>, request: &Request<'_>) -> Result<bool, OwnedReply> {
        let look = request.derived(Command::Gets, request.key);
        // A noted miss has a key that needs no base64.
        if !is_sendable(&look) {
            return Ok(false);
        }
        let near = self.l1.route(cx, look).await;
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
            _ if self.miss_period == 0 => self.l1.route(cx, request),
            _ => match plain_form(&request).map(|plain| plain.op) {
                Some(
                    op @ (Command::Add
                    | Command::Append
                    | Command::Cas
                    | Command::Decr
                    | Command::Incr
                    | Command::MetaArithmetic
                    | Command::Prepend
                    | Command::Touch),
                ) => Box::pin(self.change(cx, request, op)),
                // It would make an item of a noted miss.
                Some(Command::MetaDelete) if words::find(request.words, b'x').is_some() => {
                    refused(self)
                }
                _ => self.l1.route(cx, request),
            },
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.l1), Arc::clone(&self.l2)]
    }
}
