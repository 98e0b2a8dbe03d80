//! `AllMajorityRoute`: asks all children; the outcome of more than half of them wins.

use std::sync::Arc;

use super::race::Race;
use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};

/// Without a majority, the most frequent outcome wins; among equally frequent ones, the worst.
/// Requests that it does not wait for continue in the background. The first child decides a delete
/// with a cas unique.
#[derive(Debug)]
pub struct AllMajorityRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Route for AllMajorityRoute {
    fn name(&self) -> String {
        "all-majority".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let mut race = Race::among(&self.children, cx, request).await;
            let majority = (self.children.len() >> 1) + 1;
            let mut replies: Vec<(OwnedReply, usize)> = Vec::new();
            while let Some(reply) = race.next().await {
                let same = replies.iter().position(|(seen, _)| seen.outcome == reply.outcome);
                let index = same.unwrap_or_else(|| {
                    replies.push((reply, 0));
                    replies.len() - 1
                });
                let Some((_, count)) = replies.get_mut(index) else { continue };
                *count += 1;
                if *count >= majority {
                    race.leave();
                    return replies.swap_remove(index).0;
                }
            }
            let best =
                replies.into_iter().max_by_key(|(reply, count)| (*count, reply.outcome.severity()));
            best.map_or_else(|| OwnedReply::from(Failure::LocalError), |(reply, _)| reply)
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
