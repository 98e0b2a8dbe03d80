//! Failover routes: children, policy, errors, limits.

use super::Builder;
use super::fields::Fields;
use super::handles::HandleContent;
use super::values::result_name;
use crate::ast::{
    Failover, FailoverErrors, FailoverLimit, FailoverPolicy, Failure, Hash, Latest, Route, RouteId,
};
use crate::count::count;
use crate::json::{Node, Value};
use crate::source::{At, Diagnostic, Fallible, fail};

const POLICIES: [&str; 4] =
    ["DeterministicOrderPolicy", "InOrderPolicy", "LeastFailuresPolicy", "RendezvousPolicy"];

impl Builder<'_> {
    /// `FailoverRoute`.
    pub(super) fn failover_route(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let children = self.children(given)?;
        Ok(Route::Failover(Box::new(self.failover(given.fields.as_ref(), children)?)))
    }

    /// `FailoverWithExptimeRoute`: the gutter.
    pub(super) fn failover_with_exptime(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let mut children = vec![self.need_route(fields, "normal")?];
        if let Some(node) = fields.get("failover") {
            children.extend(self.routes(node)?);
        }
        let exptime = fields.int32("failover_exptime", 0, i32::MAX.unsigned_abs())?.unwrap_or(60);
        let mut failover = self.failover(Some(fields), children)?;
        failover.exptime = Some(exptime);
        Ok(Route::Failover(Box::new(failover)))
    }

    /// `SaltedFailoverRoute`: the pool's choice first, then its servers by the policy.
    pub(super) fn salted_failover(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let pool = self.pool_of(fields.need("pool")?)?;
        let route = self.pool_route_with(pool, Some(fields), fields.at)?;
        let mut children = vec![self.add(route, None, fields.at)?];
        children.extend(self.destinations(pool, fields.at)?);
        Ok(Route::Failover(Box::new(self.failover(Some(fields), children)?)))
    }

    /// `LatestRoute`.
    pub(super) fn latest(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let children = self.children(given)?;
        Ok(Route::Latest(Box::new(self.latest_of(given.fields.as_ref(), children)?)))
    }

    /// The settings of `LatestRoute`, or of a pool's hash of that name.
    pub(super) fn latest_of(
        &mut self,
        fields: Option<&Fields<'_>>,
        children: Vec<RouteId>,
    ) -> Fallible<Latest> {
        let failover = self.failover(fields, Vec::new())?;
        let mut latest = Latest {
            children,
            failover_count: 5,
            weights: None,
            salt: String::new(),
            thread_local_failover: false,
            failover,
        };
        if let Some(fields) = fields {
            latest.failover_count = fields.int32("failover_count", 1, u32::MAX)?.unwrap_or(5);
            latest.weights = fields.numbers("weights")?;
            latest.salt = fields.text("salt")?.unwrap_or_default().to_owned();
            latest.thread_local_failover = fields.flag("thread_local_failover", false)?;
        }
        Ok(latest)
    }

    fn failover(
        &mut self,
        fields: Option<&Fields<'_>>,
        children: Vec<RouteId>,
    ) -> Fallible<Failover> {
        let mut failover = Failover {
            children,
            policy: FailoverPolicy::InOrder,
            errors: FailoverErrors::default(),
            limit: None,
            tag: None,
            lease_pairing: None,
            exptime: None,
        };
        let Some(fields) = fields else { return Ok(failover) };
        if let Some(node) = fields.get("failover_errors") {
            failover.errors = self.failover_errors(node)?;
        }
        if let Some(node) = fields.get("failover_policy") {
            failover.policy = self.policy(node, failover.children.len())?;
        }
        if let Some(node) = fields.get("failover_limit") {
            let limit = Fields::new(node, "'failover_limit'")?;
            limit.need("rate")?;
            failover.limit = Some(FailoverLimit {
                rate: limit.number("rate", 0.0, 1.0)?.unwrap_or_default(),
                burst: limit.number("burst", 1.0, f64::MAX)?.unwrap_or(1000.0),
            });
            limit.finish(&mut self.findings);
        }
        failover.tag = match fields.get("failover_tag").map(|node| (&node.value, node.at)) {
            None | Some((Value::Bool(false), _)) => None,
            Some((Value::Bool(true), _)) => Some(String::new()),
            Some((Value::String(name), _)) => Some(name.to_string()),
            Some((other, at)) => {
                return fail(
                    at,
                    format!("'failover_tag' is true, false or a name, not {}", other.kind()),
                );
            }
        };
        if fields.flag("enable_lease_pairing", false)? {
            let Some(name) = fields.text("name")? else {
                return fail(
                    fields.place("enable_lease_pairing"),
                    "lease pairing needs a 'name' for the route",
                );
            };
            failover.lease_pairing = Some(name.to_owned());
        }
        Ok(failover)
    }

    fn policy(&mut self, node: &Node, children: usize) -> Fallible<FailoverPolicy> {
        let fields = Fields::new(node, "'failover_policy'")?;
        let name = fields.need_text("type")?;
        let most = count(children.max(1));
        let policy = match name {
            "InOrderPolicy" => FailoverPolicy::InOrder,
            "LeastFailuresPolicy" => {
                fields.need("max_tries")?;
                FailoverPolicy::LeastFailures {
                    max_tries: fields.int32("max_tries", 1, most)?.unwrap_or(1),
                }
            }
            "DeterministicOrderPolicy" => {
                fields.need("max_tries")?;
                let hash = match fields.get("hash") {
                    None => Hash::ch3(),
                    Some(node) => {
                        let inner = Fields::new(node, "'hash'")?;
                        // Over all children, as in mcrouter; the first counts as tried.
                        let hash = self.hash(&inner, children, None)?;
                        inner.finish(&mut self.findings);
                        hash
                    }
                };
                FailoverPolicy::DeterministicOrder {
                    max_tries: fields.int32("max_tries", 1, u32::MAX)?.unwrap_or(1),
                    max_error_tries: fields
                        .int32("max_error_tries", 1, u32::MAX)?
                        .unwrap_or(u32::MAX),
                    exclude_errors: fields
                        .get("exclude_errors")
                        .map(|node| self.failures(node))
                        .transpose()?
                        .unwrap_or_default(),
                    failure_domains: fields.flag("enable_failure_domains", false)?,
                    ignore_normal_reply_index: fields.flag("ignore_normal_reply_index", false)?,
                    hash,
                }
            }
            "RendezvousPolicy" => {
                let tags = fields.texts("tags")?.unwrap_or_default();
                let others = children.saturating_sub(1);
                if tags.len() != others {
                    let message = format!(
                        "'tags' has {} entries for the {others} children after the first",
                        tags.len()
                    );
                    return fail(fields.place("tags"), message);
                }
                fields.unused(&["hash"]);
                FailoverPolicy::Rendezvous {
                    max_tries: fields.int32("max_tries", 1, u32::MAX)?.unwrap_or(most),
                    tags,
                }
            }
            other => return Err(Box::new(unknown_policy(other, fields.place("type")))),
        };
        if matches!(policy, FailoverPolicy::InOrder) && fields.get("max_tries").is_some() {
            let message =
                "InOrderPolicy tries all children; 'max_tries' has no effect, as in mcrouter";
            self.warn(fields.place("max_tries"), message);
        }
        if !matches!(policy, FailoverPolicy::DeterministicOrder { .. }) {
            fields.unused(&["exclude_errors"]);
        }
        fields.finish(&mut self.findings);
        Ok(policy)
    }
}

