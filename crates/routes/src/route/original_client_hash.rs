//! `OriginalClientHashRoute`: one child for all requests of a client, by its address (section 3.2.3
//! of the paper).

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by [`Request::client`].
#[derive(Debug)]
pub struct OriginalClientHashRoute {
    /// The children. Without any, every request is a miss.
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
        child(&self.children, place)
    }
}
