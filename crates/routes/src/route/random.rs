//! `RandomRoute`: any child.

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by chance, each child as often as the others.
#[derive(Debug)]
pub struct RandomRoute {
    /// Without any, nothing is found.
    pub children: Vec<RouteRef>,
}

impl Select for RandomRoute {
    fn name(&self) -> String {
        "random".to_owned()
    }

    fn select(&self, cx: &Context, _request: &mut Request<'_>) -> &RouteRef {
        child(&self.children, cx.random_below(self.children.len()))
    }
}
