//! The route handles.

use proto::{Command, CommandClass, Failure};

use super::failover::Failover;
use super::hash::Hash;
use super::ids::{PoolId, RouteId};
use super::settings::{PoolRoute, Rates, Shadow, ShardSplits, SlowWarmUpSettings};

/// mcrouter's route handles, by their names there without `Route`.
#[derive(Clone, Debug, PartialEq)]
pub enum Route {
    /// All are asked, nobody is waited for.
    AllAsync(Vec<RouteId>),
    /// The first reply that is no failure.
    AllFastest(Vec<RouteId>),
    /// The reply of the first; the others are asked behind its back.
    AllInitial(Vec<RouteId>),
    /// The reply of more than half.
    AllMajority(Vec<RouteId>),
    /// The worst reply of all.
    AllSync(Vec<RouteId>),
    /// Large values in pieces.
    BigValue {
        /// Where the pieces go.
        target: RouteId,
        /// Bytes above which a value is cut, and of each piece.
        split_threshold: u64,
        /// Pieces that are asked for at once; 0 is all.
        batch_size: u32,
        /// Whether the reply leaves out the flag 0x8000 of the pieces' list.
        hide_reply_flag: bool,
    },
    /// Requests that match go to `child`, the others to `default`.
    Blackhole {
        /// All must hold for a match.
        policies: Vec<Condition>,
        /// What goes on.
        default: RouteId,
        /// Where matches go; `None` swallows them.
        child: Option<RouteId>,
    },
    /// One server of a pool, where a pool stands in a list of children.
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
        /// The text behind it.
        message: String,
    },
    /// `FailoverRoute`, `FailoverWithExptimeRoute`, `SaltedFailoverRoute`.
    Failover(Box<Failover>),
    /// One child by the hash of the key.
    Hash {
        /// The children.
        children: Vec<RouteId>,
        /// How.
        hash: Box<Hash>,
    },
    /// The hash stop counts only for keys with these prefixes.
    HashStopAllowList {
        /// Where to.
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
        /// Where to.
        target: RouteId,
        /// How many parts.
        num_routing_parts: u32,
        /// What stands between parts.
        delimiter: String,
    },
    /// Hot keys under several names.
    KeySplit {
        /// Where to.
        destination: RouteId,
        /// How many names, 2 to 1000.
        replicas: u32,
        /// Whether sets go to all names.
        all_sync: bool,
        /// Whether a miss asks another name.
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
    /// Large values elsewhere.
    L1L2SizeSplit(Box<SizeSplit>),
    /// Delays on purpose.
    LatencyInjection(Box<LatencyInjection>),
    /// One of the first N by host id, the rest for its failures.
    Latest(Box<Latest>),
    /// By the load that servers report.
    LoadBalancer(Box<LoadBalancer>),
    /// Requests to the log.
    Logging {
        /// Where to; nothing answers as a miss.
        target: Option<RouteId>,
    },
    /// Keys move from one to the other, each at its own time.
    Migrate {
        /// Before.
        from: RouteId,
        /// After.
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
        /// Whether the best of several failures is the reply, not the last.
        return_best_on_error: bool,
    },
    /// Another expiry time.
    ModifyExptime {
        /// Where to.
        target: RouteId,
        /// Seconds, as a client would say it; negative is already dead.
        exptime: i64,
        /// How.
        action: ExptimeAction,
    },
    /// Another key.
    ModifyKey(Box<ModifyKey>),
    /// A miss, or what answers a store that worked.
    Null,
    /// By command.
    OperationSelector {
        /// For commands that are not listed.
        default: Option<RouteId>,
        /// By command.
        policies: Vec<(Command, RouteId)>,
    },
    /// By the address of the client.
    OriginalClientHash {
        /// The children.
        children: Vec<RouteId>,
        /// Added to the choice.
        offset: u32,
    },
    /// Limits the requests in flight.
    OutstandingLimit {
        /// Where to.
        target: RouteId,
        /// Requests for each thread.
        max_outstanding: u32,
    },
    /// `PoolRoute`.
    Pool(Box<PoolRoute>),
    /// By the longest prefix of the key.
    PrefixSelector {
        /// Prefixes, in order.
        policies: Vec<(String, RouteId)>,
        /// For keys without any of them.
        wildcard: Option<RouteId>,
    },
    /// Any.
    Random(Vec<RouteId>),
    /// Limits the requests of each second.
    RateLimit {
        /// Where to.
        target: RouteId,
        /// How many.
        rates: Rates,
        /// Where the others go; without it they are answered as misses.
        fallback: Option<RouteId>,
    },
    /// By class of command.
    RoutingGroup {
        /// For classes that are not listed.
        default: Option<RouteId>,
        /// By class.
        policies: Vec<(CommandClass, RouteId)>,
    },
    /// `ShadowRoute`.
    Shadow {
        /// Where to; a shadow's index range counts these.
        child: RouteId,
        /// The place of the child among those that the shadows count.
        index: u32,
        /// The shadows.
        shadows: Vec<Shadow>,
    },
    /// `ShardSplitRoute`.
    ShardSplit {
        /// Where to.
        destination: RouteId,
        /// The shards.
        splits: Box<ShardSplits>,
    },
    /// `SlowWarmUpRoute`.
    SlowWarmUp {
        /// The box that warms up.
        target: RouteId,
        /// The others.
        failover_target: RouteId,
        /// How fast.
        settings: SlowWarmUpSettings,
    },
    /// `StagingRoute`.
    Staging {
        /// Answers.
        warm: RouteId,
        /// Follows.
        staging: RouteId,
    },
    /// `WarmUpRoute`.
    WarmUp(Box<WarmUp>),
}

