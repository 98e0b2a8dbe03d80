//! `ShardSplitRoute`: keys like `prefix:17:rest` whose shard is hot live under several names,
//! `prefix:17aa:rest`, ..., so that several servers share its load.

use std::sync::Arc;

use routeconf::ast::{ShardSplit, ShardSplits};
use routeconf::select;

use super::all::ask_aside;
use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use upstream::Request;

/// Deletes go to all names, and the reply is that of the plain one, unless the split says
/// otherwise. Everything else goes to the name of this host.
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
        if select::goes_to_all_names(split, request.op.class()) {
            for name in 1..select::names_at_most(split) {
                let key = select::shard_name(request.key, name);
                let delete = Request { key: &key, hashed: None, ..request };
                ask_aside(std::slice::from_ref(&self.destination), cx, &delete);
            }
            return self.destination.route(cx, request);
        }
        let size = select::split_size(split, cx.host_id(), cx.unix_secs());
        let name = cx.host_id().checked_rem(size).unwrap_or(0);
        let key = select::shard_name(request.key, name);
        Box::pin(async move {
            let request = Request { key: &key, hashed: None, ..request };
            self.destination.route(cx, request).await
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.destination)]
    }
}
