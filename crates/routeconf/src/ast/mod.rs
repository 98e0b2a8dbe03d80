//! A configuration as types: pools, routes, and the listeners in front of them.
//!
//! Routes are in one list, [`Config::handles`], and refer to each other by [`RouteId`]. A route
//! with several uses (a named handle) is in it once. **A child always has a smaller id than its
//! parents**: there are no cycles, and one pass in the order of the list builds every child before
//! its parents.

mod buckets;
mod failover;
mod hash;
mod ids;
mod pool;
mod route;
mod settings;

pub use buckets::Buckets;
pub use failover::{
    DEFAULT_FAILOVER_ERRORS, Failover, FailoverErrors, FailoverLimit, FailoverPolicy,
};
pub use hash::{Hash, HashFunction, KeyPart};
pub use ids::{PoolId, RouteId};
pub use pool::{Member, Pool, PoolWeights, Protocol, Security, Server, ServerAddress, TkoTracker};
pub use route::{
    Condition, ExptimeAction, KeyChange, LatencyInjection, LoadBalancer, LoadBalancerAlgorithm,
    ModifyKey, RequestField, Route, SizeSplit, WarmUp,
};
pub use settings::{
    Latest, PoolRoute, RateLimit, Rates, Shadow, ShadowKeys, ShardSplit, ShardSplits,
    SlowWarmUpSettings,
};

pub use proto::{Command, CommandClass, Failure};

use crate::source::{At, Files};

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The files it was read from, which a reload watches.
    pub files: Files,
    /// By [`PoolId`].
    pub pools: Vec<Pool>,
    /// By [`RouteId`]; children before parents.
    pub handles: Vec<Handle>,
    /// mcrouter's configuration has one; twemproxy's one per pool.
    pub listeners: Vec<Listener>,
    /// The prefix of keys without one, `/region/cluster/`.
    pub default_route: String,
}

/// A route, with its name and place.
#[derive(Clone, Debug, PartialEq)]
pub struct Handle {
    /// The route itself.
    pub route: Route,
    /// Its `name`, if it has one.
    pub name: Option<String>,
    /// Its place in the configuration.
    pub at: At,
}

/// An entry point for requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// twemproxy: the pool's name; mcrouter: empty.
    pub name: String,
    /// twemproxy: the address to listen on. mcrouter sets it on the command line.
    pub listen: Option<PoolAddress>,
    /// The path from its keys to the first route.
    pub entry: Entry,
    /// Its place in the configuration.
    pub at: At,
}

/// The address on which a pool of twemproxy listens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PoolAddress {
    /// `host:port`, or the path of a unix socket.
    pub address: String,
    /// The access mode of the unix socket, if it is given.
    pub mode: Option<u32>,
}

/// From a key to the first route.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// mcrouter: keys may start with `/region/cluster/`, which servers do not see.
    Prefixes(Vec<PrefixRoute>),
    /// twemproxy: keys have no prefix.
    Plain(RouteId),
}

/// One of mcrouter's `/region/cluster/` prefixes. Each prefix occurs once.
#[derive(Clone, Debug, PartialEq)]
pub struct PrefixRoute {
    /// `/region/cluster/` with both slashes.
    pub prefix: String,
    /// Its route.
    pub route: RouteId,
    /// Its place in the configuration.
    pub at: At,
}

impl Config {
    /// The route of that id. Ids come from this configuration, so it exists.
    #[must_use]
    pub fn handle(&self, id: RouteId) -> &Handle {
        &self.handles[id.index()]
    }

    /// The pool of that id. Ids come from this configuration, so it exists.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> &Pool {
        &self.pools[id.index()]
    }
}
