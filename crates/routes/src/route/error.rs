//! `ErrorRoute`: an error for every request.

use std::sync::Arc;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, Outcome, OwnedReply, Request};

/// Fails requests.
#[derive(Debug)]
pub struct ErrorRoute {
    /// The failure.
    pub failure: Failure,
    /// The text after `SERVER_ERROR`; empty for the failure's default text.
    pub message: String,
}

impl Route for ErrorRoute {
    fn name(&self) -> String {
        format!("error|{}", self.message)
    }

    fn route<'a>(&'a self, _cx: &'a Arc<Context>, _request: Request<'a>) -> Answer<'a> {
        let value = self.message.clone().into_bytes();
        let failed = OwnedReply::of(Outcome::Failed(self.failure));
        Box::pin(async move { OwnedReply { value, ..failed } })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}
