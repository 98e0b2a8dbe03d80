//! `StagingRoute`: a new cluster follows the old one, which answers until the new one is ready.
//!
//! The new cluster receives items of the old one that it lacks, with their remaining lifetime. It
//! also repeats uses of its items, so that both evict the same ones. A busy new cluster receives no
//! copies.

use std::sync::Arc;

use super::all::{ask_aside, is_refused, words_of_copy, worse};
use super::modify_exptime::gives_back;
use super::ttl::{self, Ttl};
use super::{Answer, Route, RouteRef, words};
use crate::context::Context;
use crate::{deletes, task};
use proto::answer::MetaCode;
use upstream::{Command, CommandClass, Outcome, OwnedReply, Request};

/// Copies the items of the old cluster into a new one.
#[derive(Debug)]
pub struct StagingRoute {
    /// The old cluster, which answers.
    pub warm: RouteRef,
    /// The new cluster, which follows.
    pub staging: RouteRef,
}

impl StagingRoute {
    /// After a hit, gives the item to the new cluster, unless it has it.
    fn follow(&self, cx: &Arc<Context>, request: &Request<'_>, found: OwnedReply) {
        let (warm, staging) = (Arc::clone(&self.warm), Arc::clone(&self.staging));
        // The next get tries again.
        let bytes = request.bytes() + found.value.len();
        let Some(charge) = cx.copy_room(bytes) else { return };
        let (context, request) = (Arc::clone(cx), request.to_owned());
        cx.spawn_charged(charge, async move {
            let request = request.get();
            if ttl::of(&staging, &context, &request).await != Ttl::Absent {
                return;
            }
            let Ttl::Lives(exptime) = ttl::of(&warm, &context, &request).await else { return };
            let add = Request {
                flags: found.flags,
                exptime,
                value: &found.value,
                ..request.derived(Command::Add, request.key)
            };
            drop(staging.route(&context, add).await);
        });
    }

    /// Answers from the old cluster, and repeats its changes in the new one in the background.
    async fn mirror(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.warm.route(cx, request).await;
        let is_found = reply.outcome == Outcome::Found;
        match request.op {
            Command::Get | Command::Gets | Command::LeaseGet if is_found => {
                self.follow(cx, &request, reply.clone());
            }
            Command::Gat | Command::Gats if is_found => {
                self.mirror_use(cx, &request);
                self.follow(cx, &request, reply.clone());
            }
            op if op.class() == CommandClass::Get => {
                if reply.outcome.is_hit() {
                    self.mirror_use(cx, &request);
                }
            }
            _ => self.mirror_change(cx, &request, reply.outcome),
        }
        reply
    }

    /// Deletes in the new cluster after the old one, so that a copy of an item that was found there
    /// precedes the delete. The old cluster decides a delete with a cas unique.
    async fn delete(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.warm.route(cx, request).await;
        if is_refused(&reply) {
            return reply;
        }
        // Changes that were answered in this turn start their copies, and then these are sent.
        task::yield_now().await;
        task::yield_now().await;
        let words = words_of_copy(&request);
        let words = words.as_deref().unwrap_or(request.words);
        worse(reply, self.staging.route(cx, Request { words, ..request }).await)
    }

    /// After a hit in the old cluster, marks the item as used in the new one, too, with the
    /// lifetime that the request set.
    fn mirror_use(&self, cx: &Arc<Context>, request: &Request<'_>) {
        if matches!(request.op, Command::Gat | Command::Gats) {
            return self.aside(cx, request);
        }
        let time = words::find(request.words, b'T').unwrap_or(b"t");
        let words = if request.base64 { [time, b" b"].concat() } else { time.to_vec() };
        let get = request.derived(Command::MetaGet, request.key);
        self.aside(cx, &Request { words: &words, base64: request.base64, ..get });
    }

    /// Repeats a change in the new cluster if this answer of the old one says that it is done.
    /// Conditions that held there do not hold here, where the item has another cas unique and
    /// lease, differs, or is missing.
    fn mirror_change(&self, cx: &Arc<Context>, request: &Request<'_>, outcome: Outcome) {
        let is_done = matches!(
            outcome,
            Outcome::Stored
                | Outcome::Touched
                | Outcome::Number
                | Outcome::Ok
                | Outcome::Meta(MetaCode::Hd | MetaCode::Va)
        );
        if !is_done || gives_back(request) {
            return;
        }
        match request.op {
            Command::Set | Command::Add | Command::Replace | Command::Cas | Command::LeaseSet => {
                self.aside(cx, &Request { op: Command::Set, number: 0, ..*request });
            }
            Command::MetaSet if may_be_stale(request) => {
                self.aside(cx, &Request { value: b"", ..deletes::plain(request) });
            }
            Command::MetaArithmetic | Command::MetaSet => {
                let words = unconditional(request);
                self.aside(cx, &Request { words: &words, ..*request });
            }
            _ => self.aside(cx, request),
        }
    }

    /// Asks the new cluster in the background, without a failover.
    fn aside(&self, cx: &Arc<Context>, request: &Request<'_>) {
        let staging = std::slice::from_ref(&self.staging);
        ask_aside(staging, cx, &Request { fails_over: false, ..*request });
    }
}

/// An older cas unique with `I` stores a stale value, and no reply shows it.
fn may_be_stale(request: &Request<'_>) -> bool {
    let has = |letter| words::find(request.words, letter).is_some();
    has(b'C') && has(b'I')
}

/// The words of a change made in the old cluster, without its conditions.
fn unconditional(request: &Request<'_>) -> Vec<u8> {
    let is_set = request.op == Command::MetaSet;
    words::without(request.words, |word| match word {
        // An item missing here was not created there.
        [b'C' | b'G' | b'J' | b'N', ..] | b"I" => true,
        // add and replace
        [b'M', b'E' | b'R', ..] => is_set,
        _ => false,
    })
}

impl Route for StagingRoute {
    fn name(&self) -> String {
        "staging".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if request.op.class() == CommandClass::Delete {
            return Box::pin(self.delete(cx, request));
        }
        Box::pin(self.mirror(cx, request))
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.warm), Arc::clone(&self.staging)]
    }
}
