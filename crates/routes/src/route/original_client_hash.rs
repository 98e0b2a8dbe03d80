//! `OriginalClientHashRoute`: one child for all requests of a client, by its address (section 3.2.3
//! of the paper).

use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by [`Request::client`].
#[derive(Debug)]
pub struct OriginalClientHashRoute {
    /// At least one.
    pub children: Vec<RouteRef>,
    /// Added to the choice.
    pub offset: u32,
}

impl Select for OriginalClientHashRoute {
    fn name(&self) -> String {
        format!("original-client-hash|{}", self.offset)
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let place = request.client.wrapping_add(self.offset) as usize;
        &self.children[place % self.children.len()]
    }
}
