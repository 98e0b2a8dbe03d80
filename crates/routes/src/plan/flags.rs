//! Flags for a whole tree, independent of its configuration: mcrouter's command-line flags that
//! change routes.

use std::sync::Arc;
use std::time::Duration;

use routeconf::ast::Pool;

use crate::route::{BigValueRoute, GroupErrorsRoute, LoggingRoute, OnlyGetsRoute, RouteRef};

/// Servers' time limits for an answer, by the distance that their pool declares; `None`: the usual
/// limit.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Distances {
    /// `--within-cluster-timeout-ms`: of pools with the region and the cluster of the default
    /// route.
    pub within_cluster: Option<Duration>,
    /// `--cross-cluster-timeout-ms`: of pools that share only the region.
    pub cross_cluster: Option<Duration>,
    /// `--cross-region-timeout-ms`: of pools in another region.
    pub cross_region: Option<Duration>,
}

impl Distances {
    /// The time limit for servers of `pool`, seen from `default_route` (`/region/cluster/`).
    pub(super) fn timeout(self, pool: &Pool, default_route: &str) -> Option<Duration> {
        if pool.region.is_empty() || pool.cluster.is_empty() {
            return None;
        }
        let (region, cluster) = default_route.trim_matches('/').split_once('/')?;
        match (pool.region == region, pool.cluster == cluster) {
            (true, true) => self.within_cluster,
            (true, false) => self.cross_cluster,
            (false, _) => self.cross_region,
        }
    }
}

/// Values that are stored in pieces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BigValues {
    /// `--big-value-split-threshold`: bytes of a piece, and the limit above which a value is cut;
    /// at least 1.
    pub split_bytes: usize,
    /// `--big-value-batch-size`: pieces that are read or stored at once; 0 is all.
    pub batch: usize,
    /// `--big-value-hide-reply-flag`: replies leave the flag 0x8000 out.
    pub hides_flag: bool,
}

/// Flags that change the routes of a tree, with mcrouter's names.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TreeFlags {
    /// Trees built from a plan, at least 1. As in mcrouter, a rate limit applies to each of them;
    /// here all of them share the sum.
    pub workers: u32,
    /// Keys with an unknown routing prefix go to the same place as those without one.
    pub send_invalid_route_to_default: bool,
    /// Commands other than gets are answered as misses.
    pub allow_only_gets: bool,
    /// Large values are cut.
    pub big_values: Option<BigValues>,
    /// Every request is logged.
    pub enable_logging_route: bool,
    /// All errors of servers become one error for clients.
    pub group_remote_errors: bool,
    /// `shard_splits` have no effect.
    pub disable_shard_split_route: bool,
    /// `--target-max-inflight-requests`: a worker's concurrent requests at one place of a pool;
    /// others wait. 0: any number.
    pub target_max_inflight: u32,
    /// `--target-max-shadow-requests`: a worker's concurrent shadow requests at one place of a
    /// pool; others are dropped. 0: any number.
    pub target_max_shadows: u32,
    /// Time limits by distance.
    pub distances: Distances,
}

impl TreeFlags {
    /// Wraps `entry` in the routes that every request passes first. From the outside in: the log,
    /// the folding of errors, big values, only gets.
    pub(super) fn around(&self, entry: RouteRef) -> RouteRef {
        let mut route = entry;
        if self.allow_only_gets {
            route = Arc::new(OnlyGetsRoute { child: route });
        }
        if let Some(BigValues { split_bytes, batch, hides_flag }) = self.big_values {
            route = Arc::new(BigValueRoute { target: route, split_bytes, batch, hides_flag });
        }
        if self.group_remote_errors {
            route = Arc::new(GroupErrorsRoute { child: route });
        }
        if self.enable_logging_route {
            route = Arc::new(LoggingRoute { target: Some(route) });
        }
        route
    }
}
