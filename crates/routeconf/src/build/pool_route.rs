//! `PoolRoute`, and pools where a list of routes is due.

use super::Builder;
use super::fields::Fields;
use super::handles::Given;
use crate::ast::{Member, PoolId, PoolRoute, Route, RouteId, SlowWarmUpSettings};
use crate::source::{At, Fallible, fail};

impl Builder<'_> {
    /// `Pool|A`: the members of a pool as routes.
    pub(super) fn destinations(&mut self, id: PoolId, at: At) -> Fallible<Vec<RouteId>> {
        let Some(pool) = self.pools.get(id.index()) else { return Ok(Vec::new()) };
        let members = pool.members.clone();
        let mut routes = Vec::with_capacity(members.len());
        for (index, member) in (0..).zip(members) {
            routes.push(match member {
                Member::Server(_) => self.add(Route::Destination { pool: id, index }, None, at)?,
                Member::Route(route) => route,
            });
        }
        Ok(routes)
    }

    pub(super) fn pool_route(&mut self, given: &Given<'_>) -> Fallible<Route> {
        let Some(fields) = &given.fields else {
            let id = self.pool_of(given.node)?;
            return self.pool_route_with(id, None, given.at);
        };
        let id = self.pool_of(fields.need("pool")?)?;
        self.pool_route_with(id, Some(fields), given.at)
    }

    pub(super) fn pool_route_with(
        &mut self,
        id: PoolId,
        fields: Option<&Fields<'_>>,
        at: At,
    ) -> Fallible<Route> {
        let Some(pool) = self.pools.get(id.index()).cloned() else {
            return fail(at, "the pool is not there");
        };
        let own = fields.and_then(|fields| fields.get("hash"));
        let variable = fields.and_then(|fields| fields.get("weights_rv"));
        let hash = self.pool_hash(own, variable, &pool, at)?;
        let mut route = PoolRoute {
            pool: id,
            hash,
            rates: None,
            shard_splits: None,
            asynclog: Some(pool.name.clone()),
            shadows: Vec::new(),
            slow_warmup: None,
            max_outstanding: 0,
        };
        if let Some(fields) = fields {
            self.pool_settings(fields, &mut route)?;
        }
        Ok(Route::Pool(Box::new(route)))
    }

    fn pool_settings(&mut self, fields: &Fields<'_>, route: &mut PoolRoute) -> Fallible<()> {
        route.rates = fields.get("rates").map(|node| self.rates(node)).transpose()?;
        route.shard_splits = self.shard_splits(fields)?;
        let name = fields.text("asynclog_name")?.or(fields.text("name")?);
        if let Some(name) = name {
            route.asynclog = Some(name.to_owned());
        }
        if !fields.flag("asynclog", true)? {
            route.asynclog = None;
        }
        route.shadows = self.shadows(fields)?;
        route.slow_warmup = self.slow_warmup(fields)?;
        route.max_outstanding = fields.int32("max_outstanding", 0, 1_000_000)?.unwrap_or(0);
        fields.unused(&["pool_id", "weights_rv_salt", "useBucketHashSelector"]);
        fields.unused(&["bucketize", "total_buckets", "total_buckets_by_prefix"]);
        fields.unused(&["bucketization_keyspace"]);
        for name in ["axonlog", "distribution_enabled"] {
            if fields.flag(name, false)? {
                return fail(
                    fields.place(name),
                    format!(
                        "'{name}' belongs to Meta's cross-region stream, which is not published"
                    ),
                );
            }
        }
        Ok(())
    }

    fn slow_warmup(
        &mut self,
        fields: &Fields<'_>,
    ) -> Fallible<Option<(RouteId, SlowWarmUpSettings)>> {
        let Some(node) = fields.get("slow_warmup") else { return Ok(None) };
        let inner = Fields::new(node, "'slow_warmup'")?;
        let target = self.need_route(&inner, "failoverTarget")?;
        let settings = self.slow_warmup_settings(inner.get("settings"))?;
        inner.finish(&mut self.findings);
        Ok(Some((target, settings)))
    }
}
