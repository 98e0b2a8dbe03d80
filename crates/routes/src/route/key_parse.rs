//! `KeyParseRoute` and `HashStopAllowListRoute`: choose the part of a key that is hashed.

use std::sync::Arc;

use super::{Answer, DestinationRoute, Pick, Route, RouteRef, Select};
use crate::context::Context;
use routeconf::select::{allowed_part, first_parts};
use upstream::{Failure, OwnedReply, Request};

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

/// Admits the hash stop `|#|` only in keys with these prefixes, and refuses others that have it.
#[derive(Debug)]
pub struct HashStopAllowListRoute {
    /// The child.
    pub target: RouteRef,
    /// Prefixes of keys.
    pub prefixes: Vec<Vec<u8>>,
}

impl HashStopAllowListRoute {
    /// The child, with the request as it receives it.
    fn admitted(&self, request: &mut Request<'_>) -> Result<&RouteRef, &'static str> {
        let (class, hashed) = (request.op.class(), request.hashed.map(usize::from));
        let hashed = allowed_part(class, request.key, &self.prefixes, hashed)?;
        request.hashed = hashed.and_then(|len| u8::try_from(len).ok());
        Ok(&self.target)
    }
}

impl Route for HashStopAllowListRoute {
    fn name(&self) -> String {
        "hash-stop-allow-list".to_owned()
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        self.admitted(request).map_or(Pick::Run, |target| target.pick(cx, request))
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, mut request: Request<'a>) -> Answer<'a> {
        match self.admitted(&mut request) {
            Ok(target) => target.route(cx, request),
            Err(refused) => {
                let value = refused.as_bytes().to_vec();
                Box::pin(async { OwnedReply { value, ..OwnedReply::from(Failure::LocalError) } })
            }
        }
    }

    fn next(&self, _cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        self.admitted(request).into_iter().cloned().collect()
    }

    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        self.admitted(request).ok()?.server(cx, request)
    }
}
