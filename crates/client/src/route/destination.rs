//! `DestinationRoute`: the leaf of every tree, one server.

use std::rc::Rc;

use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use crate::request::Request;
use crate::upstream::DestinationId;

/// Asks one server.
#[derive(Debug)]
pub struct DestinationRoute {
    /// Which.
    pub id: DestinationId,
    /// Its address, for people.
    pub label: String,
}

impl Route for DestinationRoute {
    fn name(&self) -> String {
        format!("host|{}", self.label)
    }

    #[inline]
    fn pick(&self, _cx: &Context, _request: &mut Request<'_>) -> Pick {
        Pick::Ask(self.id)
    }

    fn route<'a>(&'a self, cx: &'a Rc<Context>, request: Request<'a>) -> Answer<'a> {
        Box::pin(cx.ask(self.id, request))
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        Vec::new()
    }
}
