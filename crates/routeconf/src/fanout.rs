//! A limit on the number of requests that one client request may cause.
//!
//! A route that asks several children multiplies requests. Forty named handles, each of which asks
//! the previous one twice, would make 2^39 requests of one. So a configuration is refused if one
//! request could cause more than [`REQUESTS_MAX`], or pass through more than [`DEPTH_MAX`] routes
//! (decision 80).

use crate::ast::{Config, Entry, Failover, FailoverPolicy, Member, PoolRoute, Route, RouteId};
use crate::select::children;
use crate::source::Diagnostic;

/// Maximum number of requests that one client request may cause.
pub const REQUESTS_MAX: u64 = 65_536;

/// Maximum number of routes on a request's path: each uses some of a worker's stack.
pub const DEPTH_MAX: u32 = 256;

/// The maximum effect of a request behind a route.
#[derive(Clone, Copy, Debug)]
struct Bound {
    requests: u64,
    /// Routes on the longest path, including this one.
    depth: u32,
}

/// The first route behind which a request may exceed the limits; `None` if there is none.
pub(crate) fn excess(config: &Config) -> Option<Diagnostic> {
    let mut bounds = Bounds { config, routes: Vec::new(), pools: vec![None; config.pools.len()] };
    for handle in &config.handles {
        // Children precede their parents.
        let bound = bounds.of(&handle.route);
        let name = match &handle.name {
            Some(name) => format!("{} '{name}'", handle.route.name()),
            None => handle.route.name().to_owned(),
        };
        if bound.requests > REQUESTS_MAX {
            let count = bound.requests;
            let text = format!(
                "{name}: one request may become {count} requests, of {REQUESTS_MAX} at most"
            );
            return Some(Diagnostic::error(handle.at, text));
        }
        if bound.depth > DEPTH_MAX {
            let text = format!("{name}: a request passes through more than {DEPTH_MAX} routes");
            return Some(Diagnostic::error(handle.at, text));
        }
        bounds.routes.push(bound);
    }
    bounds.excess_of_prefixes()
}

struct Bounds<'c> {
    config: &'c Config,
    /// The known bounds, by [`RouteId`].
    routes: Vec<Bound>,
    /// The bound of each pool's most expensive member, by [`crate::ast::PoolId`].
    pools: Vec<Option<Bound>>,
}

