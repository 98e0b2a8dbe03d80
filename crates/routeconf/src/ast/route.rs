//! The route handles.

use proto::{Command, CommandClass, Failure};

use super::failover::Failover;
use super::hash::Hash;
use super::ids::{PoolId, RouteId};
use super::settings::{Latest, PoolRoute, Rates, Shadow, ShardSplits, SlowWarmUpSettings};

/// mcrouter's route handles, by their names there without `Route`.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// All are asked, none is waited for.
    AllAsync(Vec<RouteId>),
    /// The first reply that is not a failure.
    AllFastest(Vec<RouteId>),
    /// The reply of the first; the others are asked in the background.
    AllInitial(Vec<RouteId>),
    /// The reply of more than half.
    AllMajority(Vec<RouteId>),
    /// The worst reply of all.
    AllSync(Vec<RouteId>),
    /// Large values in pieces.
    BigValue {
        /// The child, to which the pieces go.
        target: RouteId,
        /// Bytes of each piece, above which a value is cut.
        split_threshold: u64,
        /// Pieces requested at once; 0 is all.
        batch_size: u32,
        /// The reply leaves out the flag 0x8000 of the pieces' list.
        hide_reply_flag: bool,
    },
    /// Matching requests go to `child`, the others to `default`.
    Blackhole {
        /// All must hold for a match.
        policies: Vec<Condition>,
        /// The child for other requests.
        default: RouteId,
        /// The child for matches; `None` swallows them.
        child: Option<RouteId>,
    },
    /// One server of a pool, if a pool is in a list of children.
    Destination {
        /// Its pool.
        pool: PoolId,
        /// Its place there.
        index: u32,
    },
    /// A miss, counted.
    DevNull,
    /// An error.
    Error {
        /// The result, `local_error` by default.
        result: Failure,
        /// The text after it.
        message: String,
    },
    /// `FailoverRoute`, `FailoverWithExptimeRoute`, `SaltedFailoverRoute`.
    Failover(Box<Failover>),
    /// One child by the hash of the key.
    Hash {
        /// The children.
        children: Vec<RouteId>,
        /// The hash.
        hash: Box<Hash>,
    },
    /// Refuses keys with a hash stop, except those with these prefixes.
    HashStopAllowList {
        /// The child.
        target: RouteId,
        /// The prefixes.
        prefixes: Vec<String>,
    },
    /// One child by the router's host id.
    HostId {
        /// The children.
        children: Vec<RouteId>,
        /// Hashed with the host id.
        salt: String,
    },
    /// Only the first parts of a key are hashed.
    KeyParse {
        /// The child.
        target: RouteId,
        /// The number of parts.
        num_routing_parts: u32,
        /// The text between parts.
        delimiter: String,
    },
    /// Hot keys under several names.
    KeySplit {
        /// The child.
        destination: RouteId,
        /// The number of names, 2 to 1000.
        replicas: u32,
        /// Sets go to all names.
        all_sync: bool,
        /// A miss asks another name.
        first_hit: bool,
    },
    /// A small cache before a large one.
    L1L2Cache {
        /// The small one.
        l1: RouteId,
        /// The large one.
        l2: RouteId,
        /// Lifetime of copies, seconds.
        upgrading_l1_exptime: i64,
        /// Lifetime of noted misses, seconds; 0 notes none.
        ncache_exptime: i64,
        /// One in this number of noted misses asks again; 0 never.
        ncache_update_period: u32,
    },
    /// Large values in another place.
    L1L2SizeSplit(Box<SizeSplit>),
    /// Deliberate delays.
    LatencyInjection(Box<LatencyInjection>),
    /// One of the first N by host id, the rest for its failures.
    Latest(Box<Latest>),
    /// By the load that servers report.
    LoadBalancer(Box<LoadBalancer>),
    /// Requests to the log.
    Logging {
        /// The child; without it, requests are answered as misses.
        target: Option<RouteId>,
    },
    /// Keys move between places, each at a separate time.
    Migrate {
        /// The old place.
        from: RouteId,
        /// The new place.
        to: RouteId,
        /// Unix seconds.
        start_time: u64,
        /// Seconds.
        interval: u64,
    },
    /// The next child on a miss.
    MissFailover {
        /// The children.
        children: Vec<RouteId>,
        /// The reply is the best of several failures, not the last.
        return_best_on_error: bool,
    },
    /// Another expiry time.
    ModifyExptime {
        /// The child.
        target: RouteId,
        /// Seconds, as a client would write it; negative has already expired.
        exptime: i64,
        /// The use of `exptime`.
        action: ExptimeAction,
    },
    /// Another key.
    ModifyKey(Box<ModifyKey>),
    /// A miss, or the reply to a successful store.
    Null,
    /// Chooses by command.
    OperationSelector {
        /// For commands that are not listed.
        default: Option<RouteId>,
        /// By command.
        policies: Vec<(Command, RouteId)>,
    },
    /// Chooses by the client's address.
    OriginalClientHash {
        /// The children.
        children: Vec<RouteId>,
        /// Added to the choice.
        offset: u32,
    },
    /// Limits the requests in flight.
    OutstandingLimit {
        /// The child.
        target: RouteId,
        /// Requests for each thread.
        max_outstanding: u32,
    },
    /// `PoolRoute`.
    Pool(Box<PoolRoute>),
    /// Chooses by the longest prefix of the key.
    PrefixSelector {
        /// Prefixes in ascending order, each once.
        policies: Vec<(String, RouteId)>,
        /// For keys without any of them.
        wildcard: Option<RouteId>,
    },
    /// A random child.
    Random(Vec<RouteId>),
    /// Limits the requests per second.
    RateLimit {
        /// The child.
        target: RouteId,
        /// The limits.
        rates: Rates,
        /// The child for the other requests; without it they are answered as misses.
        fallback: Option<RouteId>,
    },
    /// Chooses by class of command.
    RoutingGroup {
        /// For classes that are not listed.
        default: Option<RouteId>,
        /// By class.
        policies: Vec<(CommandClass, RouteId)>,
    },
    /// `ShadowRoute`.
    Shadow {
        /// The child; a shadow's index range counts such children.
        child: RouteId,
        /// The place of the child among those that the shadows count.
        index: u32,
        /// The shadows.
        shadows: Vec<Shadow>,
    },
    /// `ShardSplitRoute`.
    ShardSplit {
        /// The child.
        destination: RouteId,
        /// The shards.
        splits: Box<ShardSplits>,
    },
    /// `SlowWarmUpRoute`.
    SlowWarmUp {
        /// The route that warms up.
        target: RouteId,
        /// The others.
        failover_target: RouteId,
        /// The pace, and the hit rates at which it starts and ends.
        settings: SlowWarmUpSettings,
    },
    /// `StagingRoute`.
    Staging {
        /// The old cluster, which answers.
        warm: RouteId,
        /// The new cluster, which follows.
        staging: RouteId,
    },
    /// `WarmUpRoute`.
    WarmUp(Box<WarmUp>),
}

