//! mcrouter's `--group-remote-errors`: clients receive every failure of a server as `remote error`.

use std::sync::Arc;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, Request};

/// Replaces every failure of a server by one error.
#[derive(Debug)]
pub struct GroupErrorsRoute {
    /// The child.
    pub child: RouteRef,
}

impl Route for GroupErrorsRoute {
    fn name(&self) -> String {
        "group-errors".to_owned()
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(async move {
            let reply = self.child.route(cx, request).await;
            match reply.outcome.failure() {
                None | Some(Failure::ClientError | Failure::LocalError) => reply,
                Some(_) => Failure::RemoteError.into(),
            }
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(&self.child)]
    }
}
