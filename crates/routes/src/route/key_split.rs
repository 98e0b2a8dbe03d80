//! `KeySplitRoute`: a hot key under several names, `key`, `key::1`, `key::2`, ..., so that several
//! servers share its load.

use std::sync::Arc;

use routeconf::select::key_replica;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use crate::join;
use crate::route::all::worse;
use upstream::{CommandClass, Failure, OwnedReply, Request};

/// A host reads and writes the name of its own number; deletes go to all names.
#[derive(Debug)]
pub struct KeySplitRoute {
    /// The child.
    pub destination: RouteRef,
    /// The number of names, at least 2.
    pub replicas: u32,
    /// Stores go to all names.
    pub stores_all: bool,
    /// After a miss, another name is asked.
    pub first_hit: bool,
}

impl KeySplitRoute {
    async fn one(&self, cx: &Arc<Context>, request: Request<'_>, replica: u32) -> OwnedReply {
        let Some(key) = key_replica(request.key, replica) else {
            return self.destination.route(cx, request).await;
        };
        self.destination.route(cx, Request { key: &key, ..request }).await
    }

    async fn all(&self, cx: &Arc<Context>, request: Request<'_>) -> OwnedReply {
        let answers = (0..self.replicas)
            .map(|replica| -> Answer<'_> { Box::pin(self.one(cx, request, replica)) });
        let worst = join::all(answers.collect()).await.into_iter().reduce(worse);
        worst.unwrap_or_else(|| OwnedReply::from(Failure::LocalError))
    }
}

impl Route for KeySplitRoute {
    fn name(&self) -> String {
        format!("keysplit|{}", self.replicas)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let class = request.op.class();
        if class == CommandClass::Delete || class == CommandClass::Update && self.stores_all {
            return Box::pin(self.all(cx, request));
        }
        let replica = |number: u32| number.checked_rem(self.replicas).unwrap_or(0);
        let own = replica(cx.host_id());
        Box::pin(async move {
            let reply = self.one(cx, request, own).await;
            if !self.first_hit || class != CommandClass::Get || !reply.outcome.is_miss() {
                return reply;
            }
            let other = replica(own.wrapping_add(1));
            self.one(cx, request, other).await
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.destination)]
    }
}