impl Bounds<'_> {
    fn at(&self, id: RouteId) -> Bound {
        // A child has a smaller id than its parents, so its bound is known.
        self.routes.get(id.index()).copied().unwrap_or(Bound { requests: u64::MAX, depth: 0 })
    }

    fn requests(&self, id: RouteId) -> u64 {
        self.at(id).requests
    }

    fn sum<'r>(&self, routes: impl IntoIterator<Item = &'r RouteId>) -> u64 {
        routes.into_iter().fold(0, |sum, id| sum.saturating_add(self.requests(*id)))
    }

    fn max<'r>(&self, routes: impl IntoIterator<Item = &'r RouteId>) -> u64 {
        routes.into_iter().map(|id| self.requests(*id)).max().unwrap_or(0)
    }

    fn of(&mut self, route: &Route) -> Bound {
        let member = match route {
            Route::Pool(pool) => Some(self.member(pool.pool.index())),
            Route::Destination { pool, .. } => Some(self.member(pool.index())),
            _ => None,
        };
        let requests = self.requests_of(route, member.map_or(0, |member| member.requests));
        let below = children(route).iter().map(|id| self.at(*id).depth).max().unwrap_or(0);
        let depth = below.max(member.map_or(0, |member| member.depth)) + 1;
        // A route without requests answers itself.
        Bound { requests: requests.max(1), depth }
    }

    /// The bound of a pool's members.
    fn member(&mut self, pool: usize) -> Bound {
        let known = self.pools.get(pool).copied().flatten();
        known.unwrap_or_else(|| {
            let members = self.config.pools.get(pool).map(|pool| &pool.members[..]);
            let bound = |member: &Member| match member {
                Member::Route(route) => self.at(*route),
                Member::Server(_) => Bound { requests: 1, depth: 0 },
            };
            let bounds = members.unwrap_or_default().iter().map(bound);
            let most = bounds.fold(Bound { requests: 1, depth: 0 }, |most, one| Bound {
                requests: most.requests.max(one.requests),
                depth: most.depth.max(one.depth),
            });
            if let Some(place) = self.pools.get_mut(pool) {
                *place = Some(most);
            }
            most
        })
    }

    /// Requests behind `route`; `member` are those of a member of its pool.
    fn requests_of(&self, route: &Route, member: u64) -> u64 {
        match route {
            Route::AllAsync(all)
            | Route::AllFastest(all)
            | Route::AllInitial(all)
            | Route::AllMajority(all)
            | Route::AllSync(all)
            | Route::MissFailover { children: all, .. } => self.sum(all),
            // The list and the pieces, whose number depends on the value's length.
            Route::BigValue { target, .. } => times(2, self.requests(*target)),
            Route::Destination { .. } => member,
            Route::DevNull | Route::Error { .. } | Route::Null => 1,
            Route::Failover(failover) => self.failover(failover),
            Route::Blackhole { .. }
            | Route::Hash { .. }
            | Route::HashStopAllowList { .. }
            | Route::HostId { .. }
            | Route::KeyParse { .. }
            | Route::LatencyInjection(_)
            | Route::Logging { .. }
            | Route::ModifyExptime { .. }
            | Route::ModifyKey(_)
            | Route::OperationSelector { .. }
            | Route::OriginalClientHash { .. }
            | Route::OutstandingLimit { .. }
            | Route::PrefixSelector { .. }
            | Route::Random(_)
            | Route::RateLimit { .. }
            | Route::RoutingGroup { .. } => self.max(&children(route)),
            Route::KeySplit { destination, replicas, .. } => {
                times(u64::from(*replicas), self.requests(*destination))
            }
            // Of the small one: a get, the removal of a noted miss, a copy, and its cas unique. Of
            // the large one: the value, and a reply of its own.
            Route::L1L2Cache { l1, l2, .. } => self.sum([l1, l1, l1, l1, l1, l2, l2]),
            // A mark without a value is read again and removed.
            Route::L1L2SizeSplit(split) => {
                let (l1, l2) = (&split.l1, &split.l2);
                times(u64::from(split.retries) + 1, self.sum([l1, l1, l1, l2]))
            }
            Route::Latest(latest) => self.tries(latest.failover_count, &latest.children),
            Route::LoadBalancer(balancer) => {
                self.tries(balancer.failover_count.saturating_add(1), &balancer.children)
            }
            Route::Migrate { from, to, .. } => self.sum([from, to]),
            Route::Pool(pool) => self.pool(pool, member),
            Route::Shadow { child, shadows, .. } => {
                self.sum(shadows.iter().map(|shadow| &shadow.target).chain([child]))
            }
            Route::ShardSplit { destination, splits } => {
                let names =
                    splits.splits.iter().map(|(_, split)| split.old_size.max(split.new_size));
                times(u64::from(names.max().unwrap_or(1)), self.requests(*destination))
            }
            Route::SlowWarmUp { target, failover_target, .. } => {
                self.sum([target, failover_target])
            }
            // The new cluster gets the request and a copy.
            Route::Staging { warm, staging } => self.sum([warm, staging, staging]),
            // The cold cluster gets the request and a copy, and the request again if it refuses the
            // copy.
            Route::WarmUp(warm_up) => {
                self.sum([&warm_up.warm, &warm_up.cold, &warm_up.cold, &warm_up.cold])
            }
        }
    }

    /// The requests if this number of children is asked in turn.
    fn tries(&self, count: u32, children: &[RouteId]) -> u64 {
        self.sum(children).min(times(u64::from(count), self.max(children)))
    }

    fn failover(&self, failover: &Failover) -> u64 {
        let count = match failover.policy {
            FailoverPolicy::InOrder => u32::MAX,
            FailoverPolicy::DeterministicOrder { max_tries, .. }
            | FailoverPolicy::LeastFailures { max_tries }
            | FailoverPolicy::Rendezvous { max_tries, .. } => max_tries,
        };
        self.tries(count, &failover.children)
    }

    fn pool(&self, pool: &PoolRoute, member: u64) -> u64 {
        let shadows = self.sum(pool.shadows.iter().map(|shadow| &shadow.target));
        let others = pool.slow_warmup.iter().map(|(target, _)| target);
        let one = member.saturating_add(shadows).saturating_add(self.sum(others));
        let tried = pool.latest.as_ref().map_or(1, |latest| u64::from(latest.failover_count));
        let one = times(tried.min(self.members_of(pool)), one);
        let splits = pool.shard_splits.iter().flat_map(|splits| &splits.splits);
        let names = splits.map(|(_, split)| split.old_size.max(split.new_size)).max();
        times(u64::from(names.unwrap_or(1)), one)
    }

    fn members_of(&self, pool: &PoolRoute) -> u64 {
        self.config.pool(pool.pool).members.len() as u64
    }

    /// Checks prefixes: a key with `*` in its routing prefix goes to all matching routes.
    fn excess_of_prefixes(&self) -> Option<Diagnostic> {
        self.config.listeners.iter().find_map(|listener| {
            let Entry::Prefixes(prefixes) = &listener.entry else { return None };
            let mut routes: Vec<_> = prefixes.iter().map(|prefix| prefix.route).collect();
            routes.sort_unstable();
            routes.dedup();
            let count = self.sum(&routes);
            (count > REQUESTS_MAX).then(|| {
                let text = format!(
                    "one request of a key under /*/*/ may become {count} requests, of \
                     {REQUESTS_MAX} at most"
                );
                Diagnostic::error(listener.at, text)
            })
        })
    }
}

/// `count` times `requests`, but at least 1: a number that is 0 by mistake stops nothing.
fn times(count: u64, requests: u64) -> u64 {
    count.max(1).saturating_mul(requests)
}
