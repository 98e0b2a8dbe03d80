//! `LoadBalancerRoute`: chooses a child with little load.
//!
//! mcrouter reads a server's load from the replies of its own protocols. memcached's protocols do
//! not report it, so here the load of a child is the number of this worker's unanswered requests to
//! it.

use std::sync::Arc;

use hashing::Placement;

use super::{Answer, Route, RouteRef};
use crate::context::Context;
use upstream::{Failure, OwnedReply, Request};
use upstream::{SendCell, SendRefCell};

/// The choice of a child.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Algorithm {
    /// The less loaded of the two children that the key hashes to.
    TwoChoices,
    /// A hash of the key that a child accepts less often the more load it has.
    Weighted,
}

/// Asks the child with the least load, or chooses by load.
#[derive(Debug)]
pub struct LoadBalancerRoute {
    /// At least one.
    children: Vec<RouteRef>,
    algorithm: Algorithm,
    /// Microseconds for which weights are valid.
    load_ttl_us: u64,
    /// Maximum number of children tried after the first.
    failovers: usize,
    salt: String,
    /// Requests without a reply, by child.
    outstanding: Vec<SendCell<u32>>,
    /// Weights, and the time since which they are valid.
    weights: SendRefCell<(u64, Option<Placement>)>,
    uniform: Placement,
}

impl LoadBalancerRoute {
    /// `None` without children.
    #[must_use]
    pub fn new(
        children: Vec<RouteRef>,
        algorithm: Algorithm,
        load_ttl_us: u64,
        failovers: usize,
        salt: String,
    ) -> Option<Self> {
        let uniform = Placement::ch3(children.len()).ok()?;
        let outstanding = children.iter().map(|_| SendCell::new(0)).collect();
        let weights = SendRefCell::new((0, None));
        Some(Self {
            children,
            algorithm,
            load_ttl_us,
            failovers,
            salt,
            outstanding,
            weights,
            uniform,
        })
    }

    fn load(&self, child: usize) -> u32 {
        self.outstanding.get(child).map_or(0, SendCell::get)
    }

    fn first(&self, cx: &Context, request: &Request<'_>) -> usize {
        let key = request.routed_key();
        match self.algorithm {
            Algorithm::TwoChoices => {
                let pick = |salt: &str| {
                    let salt = format!("{}{salt}", self.salt);
                    self.uniform.pick_salted(key, salt.as_bytes()) as usize
                };
                let (one, other) = (pick(""), pick("2"));
                if self.load(other) < self.load(one) { other } else { one }
            }
            Algorithm::Weighted => {
                let (since_us, placement) = &mut *self.weights.borrow_mut();
                if placement.is_none() || cx.now_us() >= since_us.saturating_add(self.load_ttl_us) {
                    let least = (0..self.children.len()).map(|child| self.load(child)).min();
                    let least = f64::from(least.unwrap_or(0));
                    let weight = |child| (1.0 + least) / (1.0 + f64::from(self.load(child)));
                    let weights: Vec<f64> = (0..self.children.len()).map(weight).collect();
                    *placement = Placement::weighted_ch3(&weights).ok();
                    *since_us = cx.now_us();
                }
                let placement = placement.as_ref().unwrap_or(&self.uniform);
                placement.pick_salted(key, self.salt.as_bytes()) as usize
            }
        }
    }

    async fn ask(&self, cx: &Arc<Context>, child: usize, request: Request<'_>) -> OwnedReply {
        let (Some(count), Some(child)) = (self.outstanding.get(child), self.children.get(child))
        else {
            return OwnedReply::from(Failure::LocalError);
        };
        let _counted = Counted::new(count);
        child.route(cx, request).await
    }
}

/// Counts one more request for as long as it lives.
struct Counted<'a>(&'a SendCell<u32>);

impl<'a> Counted<'a> {
    fn new(count: &'a SendCell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Route for LoadBalancerRoute {
    fn name(&self) -> String {
        match self.algorithm {
            Algorithm::TwoChoices => "loadbalancer|two-random-choices".to_owned(),
            Algorithm::Weighted => "loadbalancer|weighted-hashing".to_owned(),
        }
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a> {
        let first = self.first(cx, &request);
        Box::pin(async move {
            let mut reply = self.ask(cx, first, request).await;
            let mut others: Vec<usize> =
                (0..self.children.len()).filter(|child| *child != first).collect();
            others.sort_by_key(|child| self.load(*child));
            for child in others.into_iter().take(self.failovers) {
                if !reply.outcome.failure().is_some_and(Failure::fails_over) {
                    break;
                }
                reply = self.ask(cx, child, request).await;
            }
            reply
        })
    }

    fn next(&self, _cx: &Context, _request: &mut Request<'_>) -> Vec<RouteRef> {
        self.children.clone()
    }
}
