//! `HostIdRoute`: one child for all requests of this host, so that hosts spread over replicas
//! (section 3.2.3 of the paper).

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use routeconf::select::salted;
use upstream::Request;

/// Chooses by the number of this host.
#[derive(Debug)]
pub struct HostIdRoute {
    /// The children. Without any, every request is a miss.
    pub children: Vec<RouteRef>,
    /// Hashed with the number. If empty, the number itself decides.
    pub salt: String,
}

impl Select for HostIdRoute {
    fn name(&self) -> String {
        format!("hostid|{}", self.salt)
    }

    fn select(&self, cx: &Context, _request: &mut Request<'_>) -> &RouteRef {
        child(&self.children, salted(cx.host_id(), &self.salt) as usize)
    }
}