/// The field of a request that `BlackholeRoute` compares.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestField {
    /// `casToken`, `leaseToken`, `delta`
    Number,
    /// `exptime`
    Exptime,
    /// `flags`
    Flags,
    /// `key`
    Key,
    /// `value`
    Value,
}

impl RequestField {
    /// The field with this name in mcrouter.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "casToken" | "leaseToken" | "delta" => Some(Self::Number),
            "exptime" => Some(Self::Exptime),
            "flags" => Some(Self::Flags),
            "key" => Some(Self::Key),
            "value" => Some(Self::Value),
            _ => None,
        }
    }
}

/// One test of `BlackholeRoute`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field of the request.
    pub field: RequestField,
    /// True if the field must equal the value, false if it must not.
    pub equals: bool,
    /// The value; numbers as digits.
    pub value: String,
}

/// The action of `ModifyExptimeRoute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExptimeAction {
    /// The smaller of both; 0, meaning never, is larger than all.
    Min,
    /// This value.
    Set,
}

/// `ModifyKeyRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModifyKey {
    /// The child.
    pub target: RouteId,
    /// The change of its key.
    pub change: KeyChange,
}

/// The change of a key by `ModifyKeyRoute`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyChange {
    /// `/region/cluster/` to set; `Some("")` removes it.
    pub set_routing_prefix: Option<String>,
    /// Put before keys that do not start with it.
    pub ensure_key_prefix: String,
    /// Written over the first bytes of keys, not put before them.
    pub modify_inplace: bool,
    /// Replaced by `ensure_key_prefix` in keys that start with it.
    pub replace_key_prefix: Option<String>,
    /// Appended to the key.
    pub set_key_suffix: String,
}

