//! `ModifyKeyRoute`: changes the key for servers; the client reads its own key.

use std::sync::Arc;

use routeconf::ast::KeyChange;
use routeconf::select::modify_bare_key;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};

/// Changes keys on their way to servers.
#[derive(Debug)]
pub struct ModifyKeyRoute {
    /// The child.
    pub target: RouteRef,
    /// The change of keys and of their routing prefix.
    pub change: KeyChange,
}

impl Route for ModifyKeyRoute {
    fn name(&self) -> String {
        format!("modify-key|{}", self.change.ensure_key_prefix)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let key = modify_bare_key(request.key, &self.change);
            if is_too_long(&key) {
                let value = b"bad key".to_vec();
                return OwnedReply { value, ..OwnedReply::from(Failure::ClientError) };
            }
            let set = self.change.set_routing_prefix.as_deref();
            let prefix = set.map_or(request.prefix, str::as_bytes);
            let changed = Request { key: &key, prefix, hashed: None, ..request };
            self.target.route(cx, changed).await
        })
    }

    fn next(&self, _cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        let is_refused = is_too_long(&modify_bare_key(request.key, &self.change));
        if is_refused { Vec::new() } else { vec![Arc::clone(&self.target)] }
    }

    fn keys(&self, _cx: &Context, request: &Request<'_>) -> Vec<(Vec<u8>, Option<u8>)> {
        vec![(modify_bare_key(request.key, &self.change), None)]
    }
}

const fn is_too_long(key: &[u8]) -> bool {
    key.len() > proto::KEY_BYTES_MAX
}
