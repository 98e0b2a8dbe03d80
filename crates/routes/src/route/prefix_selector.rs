//! `PrefixSelectorRoute`: by the longest prefix of the key, the pools of section 3.2.2 of the
//! paper.

use super::{RouteRef, Select};
use crate::context::Context;
use routeconf::select::longest_prefix;
use upstream::Request;

/// Chooses by the prefix of the key.
#[derive(Debug)]
pub struct PrefixSelectorRoute {
    /// Prefixes in ascending order, each once.
    policies: Vec<(Vec<u8>, RouteRef)>,
    wildcard: RouteRef,
}

impl PrefixSelectorRoute {
    /// `wildcard` takes the keys that have none of the prefixes.
    #[must_use]
    pub fn new(mut policies: Vec<(Vec<u8>, RouteRef)>, wildcard: RouteRef) -> Self {
        policies.sort_by(|(one, _), (other, _)| one.cmp(other));
        Self { policies, wildcard }
    }
}

impl Select for PrefixSelectorRoute {
    fn name(&self) -> String {
        "prefix-selector".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let found = longest_prefix(&self.policies, request.key);
        found.map_or(&self.wildcard, |(_, route)| route)
    }
}
