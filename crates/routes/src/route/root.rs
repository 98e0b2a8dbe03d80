//! `RootRoute`: chooses by the key's routing prefix, `/region/cluster/`, which servers do not see.
//!
//! A key without a prefix goes to the default. A prefix with `*` goes to all matching clusters: the
//! reply is that of the default cluster if it matches, else that of the first. The others are asked
//! in the background. The cluster that replies decides a delete with a cas unique.

use std::sync::Arc;

use super::all::{ask_aside, decide, words_of_copy};
use super::{Answer, Pick, Route, RouteRef};
use crate::context::Context;
use routeconf::select::prefix_matches;
use upstream::{Failure, OwnedReply, Request};

/// Chooses by the routing prefix of the key.
#[derive(Debug)]
pub struct RootRoute {
    /// Prefixes with both slashes, and their routes.
    prefixes: Vec<(Vec<u8>, RouteRef)>,
    /// The route for keys without a prefix.
    default: Option<RouteRef>,
    /// Sends unknown prefixes to the default.
    invalid_to_default: bool,
}

/// Splits `/region/cluster/` off.
fn split(key: &[u8]) -> Option<(&[u8], &[u8])> {
    if key.first() != Some(&b'/') {
        return None;
    }
    let mut slashes = memchr::memchr_iter(b'/', key);
    let end = slashes.nth(2)? + 1;
    key.split_at_checked(end)
}

/// The key without its routing prefix, if it has one.
pub(crate) fn without_prefix(key: &[u8]) -> Option<&[u8]> {
    split(key).map(|(_, rest)| rest)
}

/// The clusters that receive a key.
enum Target<'a> {
    /// The one that answers, and those that are asked in the background.
    Many(&'a RouteRef, Vec<&'a RouteRef>),
    Nowhere,
    One(&'a RouteRef),
}

impl RootRoute {
    /// `default` is the prefix that applies to keys without one.
    #[must_use]
    pub fn new(
        prefixes: Vec<(Vec<u8>, RouteRef)>,
        default: &[u8],
        invalid_to_default: bool,
    ) -> Self {
        let default = prefixes.iter().find(|(prefix, _)| prefix == default);
        let default = default.map(|(_, route)| Arc::clone(route));
        Self { prefixes, default, invalid_to_default }
    }

    /// The routes of the clusters that match a pattern, each once regardless of aliases, the
    /// default's first.
    fn matching(&self, pattern: &[u8]) -> Vec<&RouteRef> {
        let mut all: Vec<&RouteRef> = Vec::new();
        for (_, route) in self.prefixes.iter().filter(|(known, _)| prefix_matches(pattern, known)) {
            if all.iter().any(|known| Arc::ptr_eq(known, route)) {
                continue;
            }
            let is_default = self.default.as_ref().is_some_and(|own| Arc::ptr_eq(own, route));
            all.insert(if is_default { 0 } else { all.len() }, route);
        }
        all
    }

    /// The clusters that receive the key, which loses its prefix.
    fn target<'a>(&'a self, request: &mut Request<'_>) -> Target<'a> {
        let default = self.default.as_ref();
        let or_default = || default.map_or(Target::Nowhere, Target::One);
        let Some((prefix, rest)) = split(request.key) else { return or_default() };
        if rest.is_empty() {
            return Target::Nowhere;
        }
        (request.prefix, request.key) = (prefix, rest);
        if let Some((_, route)) = self.prefixes.iter().find(|(known, _)| known == prefix) {
            return Target::One(route);
        }
        if prefix.contains(&b'*') {
            let all = self.matching(prefix);
            return match all.split_first() {
                Some((first, others)) => Target::Many(first, others.to_vec()),
                None if self.invalid_to_default => or_default(),
                None => Target::Nowhere,
            };
        }
        let region_end = memchr::memchr_iter(b'/', prefix).nth(1).map_or(0, |slash| slash + 1);
        let fallback = [prefix.get(..region_end).unwrap_or_default(), b"fallback/"].concat();
        if let Some((_, route)) = self.prefixes.iter().find(|(known, _)| *known == fallback) {
            return Target::One(route);
        }
        if self.invalid_to_default { or_default() } else { Target::Nowhere }
    }
}

impl Route for RootRoute {
    fn name(&self) -> String {
        "root".to_owned()
    }

    #[inline]
    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        // Most keys have no prefix.
        if let Some(route) = &self.default
            && request.key.first() != Some(&b'/')
        {
            return route.pick(cx, request);
        }
        match self.target(request) {
            Target::One(route) => route.pick(cx, request),
            Target::Many(..) | Target::Nowhere => Pick::Run,
        }
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, mut request: Request<'a>) -> Answer<'a> {
        match self.target(&mut request) {
            Target::One(route) => route.route(cx, request),
            Target::Many(first, others) => {
                let aside = move || {
                    for route in others {
                        ask_aside(std::slice::from_ref(route), cx, &request);
                    }
                };
                if words_of_copy(&request).is_some() {
                    return Box::pin(decide(cx, first.route(cx, request), aside));
                }
                aside();
                first.route(cx, request)
            }
            Target::Nowhere => Box::pin(async {
                let value = b"RootRoute: No rh found".to_vec();
                OwnedReply { value, ..OwnedReply::from(Failure::LocalError) }
            }),
        }
    }

    fn next(&self, _cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        match self.target(request) {
            Target::One(route) => vec![Arc::clone(route)],
            Target::Many(first, others) => std::iter::once(first).chain(others).cloned().collect(),
            Target::Nowhere => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_two_names_between_slashes() {
        assert_eq!(split(b"/a/b/c/d"), Some((&b"/a/b/"[..], &b"c/d"[..])));
        assert_eq!(split(b"/a/b/"), Some((&b"/a/b/"[..], &b""[..])));
        assert_eq!(split(b"/./././x"), Some((&b"/././"[..], &b"./x"[..])));
        assert_eq!((split(b"/a/b"), split(b"a/b/c/"), split(b"k")), (None, None, None));
    }
}
