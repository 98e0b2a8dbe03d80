//! `MissFailoverRoute`: uses the next child after a miss.

use std::sync::Arc;

use super::{Answer, Route, RouteRef, lease};
use crate::context::Context;
use upstream::{Command, CommandClass, Failure, Outcome, OwnedReply, Request};

/// Gets and deletes continue until a hit; other commands go to the first child. After a miss with a
/// lease, the others are asked without one, and the lease is the reply if they miss, too.
#[derive(Debug)]
pub struct MissFailoverRoute {
    /// The children in order.
    pub children: Vec<RouteRef>,
    /// After misses everywhere, the best reply is returned, not the last.
    pub returns_best: bool,
}

impl Route for MissFailoverRoute {
    fn name(&self) -> String {
        "miss-failover".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let goes_on = matches!(request.op.class(), CommandClass::Get | CommandClass::Delete);
            // The next child answers gets of a child that fails. A store that the child accepted
            // would not be read.
            let fails_over = request.fails_over || !goes_on && self.children.len() > 1;
            let mut request = Request { fails_over, ..request };
            let unleased = lease::is_asked(&request).then(|| lease::without(request.words));
            let (mut kept, mut leased): (Option<OwnedReply>, Option<OwnedReply>) = (None, None);
            for child in &self.children {
                let reply = child.route(cx, request).await;
                // A child with this answer may not have had the item.
                let is_vague = reply.outcome == Outcome::OnlyDeleted;
                let failed = is_vague || reply.outcome.failure().is_some();
                let is_lease = lease::token(&request, &reply).is_some();
                if !goes_on || !failed && !reply.outcome.is_miss() && !is_lease {
                    return reply;
                }
                // The value that follows goes to the first child, so other tokens are useless.
                if let Some(words) = unleased.as_deref().filter(|_| is_lease) {
                    leased = Some(reply);
                    let op = if request.op.is_meta() { request.op } else { Command::Get };
                    request = Request { op, words, ..request };
                    continue;
                }
                let is_better = kept
                    .as_ref()
                    .is_none_or(|kept| reply.outcome.severity() < kept.outcome.severity());
                if !self.returns_best || is_better {
                    kept = Some(reply);
                }
            }
            leased.or(kept).unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