fn unknown_policy(name: &str, at: At) -> Diagnostic {
    let error = Diagnostic::error(at, format!("there is no failover policy '{name}'"));
    error.hint(format!("known are {}", POLICIES.join(", "))).meant(name, POLICIES)
}

/// Failures of mcrouter that never occur here.
const NEVER: [&str; 5] = ["aborted", "bad_key", "bad_value", "ooo", "unknown"];

impl Builder<'_> {
    /// `failover_errors`: a list for all commands, or an object by class.
    fn failover_errors(&mut self, node: &Node) -> Fallible<FailoverErrors> {
        if node.as_array().is_some() {
            let all = self.failures(node)?;
            return Ok(FailoverErrors {
                gets: Some(all.clone()),
                updates: Some(all.clone()),
                deletes: Some(all),
            });
        }
        let fields = Fields::new(node, "'failover_errors'")?;
        let mut class = |name| fields.get(name).map(|node| self.failures(node)).transpose();
        Ok(FailoverErrors {
            gets: class("gets")?,
            updates: class("updates")?,
            deletes: class("deletes")?,
        })
    }

    fn failures(&mut self, node: &Node) -> Fallible<Vec<Failure>> {
        let Some(items) = node.as_array() else {
            return fail(node.at, format!("expected a list of results, not {}", node.value.kind()));
        };
        let mut failures = Vec::new();
        for item in items {
            failures.extend(self.failure(item)?);
        }
        Ok(failures)
    }

    /// The failure that `node` names; `None` with a warning if it never occurs here.
    fn failure(&mut self, node: &Node) -> Fallible<Option<Failure>> {
        let Some(text) = node.as_str() else {
            return fail(node.at, format!("a result is a string, not {}", node.value.kind()));
        };
        let name = result_name(text);
        if let Some(failure) = Failure::by_name(&name) {
            return Ok(Some(failure));
        }
        if NEVER.contains(&&*name) {
            self.warn(node.at, format!("'{text}' has no effect: no request has this result here"));
            return Ok(None);
        }
        let error =
            Diagnostic::error(node.at, format!("there is no result '{text}' that is a failure"));
        let known = Failure::ALL.into_iter().map(Failure::name);
        Err(Box::new(error.meant(&name, known.chain(NEVER))))
    }
}