/// One test of `BlackholeRoute`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The field of the request, `key` for instance.
    pub field: String,
    /// Whether it must be equal or must not.
    pub equals: bool,
    /// To what; numbers as digits.
    pub value: String,
}

/// What `ModifyExptimeRoute` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExptimeAction {
    /// The smaller of both; 0, which is never, is larger than all.
    Min,
    /// This.
    Set,
}

/// `ModifyKeyRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModifyKey {
    /// Where to.
    pub target: RouteId,
    /// `/region/cluster/` to set; `Some("")` removes it.
    pub set_routing_prefix: Option<String>,
    /// Put before keys that do not begin with it.
    pub ensure_key_prefix: String,
    /// Replaced by `ensure_key_prefix` where keys begin with it.
    pub replace_key_prefix: Option<String>,
    /// Put behind the key.
    pub set_key_suffix: String,
}

/// `WarmUpRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmUp {
    /// The cluster that has the data.
    pub warm: RouteId,
    /// The one that is to have it.
    pub cold: RouteId,
    /// Lifetime of copies, seconds; 0 is for ever.
    pub exptime: u32,
    /// Whether copies get the lifetime that is left, by a metaget.
    pub enable_metaget: bool,
    /// Seconds for which a delete refuses copies (ours); 0 is none.
    pub hold_off: u32,
    /// Whether copies take a lease's token, and deletes go to the warm cluster first (ours).
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
    /// Whether both get the full value.
    pub both_full_set: bool,
    /// Retries of a get whose mark and value do not fit, at most 10.
    pub retries: u32,
}

/// `LatencyInjectionRoute`; in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyInjection {
    /// Where to.
    pub child: RouteId,
    /// Before the request.
    pub before_ms: u64,
    /// After the reply.
    pub after_ms: u64,
    /// In all, the server's own time included.
    pub total_ms: u64,
}

/// `LatestRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest {
    /// All there are.
    pub children: Vec<RouteId>,
    /// How many of them are used.
    pub failover_count: u32,
    /// Weights of the choice by host id.
    pub weights: Option<Vec<f64>>,
    /// Hashed with the host id.
    pub salt: String,
    /// `thread_local_failover`: each thread chooses for itself.
    pub thread_local_failover: bool,
    /// The rules of failing over; its children are empty, as they are a choice of the above.
    pub failover: Failover,
}

/// `LoadBalancerRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadBalancer {
    /// The children.
    pub children: Vec<RouteId>,
    /// How.
    pub algorithm: LoadBalancerAlgorithm,
    /// How long a reported load counts, milliseconds.
    pub load_ttl_ms: u64,
    /// How many children are tried after the first.
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
