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
            let mut unheld = None;
            for child in &self.children {
                let reply = child.route(cx, request).await;
                // This child may not have had the item. The client reads its answer in place of a
                // success.
                if reply.outcome == Outcome::OnlyDeleted {
                    unheld = unheld.or(Some(reply));
                    continue;
                }
                let failed = reply.outcome.failure().is_some();
                let is_lease = lease::token(&request, &reply).is_some();
                if !goes_on || !failed && !reply.outcome.is_miss() && !is_lease {
                    return unheld.unwrap_or(reply);
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
            let kept = kept.filter(|kept| unheld.is_none() || kept.outcome.failure().is_some());
            let reply = leased.or(kept).or(unheld);
            reply.unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
