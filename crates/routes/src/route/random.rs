//! `RandomRoute`: any child.

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by chance, each child as often as the others.
#[derive(Debug)]
pub struct RandomRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
}

impl Select for RandomRoute {
    fn name(&self) -> String {
        "random".to_owned()
    }

    fn select(&self, cx: &Context, _request: &mut Request<'_>) -> &RouteRef {
        &self.children[cx.random_below(self.children.len())]
    }
}
