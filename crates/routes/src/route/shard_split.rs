//! `ShardSplitRoute`: keys like `prefix:17:rest` whose shard is hot live under several names,
//! `prefix:17aa:rest`, ..., so that several servers share its load.

use std::sync::Arc;

use routeconf::ast::{ShardSplit, ShardSplits};
use routeconf::select;

use super::all::{ask_aside, decide};
use super::{Answer, Pick, Route, RouteRef, words};
use crate::context::Context;
use upstream::{OwnedReply, Request};

/// Deletes go to all names, and the reply is that of the plain one, unless the split says
/// otherwise. The name of this host decides a delete with a cas unique. Everything else goes to the
/// name of this host.
#[derive(Debug)]
pub struct ShardSplitRoute {
    /// The child.
    pub destination: RouteRef,
    /// The shards.
    pub splits: ShardSplits,
}

impl ShardSplitRoute {
    fn split(&self, request: &Request<'_>) -> Option<&ShardSplit> {
        select::shard_split(&self.splits.splits, request.routed_key())
    }

    /// Deletes all names of the key in the background, except the one with this number.
    fn others_aside(&self, cx: &Arc<Context>, request: Request<'_>, split: &ShardSplit, own: u32) {
        for name in (0..select::names_at_most(split)).filter(|name| *name != own) {
            let key = select::shard_name(request.key, name);
            let delete = named(request, key.as_deref());
            ask_aside(std::slice::from_ref(&self.destination), cx, &delete);
        }
    }

    async fn own(&self, cx: &Arc<Context>, request: Request<'_>, own: u32) -> OwnedReply {
        let key = select::shard_name(request.key, own);
        self.destination.route(cx, named(request, key.as_deref())).await
    }

    /// Deletes the host's own item, whose cas unique `request` has, and then the other names with
    /// `words`, which lack it. A unique that differs deletes nothing.
    async fn delete(
        &self,
        cx: &Arc<Context>,
        request: Request<'_>,
        words: &[u8],
        split: &ShardSplit,
        own: u32,
    ) -> OwnedReply {
        let others = || self.others_aside(cx, Request { words, ..request }, split, own);
        decide(cx, self.own(cx, request, own), others).await
    }
}

/// The request under another name of its shard, or unchanged under the plain one.
fn named<'a>(request: Request<'a>, key: Option<&'a [u8]>) -> Request<'a> {
    key.map_or(request, |key| Request { key, hashed: None, ..request })
}

/// The number of this host's name.
fn own(split: &ShardSplit, cx: &Context) -> u32 {
    let size = select::split_size(split, cx.host_id(), cx.unix_secs());
    cx.host_id().checked_rem(size).unwrap_or(0)
}

impl Route for ShardSplitRoute {
    fn name(&self) -> String {
        "shard-split".to_owned()
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        if self.split(request).is_some() { Pick::Run } else { self.destination.pick(cx, request) }
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let Some(split) = self.split(&request) else { return self.destination.route(cx, request) };
        let own = own(split, cx);
        if !select::goes_to_all_names(split, request.op.class()) {
            return Box::pin(self.own(cx, request, own));
        }
        match words::without_unique(request.words) {
            Some(words) => {
                Box::pin(async move { self.delete(cx, request, &words, split, own).await })
            }
            None => {
                self.others_aside(cx, request, split, 0);
                self.destination.route(cx, request)
            }
        }
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.destination)]
    }

    fn keys(&self, cx: &Context, request: &Request<'_>) -> Vec<(Vec<u8>, Option<u8>)> {
        let Some(split) = self.split(request) else { return Vec::new() };
        let is_for_all = select::goes_to_all_names(split, request.op.class());
        let own = own(split, cx);
        let names = if is_for_all { 0..select::names_at_most(split) } else { own..own + 1 };
        let key = |name| match select::shard_name(request.key, name) {
            Some(key) => (key, None),
            None => (request.key.to_vec(), request.hashed),
        };
        names.map(key).collect()
    }
}
