//! Pools: their servers, and what a `PoolRoute` puts around them.

use std::rc::Rc;

use routeconf::ast::{self, HashFunction, Member, PoolId, ServerAddress};

use super::keeping::{outstanding_limit, slow_warm_up};
use super::{Builder, rate_limit};
use crate::reply::Failure;
use crate::route::{
    DestinationRoute, ErrorRoute, HashRoute, NullRoute, RouteRef, Selecting, ShardSplitRoute,
};

/// What keeps a pool from being used as it says.
pub(super) fn missing(pool: &ast::Pool) -> Vec<&'static str> {
    let asked = [
        (pool.keep_routing_prefix, "keep_routing_prefix"),
        (pool.tko_tracker.is_some(), "tko_tracker"),
        (pool.eject.is_some(), "auto_eject_hosts"),
    ];
    asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, what)| what).collect()
}

pub(super) fn missing_of_route(pool: &ast::PoolRoute) -> Option<String> {
    let asked = [
        (pool.weights_rv.is_some(), "weights_rv"),
        (matches!(pool.hash.function, HashFunction::WeightedCh3Rv { .. }), "WeightedCh3Rv"),
    ];
    let first = asked.into_iter().find(|(is_asked, _)| *is_asked);
    first.map(|(_, what)| what.to_owned()).or_else(|| missing_of_shadows(&pool.shadows))
}

pub(super) fn missing_of_shadows(shadows: &[ast::Shadow]) -> Option<String> {
    let by_variable = shadows.iter().any(|shadow| shadow.key_fraction_range_rv.is_some());
    by_variable.then(|| "key_fraction_range_rv".to_owned())
}

impl Builder<'_> {
    /// One place of a pool. Deletes that fail are kept under the name of `asynclog`.
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
            None => return Rc::new(NullRoute),
        };
        let label = server.address.to_string();
        // Every address was looked up when the plan was made.
        let Some(address) = self.plan.addresses.get(&label) else { return Rc::new(NullRoute) };
        let id = self.upstream.destination(address, &self.plan.settings_of(pool, server));
        self.destinations.push(id);
        let asynclog = asynclog.map(str::to_owned);
        Rc::new(DestinationRoute { id, label: label.into(), asynclog })
    }

    /// From the inside out: each server, its limit, its slow warm-up, its shadows, the hash, the rates, split shards. Bucket numbers
    /// change nothing on the way to a server.
    pub(super) fn pool(&mut self, route: &ast::PoolRoute) -> RouteRef {
        let config = &self.plan.config;
        let pool = config.pool(route.pool);
        let mut children = Vec::new();
        for index in 0..pool.members.len() {
            let mut child = self.destination(route.pool, index, route.asynclog.as_deref());
            let place = u32::try_from(index).unwrap_or(u32::MAX);
            if route.max_outstanding > 0 {
                child = outstanding_limit(child, route.max_outstanding);
            }
            if let Some((failover, settings)) = &route.slow_warmup {
                child = slow_warm_up(child, self.get(*failover), settings);
            }
            children.push(self.shadowed(child, place, &route.shadows));
        }
        if children.is_empty() && pool.error_on_empty {
            let message = format!("pool {} is empty", pool.name);
            return Rc::new(ErrorRoute { failure: Failure::LocalError, message });
        }
        let servers: Vec<_> = pool.members.iter().filter_map(address).collect();
        let hashed = self.hash(children, &route.hash, &servers, &pool.name);
        let limited = match &route.rates {
            Some(rates) => rate_limit(hashed, rates, None),
            None => hashed,
        };
        match &route.shard_splits {
            Some(splits) => {
                let splits = splits.clone();
                Rc::new(ShardSplitRoute { destination: limited, splits })
            }
            None => limited,
        }
    }

    /// One of `children` by the hash of the key; nothing, if there are none.
    pub(super) fn hash(
        &self,
        children: Vec<RouteRef>,
        hash: &ast::Hash,
        servers: &[(&str, u16, u32)],
        label: &str,
    ) -> RouteRef {
        let Ok(placement) = hash.placement(children.len(), servers) else {
            return Rc::new(NullRoute);
        };
        let label = format!("{label}|{}", hash.function.name());
        Rc::new(Selecting(HashRoute { children, placement, hash: hash.clone(), label }))
    }
}

/// Host, port and weight of a server, for hashes over addresses.
fn address(member: &Member) -> Option<(&str, u16, u32)> {
    let Member::Server(server) = member else { return None };
    match &server.address {
        ServerAddress::Tcp { host, port } => Some((host, *port, server.weight)),
        ServerAddress::Unix(path) => Some((path, 0, server.weight)),
    }
}
