//! `KeyParseRoute` and `HashStopAllowListRoute`: choose the part of a key that is hashed.

use super::{RouteRef, Select};
use crate::context::Context;
use routeconf::select::{allowed_part, first_parts};
use upstream::Request;

/// Only the first parts of a key are hashed.
#[derive(Debug)]
pub struct KeyParseRoute {
    /// The child.
    pub target: RouteRef,
    /// The number of parts, at least 1.
    pub parts: usize,
    /// The bytes between parts; not empty.
    pub delimiter: Vec<u8>,
}

impl Select for KeyParseRoute {
    fn name(&self) -> String {
        format!("key-parse|{}|{}", self.parts, String::from_utf8_lossy(&self.delimiter))
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let end = first_parts(request.key, &self.delimiter, self.parts);
        request.hashed = end.and_then(|end| u8::try_from(end).ok());
        &self.target
    }
}

/// Applies the hash stop `|#|` only to keys with these prefixes. Other keys are hashed whole.
#[derive(Debug)]
pub struct HashStopAllowListRoute {
    /// The child.
    pub target: RouteRef,
    /// Prefixes of keys.
    pub prefixes: Vec<Vec<u8>>,
}

impl Select for HashStopAllowListRoute {
    fn name(&self) -> String {
        "hash-stop-allow-list".to_owned()
    }

    fn select(&self, _cx: &Context, request: &mut Request<'_>) -> &RouteRef {
        let is_listed = self.prefixes.iter().any(|prefix| request.key.starts_with(prefix));
        let hashed = allowed_part(request.key, is_listed, request.hashed.map(usize::from));
        request.hashed = hashed.and_then(|len| u8::try_from(len).ok());
        &self.target
    }
}
