//! `WarmUpRoute`: a cold cluster is filled from a warm one, not from the database (section 4.3 of the paper).
//!
//! A miss in the cold cluster is asked of the warm one, and what it has is **added** to the cold one before the client gets
//! it. If the add is refused, somebody else has stored the key, or a delete holds it off: then the cold cluster is asked again,
//! and if it still has nothing the reply is a miss, so that the client reads the database. Handing out the warm
//! value in that case would be the race that the paper's hold-off is there to close.
//!
//! Sets and deletes go to the cold cluster alone; deletes with a hold-off, if one is set, so that what the warm cluster has until its own
//! delete arrives is refused meanwhile. The paper's is two seconds.

use std::rc::Rc;

use super::ttl::{self, Ttl};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::reply::{Outcome, OwnedReply};
use crate::request::{Op, Request};

/// See the head of this file.
#[derive(Debug)]
pub struct WarmUpRoute {
    /// The cluster that has the data.
    pub warm: RouteRef,
    /// The one that is to have it.
    pub cold: RouteRef,
    /// Lifetime of copies, in seconds; 0 is for ever.
    pub exptime: i64,
    /// Copies live as long as what they are copies of; `exptime` counts where the warm cluster does not say.
    pub keeps_ttl: bool,
    /// Seconds for which a delete refuses copies; 0 is none. The cold cluster's servers must know it (ours do).
    pub hold_off: i64,
}

impl WarmUpRoute {
    /// A delete as the cold cluster is to have it; one with a hold-off of its own stays as it is.
    async fn delete(&self, cx: &Rc<Context>, mut request: Request<'_>) -> OwnedReply {
        let mut words = request.words.to_vec();
        if request.op == Op::Delete {
            if request.exptime == 0 {
                request.exptime = self.hold_off;
            }
        } else if !request.words.split(|byte| *byte == b' ').any(|word| word.starts_with(b"H")) {
            if !words.is_empty() {
                words.push(b' ');
            }
            words.extend_from_slice(format!("H{}", self.hold_off).as_bytes());
        }
        self.cold.route(cx, Request { words: &words, ..request }).await
    }

    async fn get(&self, cx: &Rc<Context>, request: Request<'_>) -> OwnedReply {
        let missed = self.cold.route(cx, request).await;
        if !missed.outcome.is_miss() {
            return missed;
        }
        // A waiter for somebody else's lease has nothing to store with.
        let token = (missed.outcome == Outcome::Lease).then_some(missed.number);
        if token == Some(HOT_MISS) {
            return missed;
        }
        let get = Request::new(Op::Get, request.key);
        let mut found = self.warm.route(cx, get).await;
        if found.outcome != Outcome::Found {
            return missed;
        }
        let exptime = if self.keeps_ttl {
            match ttl::of(&self.warm, cx, request.key).await {
                Ttl::Lives(secs) => secs,
                Ttl::Absent => return missed,
                Ttl::Failed(_) => self.exptime,
            }
        } else {
            self.exptime
        };
        let copy = Request {
            flags: found.flags,
            exptime,
            value: &found.value,
            number: token.unwrap_or(0),
            ..Request::new(if token.is_some() { Op::LeaseSet } else { Op::Add }, request.key)
        };
        let stored = self.cold.route(cx, copy).await;
        let is_plain = matches!(request.op, Op::Get | Op::LeaseGet);
        if stored.outcome == Outcome::Stored && is_plain {
            found.number = 0;
            return found;
        }
        if request.op == Op::LeaseGet {
            return missed;
        }
        // The cas unique, the flags of a meta command, or somebody else's value: as the cold cluster has it now.
        self.cold.route(cx, request).await
    }
}

/// The lease token that asks to wait.
const HOT_MISS: u64 = 1;

impl Route for WarmUpRoute {
    fn name(&self) -> String {
        "warm-up".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Rc<Context>, request: Request<'a>) -> Answer<'a> {
        let is_get = matches!(
            request.op,
            Op::Get | Op::Gets | Op::Gat | Op::Gats | Op::LeaseGet | Op::MetaGet
        );
        if is_get && !request.base64 {
            Box::pin(self.get(cx, request))
        } else if self.hold_off > 0 && matches!(request.op, Op::Delete | Op::MetaDelete) {
            Box::pin(self.delete(cx, request))
        } else {
            self.cold.route(cx, request)
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Rc::clone(&self.cold), Rc::clone(&self.warm)]
    }
}
