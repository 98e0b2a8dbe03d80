//! `ShadowRoute`: also sends a part of the requests to a second place, and drops its answers.
//!
//! A lease's token is meaningless there, so a value stored with a lease is set there.

use std::sync::Arc;

use hashing::routing_hash;

use super::all::ask_aside;
use super::{Answer, Pick, Route, RouteRef, lease};
use crate::context::Context;
use proto::answer::MetaCode;
use upstream::{Command, Outcome, OwnedReply, Request};

/// The requests that are shadowed.
#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    /// Keys whose hash, as a fraction of all, lies in this range.
    Fraction(f64, f64),
    /// Keys that equal one of these up to their hash stop.
    Listed(Vec<Vec<u8>>),
    /// This share of all requests.
    Requests(f64),
}

/// One shadow.
#[derive(Debug)]
pub struct Shadow {
    /// The second place.
    pub target: RouteRef,
    /// The requests.
    pub keys: Keys,
}

impl Shadow {
    fn takes(&self, cx: &Context, request: &Request<'_>) -> bool {
        let chance = |share: f64| (cx.random_below(CHANCES) as f64) < share * CHANCES as f64;
        match &self.keys {
            Keys::Fraction(start, end) => {
                let place = f64::from(routing_hash(request.routed_key())) / TWO_TO_32;
                place >= *start && (place < *end || *end >= 1.0)
            }
            Keys::Listed(keys) => keys.iter().any(|key| key == request.routed_key()),
            Keys::Requests(share) => chance(*share),
        }
    }
}

const TWO_TO_32: f64 = 4_294_967_296.0;

/// The resolution of random choices.
const CHANCES: usize = 1_000_000;

/// Also sends a part of the requests to a second place.
#[derive(Debug)]
pub struct ShadowRoute {
    /// The child that answers.
    pub child: RouteRef,
    /// The shadows, which do not.
    pub shadows: Vec<Shadow>,
}

impl ShadowRoute {
    /// Stores at the child first: only it knows if the token is valid.
    async fn lease_set(
        &self,
        cx: &Arc<Context>,
        request: Request<'_>,
        shadows: Vec<&Shadow>,
    ) -> OwnedReply {
        let reply = self.child.route(cx, request).await;
        if matches!(reply.outcome, Outcome::Stored | Outcome::Meta(MetaCode::Hd)) {
            let op = if request.op.is_meta() { request.op } else { Command::Set };
            let words = lease::without(request.words);
            let set = Request { op, words: &words, number: 0, ..shadowed(request) };
            for shadow in shadows {
                ask_aside(std::slice::from_ref(&shadow.target), cx, &set);
            }
        }
        reply
    }
}

/// The request for a shadow, which does not fail over.
const fn shadowed(request: Request<'_>) -> Request<'_> {
    Request { is_aside: true, is_shadow: true, fails_over: false, ..request }
}

impl Route for ShadowRoute {
    fn name(&self) -> String {
        "shadow".to_owned()
    }

    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        // The random choice is made once: such a request is left to the future.
        let by_key = |shadow: &Shadow| !matches!(shadow.keys, Keys::Requests(_));
        if self.shadows.iter().all(|shadow| by_key(shadow) && !shadow.takes(cx, request)) {
            return self.child.pick(cx, request);
        }
        Pick::Run
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let shadows = self.shadows.iter().filter(|shadow| shadow.takes(cx, &request));
        if lease::is_used(&request) {
            let shadows = shadows.collect();
            return Box::pin(self.lease_set(cx, request, shadows));
        }
        let aside = shadowed(request);
        for shadow in shadows {
            ask_aside(std::slice::from_ref(&shadow.target), cx, &aside);
        }
        self.child.route(cx, request)
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        let shadows = self.shadows.iter().map(|shadow| &shadow.target);
        std::iter::once(&self.child).chain(shadows).cloned().collect()
    }
}
