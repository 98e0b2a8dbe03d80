//! `RandomRoute`: a random child.

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses at random, with equal probability.
#[derive(Debug)]
pub struct RandomRoute {
    /// The children. Without any, every request is a miss.
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
