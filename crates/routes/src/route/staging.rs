//! `StagingRoute`: a new cluster follows the old one, which answers, until it can take over.
//!
//! What the old one has is added to the new one where it is missing, with the lifetime that is
//! left; what it has is used there, too, so that both forget the same. A new one that is busy is
//! left alone.

use std::sync::Arc;

use super::all::{ask_aside, worse};
use super::ttl::{self, Ttl};
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::join;
use upstream::{Command, CommandClass, Failure, Outcome, OwnedReply, Request};

/// Copies what the old cluster has into a new one.
#[derive(Debug)]
pub struct StagingRoute {
    /// Answers.
    pub warm: RouteRef,
    /// Follows.
    pub staging: RouteRef,
}

impl StagingRoute {
    /// After a hit: the new cluster gets the item, unless it has it.
    fn follow(&self, cx: &Arc<Context>, request: &Request<'_>, found: OwnedReply) {
        let (warm, staging) = (Arc::clone(&self.warm), Arc::clone(&self.staging));
        let (context, request) = (Arc::clone(cx), request.to_owned());
        cx.spawn(async move {
            let request = request.get();
            if ttl::of(&staging, &context, &request).await != Ttl::Absent {
                return;
            }
            let Ttl::Lives(exptime) = ttl::of(&warm, &context, &request).await else { return };
            let add = Request {
                flags: found.flags,
                exptime,
                value: &found.value,
                ..request.beside(Command::Add, request.key)
            };
            drop(staging.route(&context, add).await);
        });
    }

    /// Answered by the old cluster; what it did, the new one does behind its back.
    async fn mirror(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let reply = self.warm.route(cx, request).await;
        let staging = std::slice::from_ref(&self.staging);
        match request.op {
            Command::Get | Command::LeaseGet if reply.outcome == Outcome::Found => {
                self.follow(cx, &request, reply.clone());
            }
            Command::Get | Command::LeaseGet => {}
            op if op.class() == CommandClass::Get && reply.outcome.is_hit() => {
                let base64 = request.base64;
                let words: &[u8] = if base64 { b"t b" } else { b"t" };
                let used =
                    Request { words, base64, ..request.beside(Command::MetaGet, request.key) };
                ask_aside(staging, cx, &used);
            }
            op if op.class() == CommandClass::Get => {}
            Command::Set | Command::LeaseSet | Command::Cas if reply.outcome == Outcome::Stored => {
                ask_aside(staging, cx, &Request { op: Command::Set, number: 0, ..request });
            }
            Command::Set | Command::LeaseSet | Command::Cas => {}
            _ if reply.outcome.failure().is_none() => ask_aside(staging, cx, &request),
            _ => {}
        }
        reply
    }
}

impl Route for StagingRoute {
    fn name(&self) -> String {
        "staging".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        if request.op.class() != CommandClass::Delete {
            return Box::pin(self.mirror(cx, request));
        }
        Box::pin(async move {
            let both = vec![self.warm.route(cx, request), self.staging.route(cx, request)];
            let worst = join::all(both).await.into_iter().reduce(worse);
            worst.unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.warm), Arc::clone(&self.staging)]
    }
}
