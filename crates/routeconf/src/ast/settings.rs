//! Settings of a pool's route: shadows, rates, split shards, slow warm-up.

use super::buckets::Buckets;
use super::failover::Failover;
use super::hash::Hash;
use super::ids::{PoolId, RouteId};

/// `PoolRoute`. From the inside out: each destination, `max_outstanding` for each, `slow_warmup`,
/// `shadows`, `hash`, `rates`, `shard_splits`, the spool of failed deletes.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolRoute {
    /// The pool.
    pub pool: PoolId,
    /// The hash that chooses a server; it already includes the weights and tags of the pool.
    pub hash: Hash,
    /// With the hash `Latest`, which chooses by the host instead of the key: its settings, whose
    /// children are the members of the pool.
    pub latest: Option<Box<Latest>>,
    /// `bucketize`: the buckets of its keys.
    pub buckets: Option<Buckets>,
    /// `rates`.
    pub rates: Option<Rates>,
    /// `shard_splits`.
    pub shard_splits: Option<ShardSplits>,
    /// The name in the spool of failed deletes, or `None` with `"asynclog": false`.
    pub asynclog: Option<String>,
    /// `shadows`.
    pub shadows: Vec<Shadow>,
    /// `slow_warmup`.
    pub slow_warmup: Option<(RouteId, SlowWarmUpSettings)>,
    /// `max_outstanding` for each destination and thread; 0 is no limit.
    pub max_outstanding: u32,
}

/// `rates`: tokens per second for each class of commands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rates {
    /// `gets_rate` and `gets_burst`.
    pub gets: Option<RateLimit>,
    /// `sets_rate` and `sets_burst`.
    pub sets: Option<RateLimit>,
    /// `deletes_rate` and `deletes_burst`.
    pub deletes: Option<RateLimit>,
}

/// One bucket of tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Requests per second.
    pub rate: f64,
    /// Requests at once, at least 1.
    pub burst: f64,
}

/// `shadows`: also sends a part of the requests elsewhere, and drops the replies.
#[derive(Clone, Debug, PartialEq)]
pub struct Shadow {
    /// The route of the copies.
    pub target: RouteId,
    /// `index_range`: only for servers with these places in the pool, both ends included.
    pub index_range: Option<(u32, u32)>,
    /// `index_range_rv`: the runtime variable that replaces the places.
    pub index_range_rv: Option<String>,
    /// The keys that are shadowed.
    pub keys: ShadowKeys,
    /// `key_fraction_range_rv`: the runtime variable that replaces the range.
    pub key_fraction_range_rv: Option<String>,
}

/// The choice of the keys that are shadowed.
#[derive(Clone, Debug, PartialEq)]
pub enum ShadowKeys {
    /// `key_fraction_range`: those whose `routing_hash(key) / 2^32` is in the range, without the
    /// end unless it is 1.
    Fraction(f64, f64),
    /// `keys_to_shadow`: these.
    Keys(Vec<String>),
    /// `requests_fraction`: of all requests, whatever their keys.
    Requests(f64),
}

/// `shard_splits`: keys like `prefix:17:rest` whose shard is spread over several names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShardSplits {
    /// By shard id.
    pub splits: Vec<(String, ShardSplit)>,
}

/// The split of one shard; the sizes are equal unless it is migrating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardSplit {
    /// Number of names before.
    pub old_size: u32,
    /// Number of names after.
    pub new_size: u32,
    /// The start of the migration, Unix seconds.
    pub start: u64,
    /// The duration of the migration, seconds.
    pub migration_secs: u64,
    /// Deletes go to all names; otherwise, like all commands, only to this host's.
    pub fanout_deletes: bool,
}

/// `SlowWarmUpRoute` and `slow_warmup`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowWarmUpSettings {
    /// The hit rate below which it starts, 0 to 1.
    pub enable_threshold: f64,
    /// The hit rate above which it ends.
    pub disable_threshold: f64,
    /// The share of requests at hit rate 0.
    pub start: f64,
    /// The part of the hit rate that is added to the share.
    pub step: f64,
    /// Requests before it may start.
    pub min_requests: u32,
}

impl Default for SlowWarmUpSettings {
    fn default() -> Self {
        Self {
            enable_threshold: 0.7,
            disable_threshold: 0.9,
            start: 0.1,
            step: 1.0,
            min_requests: 100,
        }
    }
}

/// `LatestRoute`.
#[derive(Clone, Debug, PartialEq)]
pub struct Latest {
    /// All children.
    pub children: Vec<RouteId>,
    /// The number of children in use.
    pub failover_count: u32,
    /// Weights of the choice by host id.
    pub weights: Option<Vec<f64>>,
    /// Hashed with the host id.
    pub salt: String,
    /// `thread_local_failover`: each thread chooses independently.
    pub thread_local_failover: bool,
    /// The failover rules; its children are empty, as they are a choice of the above.
    pub failover: Failover,
}
