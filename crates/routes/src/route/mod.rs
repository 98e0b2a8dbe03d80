//! Routes, the parts of a configuration. Each takes a request and returns a reply, by asking a
//! server or other routes.
//!
//! Most routes only choose one child ([`Select`]). A path of such routes down to a server is
//! followed at once, without a future or an allocation ([`Route::pick`]). Everything else is a
//! future ([`Route::route`]).
//!
//! Names and meanings are mcrouter's.
//!
//! Configurations decide the structure of routes, and clients their input. Neither may end the
//! program, so code here must not panic.
#![cfg_attr(
    not(test),
    deny(
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::integer_division_remainder_used,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

mod all;
mod all_async;
mod all_fastest;
mod all_initial;
mod all_majority;
mod all_sync;
mod big_value;
mod blackhole;
mod bucketize;
mod child;
mod counted;
mod destination;
mod eject;
mod error;
mod failover;
mod group_errors;
mod hash;
mod host_id;
mod key_parse;
mod key_split;
mod l1l2_cache;
mod latency_injection;
mod lease;
mod lease_pairs;
mod listener;
mod load_balancer;
mod logging;
mod migrate;
mod miss_failover;
mod modify_exptime;
mod modify_key;
mod null;
mod only_gets;
mod operation_selector;
mod order;
mod original_client_hash;
mod outstanding_limit;
mod plain_store;
mod prefix_selector;
mod race;
mod random;
mod rate_limit;
mod root;
mod shadow;
mod shard_split;
mod size_split;
mod slow_warm_up;
mod staging;
mod ttl;
mod warm_up;
mod words;

pub use all_async::AllAsyncRoute;
pub use all_fastest::AllFastestRoute;
pub use all_initial::AllInitialRoute;
pub use all_majority::AllMajorityRoute;
pub use all_sync::AllSyncRoute;
pub use big_value::BigValueRoute;
pub use blackhole::BlackholeRoute;
pub use bucketize::BucketizeRoute;
pub use counted::CountedRoute;
pub use destination::{DestinationRoute, ShadowLimit};
pub use eject::EjectRoute;
pub use error::ErrorRoute;
pub use failover::{FailoverErrors, FailoverLimit, FailoverRoute};
pub use group_errors::GroupErrorsRoute;
pub use hash::HashRoute;
pub use host_id::HostIdRoute;
pub use key_parse::{HashStopAllowListRoute, KeyParseRoute};
pub use key_split::KeySplitRoute;
pub use l1l2_cache::L1L2CacheRoute;
pub use latency_injection::LatencyInjectionRoute;
pub use lease_pairs::LeasePairs;
pub use listener::ListenerRoute;
pub use load_balancer::{Algorithm, LoadBalancerRoute};
pub use logging::LoggingRoute;
pub use migrate::MigrateRoute;
pub use miss_failover::MissFailoverRoute;
pub use modify_exptime::{Change, ModifyExptimeRoute};
pub use modify_key::ModifyKeyRoute;
pub use null::{DevNullRoute, NullRoute, default_outcome};
pub use only_gets::OnlyGetsRoute;
pub use operation_selector::{OperationSelectorRoute, RoutingGroupRoute};
pub use order::{Deterministic, Latest, Order};
pub use original_client_hash::OriginalClientHashRoute;
pub use outstanding_limit::{OutstandingLimitRoute, Semaphore};
pub use prefix_selector::PrefixSelectorRoute;
pub use random::RandomRoute;
pub use rate_limit::{Bucket, Buckets, RateLimitRoute};
pub use root::RootRoute;
pub(crate) use root::without_prefix;
pub use shadow::{Keys, Shadow, ShadowRoute};
pub use shard_split::ShardSplitRoute;
pub use size_split::L1L2SizeSplitRoute;
pub use slow_warm_up::{HitRate, SlowWarmUpRoute};
pub use staging::StagingRoute;
pub use warm_up::WarmUpRoute;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::context::Context;
use upstream::{DestinationId, Outcome, OwnedReply, Request};

/// A shared route.
pub type RouteRef = Arc<dyn Route>;

/// A pending reply.
pub type Answer<'a> = Pin<Box<dyn Future<Output = OwnedReply> + Send + 'a>>;

/// The end of a request's path, if it is known at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pick {
    /// The answer of this server is the reply.
    Ask(DestinationId),
    /// This is the reply.
    Answer(Outcome),
    /// The request needs [`Route::route`].
    Run,
}

/// A node of the tree. It answers a request, or chooses a node that does.
pub trait Route: fmt::Debug + Send + Sync {
    /// mcrouter's name of the route, with the parameters that distinguish it.
    fn name(&self) -> String;

    /// Follows the request while only choices are needed. It may change the request (its key, its
    /// expiry time) on the way; after [`Pick::Run`] the changes are void.
    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        let _ = (cx, request);
        Pick::Run
    }

    /// Answers the request.
    fn route<'a>(&'a self, cx: &'a Arc<Context>, request: Request<'a>) -> Answer<'a>;

    /// The routes that this request may go to from here, for the administrators' commands.
    fn next(&self, cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef>;

    /// The keys under which [`Self::next`] receives this request, the first of which decides the
    /// reply, with the bytes that are hashed of each. Empty for its own key.
    fn keys(&self, cx: &Context, request: &Request<'_>) -> Vec<(Vec<u8>, Option<u8>)> {
        let _ = (cx, request);
        Vec::new()
    }

    /// The one server that has this key in the absence of failures, if the route only chooses.
    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        let _ = (cx, request);
        None
    }

    /// The bucket of the key and the owner of the buckets, if the route counts keys into buckets.
    fn bucket(&self, request: &Request<'_>) -> Option<(u32, &str)> {
        let _ = request;
        None
    }
}

/// A route that only chooses one of its children.
pub trait Select: fmt::Debug + Send + Sync {
    /// See [`Route::name`].
    fn name(&self) -> String;

    /// The child for this request, which it may change.
    fn select(&self, cx: &Context, request: &mut Request<'_>) -> &RouteRef;

    /// See [`Route::bucket`].
    fn bucket(&self, request: &Request<'_>) -> Option<(u32, &str)> {
        let _ = request;
        None
    }
}

/// The route made from a [`Select`].
#[derive(Debug)]
pub struct Selecting<S>(pub S);

impl<S: Select> Route for Selecting<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    #[inline]
    fn pick(&self, cx: &Context, request: &mut Request<'_>) -> Pick {
        self.0.select(cx, request).pick(cx, request)
    }

    fn route<'a>(&'a self, cx: &'a Arc<Context>, mut request: Request<'a>) -> Answer<'a> {
        self.0.select(cx, &mut request).route(cx, request)
    }

    fn next(&self, cx: &Context, request: &mut Request<'_>) -> Vec<RouteRef> {
        vec![Arc::clone(self.0.select(cx, request))]
    }

    fn server<'a>(
        &'a self,
        cx: &Context,
        request: &mut Request<'_>,
    ) -> Option<&'a DestinationRoute> {
        self.0.select(cx, request).server(cx, request)
    }

    fn bucket(&self, request: &Request<'_>) -> Option<(u32, &str)> {
        self.0.bucket(request)
    }
}
