//! Routes that store keys in several places or under several names, and routes that observe, slow
//! down or drop requests.

use std::sync::Arc;

use routeconf::ast::{self, LoadBalancerAlgorithm};

use super::Builder;
use crate::route::{
    Algorithm, BigValueRoute, BlackholeRoute, DevNullRoute, HashStopAllowListRoute, HitRate,
    KeyParseRoute, KeySplitRoute, L1L2CacheRoute, L1L2SizeSplitRoute, LatencyInjectionRoute,
    LoadBalancerRoute, LoggingRoute, NullRoute, OutstandingLimitRoute, RouteRef, Selecting,
    Semaphore, ShardSplitRoute, SlowWarmUpRoute, StagingRoute, WarmUpRoute,
};
use upstream::SendCell;

impl Builder<'_> {
    pub(super) fn copies_and_limits(&self, route: &ast::Route) -> RouteRef {
        use ast::Route as R;
        match route {
            R::BigValue { target, split_threshold, batch_size, hide_reply_flag } => {
                Arc::new(BigValueRoute {
                    target: self.get(*target),
                    split_bytes: usize::try_from(*split_threshold).unwrap_or(usize::MAX),
                    batch: *batch_size as usize,
                    hides_flag: *hide_reply_flag,
                })
            }
            R::KeySplit { destination, replicas, all_sync, first_hit } => Arc::new(KeySplitRoute {
                destination: self.get(*destination),
                replicas: *replicas,
                stores_all: *all_sync,
                first_hit: *first_hit,
            }),
            R::L1L2Cache { l1, l2, upgrading_l1_exptime, ncache_exptime, ncache_update_period } => {
                Arc::new(L1L2CacheRoute {
                    l1: self.get(*l1),
                    l2: self.get(*l2),
                    upgrading_exptime: *upgrading_l1_exptime,
                    miss_exptime: *ncache_exptime,
                    miss_period: *ncache_update_period,
                    misses: SendCell::new(0),
                })
            }
            R::L1L2SizeSplit(split) => Arc::new(L1L2SizeSplitRoute {
                l1: self.get(split.l1),
                l2: self.get(split.l2),
                large_bytes: split.threshold,
                lifetime_secs: signed(split.ttl_threshold),
                failure_secs: signed(split.failure_ttl),
                stores_both: split.both_full_set,
                retries: split.retries,
            }),
            R::ShardSplit { destination, splits } => {
                self.shard_split(self.get(*destination), Some(splits))
            }
            R::Staging { warm, staging } => {
                Arc::new(StagingRoute { warm: self.get(*warm), staging: self.get(*staging) })
            }
            R::WarmUp(warm_up) => Arc::new(WarmUpRoute {
                warm: self.get(warm_up.warm),
                cold: self.get(warm_up.cold),
                exptime: match warm_up.exptime {
                    None if warm_up.enable_metaget => None,
                    exptime => Some(i64::from(exptime.unwrap_or(0))),
                },
                hold_off: i64::from(warm_up.hold_off),
                leases: warm_up.leases,
            }),
            other => self.passing(other),
        }
    }

    /// The names of shards before `destination`, unless the command line disables them.
    pub(super) fn shard_split(
        &self,
        destination: RouteRef,
        splits: Option<&ast::ShardSplits>,
    ) -> RouteRef {
        match splits.filter(|_| !self.plan.flags.disable_shard_split_route) {
            Some(splits) => Arc::new(ShardSplitRoute { destination, splits: splits.clone() }),
            None => destination,
        }
    }

    /// Routes that pass a request on: at once, later, or never.
    fn passing(&self, route: &ast::Route) -> RouteRef {
        use ast::Route as R;
        match route {
            R::Blackhole { policies, default, child } => {
                let child = child.map(|id| self.get(id));
                let route = BlackholeRoute::new(policies.clone(), self.get(*default), child);
                Arc::new(Selecting(route))
            }
            R::HashStopAllowList { target, prefixes } => {
                let prefixes = prefixes.iter().map(|prefix| prefix.clone().into_bytes()).collect();
                Arc::new(HashStopAllowListRoute { target: self.get(*target), prefixes })
            }
            R::KeyParse { target, num_routing_parts, delimiter } => {
                Arc::new(Selecting(KeyParseRoute {
                    target: self.get(*target),
                    parts: (*num_routing_parts).max(1) as usize,
                    delimiter: delimiter.clone().into_bytes(),
                }))
            }
            R::LatencyInjection(latency) => Arc::new(LatencyInjectionRoute {
                child: self.get(latency.child),
                before_us: latency.before_ms.saturating_mul(1000),
                after_us: latency.after_ms.saturating_mul(1000),
                total_us: latency.total_ms.saturating_mul(1000),
            }),
            R::Latest(latest) => self.latest(latest),
            R::LoadBalancer(balancer) => self.load_balancer(balancer),
            R::Logging { target } => {
                Arc::new(LoggingRoute { target: target.map(|id| self.get(id)) })
            }
            R::OutstandingLimit { target, max_outstanding } => {
                outstanding_limit(self.get(*target), *max_outstanding)
            }
            R::SlowWarmUp { target, failover_target, settings } => {
                slow_warm_up(self.get(*target), self.get(*failover_target), settings)
            }
            R::DevNull => Arc::new(DevNullRoute),
            // NullRoute; `Builder::route` and `by_request` have built the others.
            _ => Arc::new(NullRoute),
        }
    }

    fn load_balancer(&self, balancer: &ast::LoadBalancer) -> RouteRef {
        let algorithm = match balancer.algorithm {
            LoadBalancerAlgorithm::TwoRandomChoices => Algorithm::TwoChoices,
            LoadBalancerAlgorithm::WeightedHashing => Algorithm::Weighted,
        };
        let route = LoadBalancerRoute::new(
            self.all(&balancer.children),
            algorithm,
            balancer.load_ttl_ms.saturating_mul(1000),
            balancer.failover_count as usize,
            balancer.salt.clone(),
        );
        match route {
            Some(route) => Arc::new(route),
            None => Arc::new(NullRoute),
        }
    }
}

pub(super) fn outstanding_limit(target: RouteRef, limit: u32) -> RouteRef {
    Arc::new(OutstandingLimitRoute { target, semaphore: Semaphore::new(limit) })
}

pub(super) fn slow_warm_up(
    target: RouteRef,
    failover: RouteRef,
    settings: &ast::SlowWarmUpSettings,
) -> RouteRef {
    let rate = HitRate::default();
    Arc::new(SlowWarmUpRoute { target, failover, settings: *settings, rate })
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
