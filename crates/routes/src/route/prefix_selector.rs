//! `PrefixSelectorRoute`: by the longest prefix of the key, the pools of section 3.2.2 of the
//! paper.

use super::{RouteRef, Select};
use crate::context::Context;
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

    /// A prefix of the key sorts before the key, and a longer one after a shorter one. So the
    /// longest is the last one that is not after the key, or one before it.
    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let end = self.policies.partition_point(|(prefix, _)| prefix.as_slice() <= request.key);
        let candidates = self.policies.iter().take(end).rev();
        let found = candidates.into_iter().find(|(prefix, _)| request.key.starts_with(prefix));
        found.map_or(&self.wildcard, |(_, route)| route)
    }
}
