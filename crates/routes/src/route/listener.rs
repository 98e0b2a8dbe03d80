//! twemproxy's pools, each with its own address: a request goes to the pool of the address at which
//! it arrived.

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by the listener at which the request arrived.
#[derive(Debug)]
pub struct ListenerRoute {
    /// A route for each of the configuration's listeners; at least one.
    pub children: Vec<RouteRef>,
}

impl Select for ListenerRoute {
    fn name(&self) -> String {
        format!("listeners|{}", self.children.len())
    }

    #[inline]
    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        child(&self.children, usize::from(request.listener))
    }
}