/// `WarmUpRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmUp {
    /// The cluster with the data.
    pub warm: RouteId,
    /// The cluster to fill.
    pub cold: RouteId,
    /// Lifetime of copies, seconds; 0 is forever.
    pub exptime: Option<u32>,
    /// Without `exptime`, copies get the remaining lifetime, from a metaget.
    pub enable_metaget: bool,
    /// Seconds for which a delete refuses copies (ours); 0 is none.
    pub hold_off: u32,
    /// Copies take a lease's token, and deletes go to the warm cluster first (ours).
    pub leases: bool,
}

/// `L1L2SizeSplitRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeSplit {
    /// Small values, and marks for large ones.
    pub l1: RouteId,
    /// Large values.
    pub l2: RouteId,
    /// Bytes from which a value is large.
    pub threshold: u64,
    /// Seconds from which a value may go to L2.
    pub ttl_threshold: u64,
    /// Lifetime, seconds, of a mark whose value was not stored.
    pub failure_ttl: u64,
    /// Both store the full value.
    pub both_full_set: bool,
    /// Retries of a get whose mark and value do not match, at most 10.
    pub retries: u32,
}

/// `LatencyInjectionRoute`; in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyInjection {
    /// The child.
    pub child: RouteId,
    /// Before the request.
    pub before_ms: u64,
    /// After the reply.
    pub after_ms: u64,
    /// The total, including the server's own time.
    pub total_ms: u64,
}

/// `LoadBalancerRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancer {
    /// The children.
    pub children: Vec<RouteId>,
    /// The rule of the choice.
    pub algorithm: LoadBalancerAlgorithm,
    /// Milliseconds for which a reported load is valid.
    pub load_ttl_ms: u64,
    /// The number of children tried after the first.
    pub failover_count: u32,
    /// Hashed with the key.
    pub salt: String,
}

/// `algorithm` of `LoadBalancerRoute`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadBalancerAlgorithm {
    /// `two-random-choices`.
    TwoRandomChoices,
    /// `weighted-hashing`, the default.
    WeightedHashing,
}

impl Route {
    /// The name of the handle in mcrouter's configurations.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::AllAsync(_) => "AllAsyncRoute",
            Self::AllFastest(_) => "AllFastestRoute",
            Self::AllInitial(_) => "AllInitialRoute",
            Self::AllMajority(_) => "AllMajorityRoute",
            Self::AllSync(_) => "AllSyncRoute",
            Self::BigValue { .. } => "BigValueRoute",
            Self::Blackhole { .. } => "BlackholeRoute",
            Self::Destination { .. } => "DestinationRoute",
            Self::DevNull => "DevNullRoute",
            Self::Error { .. } => "ErrorRoute",
            Self::Failover(failover) if failover.exptime.is_some() => "FailoverWithExptimeRoute",
            Self::Failover(_) => "FailoverRoute",
            Self::Hash { .. } => "HashRoute",
            Self::HashStopAllowList { .. } => "HashStopAllowListRoute",
            Self::HostId { .. } => "HostIdRoute",
            Self::KeyParse { .. } => "KeyParseRoute",
            Self::KeySplit { .. } => "KeySplitRoute",
            Self::L1L2Cache { .. } => "L1L2CacheRoute",
            Self::L1L2SizeSplit(_) => "L1L2SizeSplitRoute",
            Self::LatencyInjection(_) => "LatencyInjectionRoute",
            Self::Latest(_) => "LatestRoute",
            Self::LoadBalancer(_) => "LoadBalancerRoute",
            Self::Logging { .. } => "LoggingRoute",
            Self::Migrate { .. } => "MigrateRoute",
            Self::MissFailover { .. } => "MissFailoverRoute",
            Self::ModifyExptime { .. } => "ModifyExptimeRoute",
            Self::ModifyKey(_) => "ModifyKeyRoute",
            Self::Null => "NullRoute",
            Self::OperationSelector { .. } => "OperationSelectorRoute",
            Self::OriginalClientHash { .. } => "OriginalClientHashRoute",
            Self::OutstandingLimit { .. } => "OutstandingLimitRoute",
            Self::Pool(_) => "PoolRoute",
            Self::PrefixSelector { .. } => "PrefixSelectorRoute",
            Self::Random(_) => "RandomRoute",
            Self::RateLimit { .. } => "RateLimitRoute",
            Self::RoutingGroup { .. } => "RoutingGroupRoute",
            Self::Shadow { .. } => "ShadowRoute",
            Self::ShardSplit { .. } => "ShardSplitRoute",
            Self::SlowWarmUp { .. } => "SlowWarmUpRoute",
            Self::Staging { .. } => "StagingRoute",
            Self::WarmUp(_) => "WarmUpRoute",
        }
    }
}
