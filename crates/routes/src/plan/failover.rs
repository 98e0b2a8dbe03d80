//! Failover routes, whose order also depends on settings of their pools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::OnceLock;

use routeconf::ast::{self, Config, FailoverPolicy, Member, RouteId};

use super::Builder;
use crate::route::{
    Change, Deterministic, FailoverErrors, FailoverLimit, FailoverRoute, Latest, LeasePairs,
    ModifyExptimeRoute, NullRoute, Order, RouteRef,
};
use upstream::Failure;
use upstream::SendCell;

/// The pairings that the configuration names.
pub(super) fn pairs(config: &Config) -> BTreeMap<String, Arc<LeasePairs>> {
    let named = config.handles.iter().filter_map(|handle| match &handle.route {
        ast::Route::Failover(failover) => failover.lease_pairing.clone(),
        ast::Route::Latest(latest) => latest.failover.lease_pairing.clone(),
        _ => None,
    });
    named.map(|name| (name, Arc::default())).collect()
}

impl Builder<'_> {
    pub(super) fn failover(&self, failover: &ast::Failover) -> RouteRef {
        let mut children = self.all(&failover.children);
        if children.is_empty() {
            return Arc::new(NullRoute);
        }
        if let (Some(exptime), Some(others)) = (failover.exptime, children.get_mut(1..)) {
            for other in others {
                let (target, change) = (Arc::clone(other), Change::Min(i64::from(exptime)));
                *other = Arc::new(ModifyExptimeRoute { target, change });
            }
        }
        let order = match &failover.policy {
            FailoverPolicy::InOrder => Order::InOrder,
            FailoverPolicy::LeastFailures { max_tries } => Order::LeastFailures {
                tries_max: *max_tries as usize,
                failures: children.iter().map(|_| SendCell::default()).collect(),
            },
            FailoverPolicy::Rendezvous { max_tries, tags } => {
                Order::Rendezvous { tries_max: *max_tries as usize, tags: tags.clone() }
            }
            FailoverPolicy::DeterministicOrder {
                max_tries,
                max_error_tries,
                exclude_errors,
                failure_domains,
                ignore_normal_reply_index,
                hash,
            } => match hash.placement(children.len(), &[]) {
                Ok(placement) => Order::Deterministic(Deterministic {
                    tries_max: *max_tries as usize,
                    failures_max: *max_error_tries as usize,
                    excluded: exclude_errors.clone(),
                    skips_chosen: !ignore_normal_reply_index,
                    placement,
                    domains: if *failure_domains {
                        failover.children.iter().map(|id| self.domain(*id)).collect()
                    } else {
                        Vec::new()
                    },
                }),
                Err(_) => Order::InOrder,
            },
        };
        self.failing_over(failover, children, order)
    }

    /// `LatestRoute`.
    pub(super) fn latest(&self, latest: &ast::Latest) -> RouteRef {
        self.latest_among(self.all(&latest.children), latest)
    }

    /// The choice of `LatestRoute` among `children`.
    pub(super) fn latest_among(&self, children: Vec<RouteRef>, latest: &ast::Latest) -> RouteRef {
        if children.is_empty() {
            return Arc::new(NullRoute);
        }
        let mut weights = latest.weights.clone().unwrap_or_else(|| vec![1.0; children.len()]);
        weights.resize(children.len(), 0.5);
        let order = Order::Latest(Latest {
            count: latest.failover_count as usize,
            weights,
            salt: latest.salt.clone(),
            by_worker: latest.thread_local_failover,
            chosen: OnceLock::new(),
        });
        self.failing_over(&latest.failover, children, order)
    }

    fn failing_over(
        &self,
        failover: &ast::Failover,
        children: Vec<RouteRef>,
        order: Order,
    ) -> RouteRef {
        let pairs = failover.lease_pairing.as_ref().and_then(|name| self.plan.pairs.get(name));
        Arc::new(FailoverRoute {
            children,
            order,
            errors: errors(&failover.errors),
            limit: failover.limit.map(|limit| FailoverLimit::new(limit.rate, limit.burst)),
            tag: failover.tag.as_deref().map(|name| {
                let name = if name.is_empty() { "1" } else { name };
                format!(":failover={name}").into_bytes()
            }),
            pairs: pairs.cloned(),
        })
    }

    /// The failure domain of this child's server.
    fn domain(&self, id: RouteId) -> Option<String> {
        let ast::Route::Destination { pool, index } = &self.plan.config.handle(id).route else {
            return None;
        };
        match self.plan.config.pool(*pool).members.get(*index as usize)? {
            Member::Server(server) => server.failure_domain.clone(),
            Member::Route(_) => None,
        }
    }
}

fn errors(errors: &ast::FailoverErrors) -> FailoverErrors {
    let list = |errors: &Option<Vec<Failure>>| {
        errors.clone().unwrap_or_else(|| ast::DEFAULT_FAILOVER_ERRORS.to_vec())
    };
    FailoverErrors {
        gets: list(&errors.gets),
        updates: list(&errors.updates),
        deletes: list(&errors.deletes),
    }
}
