//! `HashRoute`: one child by the hash of the key.

use hashing::Placement;
use routeconf::ast::Hash;

use super::child::child;
use super::{RouteRef, Select};
use crate::context::Context;
use upstream::Request;

/// Chooses by the key, without a failover.
#[derive(Debug)]
pub struct HashRoute {
    /// As many children as `placement` has.
    pub children: Vec<RouteRef>,
    /// Maps a key to a child.
    pub placement: Placement,
    /// The hash function, and the part of the key that it hashes.
    pub hash: Hash,
    /// The pool and the hash, for display.
    pub label: String,
}

impl Select for HashRoute {
    fn name(&self) -> String {
        format!("hash|{}", self.label)
    }

    #[inline]
    fn select(&self, cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let part = match request.hashed {
            Some(_) => request.routed_key(),
            None => self.hash.key_part.of(request.key),
        };
        let index = self.hash.pick_part(&self.placement, part);
        cx.choose(index);
        child(&self.children, index as usize)
    }
}
