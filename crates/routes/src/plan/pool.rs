//! Pools: their servers, and the routes that a `PoolRoute` puts around them.

use std::sync::Arc;

use hashing::Placement;
use routeconf::ast::{self, HashFunction, Member, PoolId, RouteId};

use super::Builder;
use super::copies_and_limits::{outstanding_limit, slow_warm_up};
use crate::route::{
    BucketizeRoute, CountedRoute, DestinationRoute, EjectRoute, ErrorRoute, HashRoute, NullRoute,
    RouteRef, Selecting, ShadowLimit,
};
use narrow::to_u32;
use upstream::{Ejection, Failure};

impl Builder<'_> {
    /// One place of a pool. Its failed deletes are kept under the name of `asynclog`.
    pub(super) fn destination(
        &mut self,
        id: PoolId,
        index: usize,
        asynclog: Option<&str>,
    ) -> RouteRef {
        let pool = self.plan.config.pool(id);
        let server = match pool.members.get(index) {
            Some(Member::Server(server)) => server,
            Some(Member::Route(route)) => return self.get(*route),
            None => return Arc::new(NullRoute),
        };
        let label = server.address.to_string();
        // Every address was looked up when the plan was made.
        let Some(address) = self.plan.addresses.get(&label) else { return Arc::new(NullRoute) };
        let settings = self.plan.settings_of(pool, server);
        let keeps_prefix = pool.keep_routing_prefix;
        let id = self.upstream.destination_in(address, &settings, &pool.name);
        self.destinations.push(id);
        let asynclog = asynclog.map(str::to_owned);
        let shadows = ShadowLimit::new(self.plan.flags.target_max_shadows);
        let target = DestinationRoute { id, label: label.into(), asynclog, keeps_prefix, shadows };
        match self.plan.counted.get(&pool.name) {
            None => Arc::new(target),
            Some(counts) => {
                let (pool, counts) = (pool.name.clone(), Arc::clone(counts));
                Arc::new(CountedRoute { target: Arc::new(target), pool, counts })
            }
        }
    }

    /// With `tko_tracker`, sends requests even to knocked-out servers of the pool once too many are
    /// knocked out.
    pub(super) fn track(&mut self) {
        for pool in &self.plan.config.pools {
            let Some(tracker) = pool.tko_tracker else { continue };
            let members = pool.members.iter().filter_map(|member| match member {
                Member::Server(server) => Some((server, server.address.to_string())),
                Member::Route(_) => None,
            });
            let used: Vec<_> = members
                .filter_map(|(server, name)| {
                    let address = self.plan.addresses.get(&name)?;
                    Some((address, self.plan.settings_of(pool, server)))
                })
                .collect();
            self.upstream.track(&used, tracker.lower, tracker.upper);
        }
    }

    /// From the inside out: each server, its limit, its slow warm-up, its shadows, the hash, the
    /// rates, split shards, buckets.
    pub(super) fn pool(&mut self, route: &ast::PoolRoute) -> RouteRef {
        let config = &self.plan.config;
        let pool = config.pool(route.pool);
        if pool.eject.is_some() {
            return self.ejecting(route.pool, Some(&route.hash));
        }
        let mut children = Vec::new();
        for index in 0..pool.members.len() {
            let mut child = self.destination(route.pool, index, route.asynclog.as_deref());
            let place = to_u32(index);
            for limit in [self.plan.flags.target_max_inflight, route.max_outstanding] {
                if limit > 0 {
                    child = outstanding_limit(child, limit);
                }
            }
            if let Some((failover, settings)) = &route.slow_warmup {
                child = slow_warm_up(child, self.get(*failover), settings);
            }
            children.push(self.shadowed(child, place, &route.shadows));
        }
        if children.is_empty() && pool.error_on_empty {
            let message = format!("pool {} is empty", pool.name);
            return Arc::new(ErrorRoute { failure: Failure::LocalError, message });
        }
        let hashed = match &route.latest {
            Some(latest) => self.latest_among(children, latest),
            None => self.hash(children, &route.hash, &pool.hosts(), &pool.name),
        };
        let limited = match &route.rates {
            Some(rates) => self.rate_limit(hashed, rates, None),
            None => hashed,
        };
        let target = self.shard_split(limited, route.shard_splits.as_ref());
        match route.buckets.clone() {
            Some(buckets) => Arc::new(Selecting(BucketizeRoute { target, buckets })),
            None => target,
        }
    }

    /// The pool of twemproxy whose places are exactly these routes, if it ejects.
    pub(super) fn ejecting_pool(&self, ids: &[RouteId]) -> Option<PoolId> {
        let ast::Route::Destination { pool, .. } = self.plan.config.handle(*ids.first()?).route
        else {
            return None;
        };
        self.plan.config.pool(pool).eject.map(|_| pool)
    }

    /// A pool of twemproxy that ejects failed servers.
    pub(super) fn ejecting(&mut self, id: PoolId, hash: Option<&ast::Hash>) -> RouteRef {
        let pool = self.plan.config.pool(id);
        let (limit, retry_ms) = pool.eject.unwrap_or((u32::MAX, 0));
        let retry_us = retry_ms.saturating_mul(1000);
        let ejection = Arc::new(Ejection::new(pool.members.len(), limit, retry_us));
        let mut children = Vec::new();
        for index in 0..pool.members.len() {
            let before = self.destinations.len();
            children.push(self.destination(id, index, None));
            if let Some(place) = self.destinations.get(before) {
                self.upstream.watch_failures(*place, Arc::downgrade(&ejection), index);
            }
        }
        let label = pool.name.clone();
        Arc::new(Selecting(EjectRoute::new(children, hash.cloned(), ejection, label)))
    }

    /// One of `children` by the hash of the key; a route without effect, if there are none.
    pub(super) fn hash(
        &self,
        children: Vec<RouteRef>,
        hash: &ast::Hash,
        servers: &[(&str, u16)],
        label: &str,
    ) -> RouteRef {
        let variable = match &hash.function {
            HashFunction::WeightedCh3Rv { variable, .. } => self.plan.variables.weights(variable),
            _ => None,
        };
        let placement = match variable {
            // As in mcrouter, a missing weight is a half.
            Some(weights) => {
                let mut weights = weights.to_vec();
                weights.resize(children.len(), 0.5);
                Placement::weighted_ch3(&weights)
            }
            None => hash.placement(children.len(), servers),
        };
        let Ok(placement) = placement else { return Arc::new(NullRoute) };
        let label = format!("{label}|{}", hash.function.name());
        Arc::new(Selecting(HashRoute { children, placement, hash: hash.clone(), label }))
    }
}
