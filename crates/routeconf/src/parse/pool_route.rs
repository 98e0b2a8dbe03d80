//! `PoolRoute`, and pools where a list of routes is expected.

use std::sync::Arc;

use hashing::POOL_SIZE_MAX;

use super::Builder;
use super::fields::Fields;
use super::handles::HandleContent;
use crate::ast::{
    Buckets, Hash, HashFunction, Latest, Member, PoolId, PoolRoute, Route, RouteId,
    SlowWarmUpSettings,
};
use crate::json::{Map, Node, Value};
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

    pub(super) fn pool_route(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let Some(fields) = &given.fields else {
            let id = self.pool_of(given.node)?;
            return self.pool_route_with(id, None, given.at);
        };
        let id = self.pool_of(fields.need("pool")?)?;
        let route = self.pool_route_with(id, Some(fields), given.at)?;
        self.dialed(route, fields, given.at)
    }

    /// With `weights_rv`, a hash of the key sends only a share of the requests to the route, and
    /// the others nowhere. Without the variable, all go to the route.
    fn dialed(&mut self, route: Route, fields: &Fields<'_>, at: At) -> Fallible<Route> {
        let Some(variable) = fields.text("weights_rv")? else {
            fields.unused(&["weights_rv_salt"]);
            return Ok(route);
        };
        let buckets = match &route {
            Route::Pool(pool) => pool.buckets.clone().map(Box::new),
            _ => None,
        };
        let function =
            HashFunction::WeightedCh3Rv { variable: variable.to_owned(), without: vec![1.0, 0.0] };
        let salt = fields.text("weights_rv_salt")?.unwrap_or_default().to_owned();
        let hash = Hash { function, salt, buckets, ..Hash::ch3() };
        let children = vec![self.add(route, None, at)?, self.add(Route::Null, None, at)?];
        Ok(Route::Hash { children, hash: Box::new(hash) })
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
        let latest = own.map(|own| self.latest_hash(own)).transpose()?.flatten();
        let own = own.filter(|_| latest.is_none());
        let hash = self.pool_hash(own, &pool, at)?;
        let mut route = PoolRoute {
            pool: id,
            hash,
            latest: latest.map(Box::new),
            buckets: None,
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

    /// The settings of `"hash": "Latest"`; `None` for another hash.
    fn latest_hash(&mut self, own: &Node) -> Fallible<Option<Latest>> {
        let name = if let Some(name) = own.as_str() {
            Some(name)
        } else {
            own.get("hash_func").and_then(Node::as_str)
        };
        if name != Some("Latest") {
            return Ok(None);
        }
        if own.as_str().is_some() {
            return self.latest_of(None, Vec::new()).map(Some);
        }
        let fields = Fields::new(own, "'hash'")?;
        fields.known(&["hash_func"]);
        let latest = self.latest_of(Some(&fields), Vec::new())?;
        fields.finish(&mut self.findings);
        Ok(Some(latest))
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
        fields.unused(&["pool_id"]);
        self.bucketize(fields, route)?;
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

    /// The weighted hashes choose by the key's bucket, the others by the key.
    fn bucketize(&self, fields: &Fields<'_>, route: &mut PoolRoute) -> Fallible<()> {
        let no = |name: &str, why: &str| fail(fields.place(name), format!("'{name}' {why}"));
        if fields.flag("useBucketHashSelector", false)? {
            return no("useBucketHashSelector", "(the bucket of another route) is not supported");
        }
        if !fields.flag("bucketize", false)? {
            fields.unused(&["total_buckets", "total_buckets_by_prefix", "bucketization_keyspace"]);
            return Ok(());
        }
        let Some(buckets) = buckets(fields)? else {
            return no("bucketize", "needs 'total_buckets' and 'bucketization_keyspace'");
        };
        if route.shard_splits.is_some() {
            return no("bucketize", "beside 'shard_splits' is not supported");
        }
        let is_weighted = matches!(
            route.hash.function,
            HashFunction::WeightedCh3 { .. } | HashFunction::WeightedCh3Rv { .. }
        );
        let is_fanned = self.pools.get(route.pool.index()).is_some_and(|pool| pool.is_fanned_out);
        if is_weighted && is_fanned {
            return no("bucketize", "of a pool with 'additional_fanout' is not supported");
        }
        route.hash.buckets = is_weighted.then(|| Box::new(buckets.clone()));
        route.buckets = Some(buckets);
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

/// The settings of `bucketize`; `None` if it is absent.
fn buckets(fields: &Fields<'_>) -> Fallible<Option<Buckets>> {
    let total = fields.int32("total_buckets", 1, POOL_SIZE_MAX)?;
    let keyspace = fields.text("bucketization_keyspace")?;
    let (Some(total), Some(keyspace)) = (total, keyspace) else { return Ok(None) };
    let own = fields.object("total_buckets_by_prefix")?;
    let count = |(prefix, node): (&Arc<str>, &Node)| match node.value {
        Value::Int(count) if (1..=i64::from(total)).contains(&count) => {
            Ok((prefix.to_string(), u32::try_from(count).unwrap_or(total)))
        }
        _ => {
            let message = format!("the buckets of '{prefix}' are an integer from 1 to {total}");
            fail(node.at, message)
        }
    };
    let by_prefix = own.into_iter().flat_map(Map::members).map(count).collect::<Fallible<_>>()?;
    let salt = fields.text("salt")?.unwrap_or_default().to_owned();
    Ok(Some(Buckets { total, by_prefix, salt, keyspace: keyspace.to_owned() }))
}
