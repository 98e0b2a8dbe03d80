//! The route handles by name.

use super::Builder;
use super::fields::Fields;
use super::values::result_name;
use crate::ast::{
    ExptimeAction, Failure, KeyChange, LatencyInjection, LoadBalancer, LoadBalancerAlgorithm,
    ModifyKey, Route, RouteId, SizeSplit, WarmUp,
};
use crate::json::{Node, Value};
use crate::source::{At, Fallible, fail};

/// All valid values of `type`.
pub const ROUTE_TYPES: &[&str] = &[
    "AllAsyncRoute",
    "AllFastestRoute",
    "AllInitialRoute",
    "AllMajorityRoute",
    "AllSyncRoute",
    "BigValueRoute",
    "BlackholeRoute",
    "DevNullRoute",
    "ErrorRoute",
    "FailoverRoute",
    "FailoverWithExptimeRoute",
    "HashRoute",
    "HashStopAllowListRoute",
    "HostIdRoute",
    "KeyParseRoute",
    "KeySplitRoute",
    "L1L2CacheRoute",
    "L1L2SizeSplitRoute",
    "LatencyInjectionRoute",
    "LatestRoute",
    "LoadBalancerRoute",
    "LoggingRoute",
    "MigrateRoute",
    "MissFailoverRoute",
    "ModifyExptimeRoute",
    "ModifyKeyRoute",
    "NullRoute",
    "OperationSelectorRoute",
    "OriginalClientHashRoute",
    "OutstandingLimitRoute",
    "Pool",
    "PoolRoute",
    "PrefixPolicyRoute",
    "PrefixSelectorRoute",
    "RandomRoute",
    "RateLimitRoute",
    "RoutingGroupRoute",
    "SaltedFailoverRoute",
    "ShadowRoute",
    "ShardSplitRoute",
    "SlowWarmUpRoute",
    "StagingRoute",
    "WarmUpRoute",
];

/// Handles in mcrouter's source that its open build lacks, or lacks for memcached.
pub(super) const REFUSED: &[(&str, &str)] = &[
    ("AxonLogRoute", "it writes Meta's cross-region delete stream, which is not published"),
    (
        "CarbonLookasideRoute",
        "it caches replies of other Carbon services, and this is a router for memcached",
    ),
    ("ClientCompatibilityCheckerRoute", "it is for other Carbon services than memcached"),
    (
        "DistributionLoadTestRoute",
        "it tests Meta's cross-region delete stream, which is not published",
    ),
    ("DistributionRoute", "it writes Meta's cross-region delete stream, which is not published"),
    ("EagerShardSelectionRoute", "it is for other Carbon services than memcached"),
    ("McRefillRoute", "it refills from a service of Meta's, which is not published"),
    ("SRRoute", "it asks Meta's Service Router, which is not published; use a PoolRoute"),
    (
        "SetDistributionTargetRoute",
        "it steers Meta's cross-region delete stream, which is not published",
    ),
    ("ShardSelectionRoute", "it is for other Carbon services than memcached"),
];

/// The content of a handle: an object in the long form, the part behind the bar in the short one,
/// else null.
pub(super) struct HandleContent<'n> {
    pub(super) node: &'n Node,
    pub(super) fields: Option<Fields<'n>>,
    pub(super) at: At,
}

impl<'n> HandleContent<'n> {
    fn long(&self, kind: &str) -> Fallible<&Fields<'n>> {
        match &self.fields {
            Some(fields) => Ok(fields),
            None => fail(
                self.at,
                format!("{kind} has no short form; it is an object with its settings"),
            ),
        }
    }
}

impl Builder<'_> {
    /// The routes of one handle: `Pool` and `ShadowRoute` are several.
    pub(super) fn create(
        &mut self,
        kind: &str,
        node: &Node,
        at: At,
        name: Option<&str>,
    ) -> Fallible<Vec<RouteId>> {
        let long = node.as_object().is_some();
        let fields = if long { Some(Fields::new(node, kind)?) } else { None };
        let given = HandleContent { node, fields, at };
        let routes = match kind {
            "Pool" => {
                let inner =
                    given.fields.as_ref().and_then(|fields| fields.get("pool")).unwrap_or(node);
                let id = self.pool_of(inner)?;
                self.destinations(id, at)?
            }
            "ShadowRoute" => self.shadow_routes(given.long(kind)?, at)?,
            _ => {
                let route = self.one(kind, &given)?;
                vec![self.add(route, name, at)?]
            }
        };
        if let Some(fields) = given.fields.filter(|_| kind != "Pool") {
            fields.finish(&mut self.findings);
        }
        Ok(routes)
    }

    fn one(&mut self, kind: &str, given: &HandleContent<'_>) -> Fallible<Route> {
        let simple = match kind {
            "AllAsyncRoute" => Route::AllAsync(self.children(given)?),
            "AllFastestRoute" => Route::AllFastest(self.children(given)?),
            "AllInitialRoute" => Route::AllInitial(self.children(given)?),
            "AllMajorityRoute" => Route::AllMajority(self.children(given)?),
            "AllSyncRoute" => Route::AllSync(self.children(given)?),
            "DevNullRoute" => Route::DevNull,
            "ErrorRoute" => self.error(given)?,
            "FailoverRoute" => self.failover_route(given)?,
            "HashRoute" => self.hash_route(given)?,
            "HostIdRoute" => {
                let children = self.children(given)?;
                let salt = given.fields.as_ref().map(|fields| fields.text("salt")).transpose()?;
                Route::HostId { children, salt: salt.flatten().unwrap_or_default().to_owned() }
            }
            "LatestRoute" => self.latest(given)?,
            "LoggingRoute" => Route::Logging { target: self.logging(given)? },
            "MissFailoverRoute" => self.miss_failover(given)?,
            "NullRoute" => Route::Null,
            "PoolRoute" => self.pool_route(given)?,
            "RandomRoute" => Route::Random(self.children(given)?),
            _ => {
                if !ROUTE_TYPES.contains(&kind) {
                    return Err(Box::new(self.unknown(kind, given.at)));
                }
                return self.long(kind, given.long(kind)?);
            }
        };
        Ok(simple)
    }

    /// The handles that have only a long form.
    fn long(&mut self, kind: &str, fields: &Fields<'_>) -> Fallible<Route> {
        match kind {
            "BigValueRoute" => self.big_value(fields),
            "BlackholeRoute" => self.blackhole(fields),
            "FailoverWithExptimeRoute" => self.failover_with_exptime(fields),
            "HashStopAllowListRoute" => Ok(Route::HashStopAllowList {
                target: self.need_route(fields, "target")?,
                prefixes: fields.texts("prefixes")?.unwrap_or_default(),
            }),
            "KeyParseRoute" => self.key_parse(fields),
            "KeySplitRoute" => self.key_split(fields),
            "L1L2CacheRoute" => self.l1_l2_cache(fields),
            "L1L2SizeSplitRoute" => self.size_split(fields),
            "LatencyInjectionRoute" => self.latency_injection(fields),
            "LoadBalancerRoute" => self.load_balancer(fields),
            "MigrateRoute" => {
                fields.need("start_time")?;
                Ok(Route::Migrate {
                    from: self.need_route(fields, "from")?,
                    to: self.need_route(fields, "to")?,
                    start_time: fields.natural("start_time")?.unwrap_or(0),
                    interval: fields.natural("interval")?.unwrap_or(3600),
                })
            }
            "ModifyExptimeRoute" => self.modify_exptime(fields),
            "ModifyKeyRoute" => self.modify_key(fields),
            "OperationSelectorRoute" | "PrefixPolicyRoute" => self.operation_selector(fields),
            "OriginalClientHashRoute" => Ok(Route::OriginalClientHash {
                children: self.routes(fields.need("children")?)?,
                offset: fields.int32("offset", 0, u32::MAX)?.unwrap_or(0),
            }),
            "OutstandingLimitRoute" => {
                fields.need("max_outstanding")?;
                Ok(Route::OutstandingLimit {
                    target: self.need_route(fields, "target")?,
                    max_outstanding: fields.int32("max_outstanding", 1, 1_000_000)?.unwrap_or(1),
                })
            }
            "PrefixSelectorRoute" => self.prefix_selector(fields),
            "RateLimitRoute" => Ok(Route::RateLimit {
                target: self.need_route(fields, "target")?,
                rates: self.rates(fields.need("rates")?)?,
                fallback: self.maybe_route(fields, "fallback")?,
            }),
            "RoutingGroupRoute" => self.routing_group(fields),
            "SaltedFailoverRoute" => self.salted_failover(fields),
            "ShardSplitRoute" => {
                fields.need("shard_splits")?;
                let destination = self.need_route(fields, "destination")?;
                let splits = self.shard_splits(fields)?.unwrap_or_default();
                Ok(Route::ShardSplit { destination, splits: Box::new(splits) })
            }
            "SlowWarmUpRoute" => Ok(Route::SlowWarmUp {
                target: self.need_route(fields, "target")?,
                failover_target: self.need_route(fields, "failoverTarget")?,
                settings: self.slow_warmup_settings(fields.get("settings"))?,
            }),
            "StagingRoute" => Ok(Route::Staging {
                warm: self.need_route(fields, "warm")?,
                staging: self.need_route(fields, "staging")?,
            }),
            _ => Ok(Route::WarmUp(Box::new(WarmUp {
                warm: self.need_route(fields, "warm")?,
                cold: self.need_route(fields, "cold")?,
                exptime: fields.int32("exptime", 0, u32::MAX)?,
                enable_metaget: fields.flag("enable_metaget", false)?,
                hold_off: fields.int32("hold_off", 0, 3600)?.unwrap_or(0),
                leases: fields.flag("leases", false)?,
            }))),
        }
    }

    /// `children` of the long form, or the names in the short form.
    pub(super) fn children(&mut self, given: &HandleContent<'_>) -> Fallible<Vec<RouteId>> {
        match &given.fields {
            Some(fields) => self.routes(fields.need("children")?),
            None if given.node.value == Value::Null => fail(given.at, "the route needs children"),
            None => self.routes(given.node),
        }
    }

    fn hash_route(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let children = self.children(given)?;
        let Some(fields) = &given.fields else {
            return Ok(Route::Hash { children, hash: Box::new(crate::ast::Hash::ch3()) });
        };
        fields.unused(&["client_fanout"]);
        if fields.flag("error_on_empty", false)? && children.is_empty() {
            let message = "HashRoute: no children".to_owned();
            return Ok(Route::Error { result: Failure::LocalError, message });
        }
        match fields.text("hash_func")? {
            Some("Latest") => return self.latest(given),
            Some("LoadBalancer") => return self.load_balancer(fields),
            Some("WeightedCh3" | "WeightedCh3Rv") if fields.flag("bucketize", false)? => {
                let message =
                    "'bucketize' of a HashRoute: only a PoolRoute counts keys into buckets";
                return fail(fields.place("bucketize"), message);
            }
            _ => fields.unused(&["bucketize"]),
        }
        let hash = self.hash(fields, children.len(), None)?;
        Ok(Route::Hash { children, hash: Box::new(hash) })
    }

    fn logging(&mut self, given: &HandleContent<'_>) -> Fallible<Option<RouteId>> {
        match &given.fields {
            Some(fields) => self.maybe_route(fields, "target"),
            None if given.node.value == Value::Null => Ok(None),
            None => self.route(given.node).map(Some),
        }
    }

    fn miss_failover(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let children = self.children(given)?;
        let best = given.fields.as_ref().map(|fields| fields.flag("return_best_on_error", false));
        Ok(Route::MissFailover {
            children,
            return_best_on_error: best.transpose()?.unwrap_or(false),
        })
    }

    fn shadow_routes(&mut self, fields: &Fields<'_>, at: At) -> Fallible<Vec<RouteId>> {
        let children = match fields.get("children") {
            Some(children) => self.routes(children)?,
            None => self.routes(fields.need("target")?)?,
        };
        let shadows = self.shadows(fields)?;
        let shadowed = (0..).zip(children);
        shadowed
            .map(|(index, child)| {
                self.add(Route::Shadow { child, index, shadows: shadows.clone() }, None, at)
            })
            .collect()
    }

    fn big_value(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("split_threshold")?;
        Ok(Route::BigValue {
            target: self.need_route(fields, "target")?,
            split_threshold: fields
                .int("split_threshold", 1, i64::MAX)?
                .map_or(1, i64::unsigned_abs),
            batch_size: fields.int32("batch_size", 0, u32::MAX)?.unwrap_or(10),
            hide_reply_flag: fields.flag("hide_reply_flag", false)?,
        })
    }

    fn key_parse(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("num_routing_parts")?;
        let delimiter = fields.need_text("delimiter")?;
        if delimiter.is_empty() {
            return fail(fields.place("delimiter"), "'delimiter' must not be empty");
        }
        Ok(Route::KeyParse {
            target: self.need_route(fields, "target")?,
            num_routing_parts: fields.int32("num_routing_parts", 1, 250)?.unwrap_or(1),
            delimiter: delimiter.to_owned(),
        })
    }

    fn key_split(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("replicas")?;
        fields.need("all_sync")?;
        Ok(Route::KeySplit {
            destination: self.need_route(fields, "destination")?,
            replicas: fields.int32("replicas", 2, 1000)?.unwrap_or(2),
            all_sync: fields.flag("all_sync", false)?,
            first_hit: fields.flag("first_hit", false)?,
        })
    }

    fn l1_l2_cache(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("upgradingL1Exptime")?;
        Ok(Route::L1L2Cache {
            l1: self.need_route(fields, "l1")?,
            l2: self.need_route(fields, "l2")?,
            upgrading_l1_exptime: fields.int("upgradingL1Exptime", 0, i64::MAX)?.unwrap_or(0),
            ncache_exptime: fields.int("ncacheExptime", 0, i64::MAX)?.unwrap_or(0),
            ncache_update_period: fields.int32("ncacheUpdatePeriod", 0, u32::MAX)?.unwrap_or(0),
        })
    }

    fn size_split(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("threshold")?;
        Ok(Route::L1L2SizeSplit(Box::new(SizeSplit {
            l1: self.need_route(fields, "l1")?,
            l2: self.need_route(fields, "l2")?,
            threshold: fields.natural("threshold")?.unwrap_or(0),
            ttl_threshold: fields.natural("ttl_threshold")?.unwrap_or(0),
            failure_ttl: fields.int("failure_ttl", 1, i64::MAX)?.map_or(60, i64::unsigned_abs),
            both_full_set: fields.flag("both_full_set", false)?,
            retries: fields.int32("retries", 0, 10)?.unwrap_or(1),
        })))
    }

    fn latency_injection(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.unused(&["total_latency_percentile_ms"]);
        // Request fields that memcached's protocols lack.
        fields.unused(&["request_payload_latency", "max_request_latency_us"]);
        Ok(Route::LatencyInjection(Box::new(LatencyInjection {
            child: self.need_route(fields, "child")?,
            before_ms: fields.natural("before_latency_ms")?.unwrap_or(0),
            after_ms: fields.natural("after_latency_ms")?.unwrap_or(0),
            total_ms: fields.natural("total_latency_ms")?.unwrap_or(0),
        })))
    }

    fn load_balancer(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.known(&["hash_func"]);
        fields.unused(&["enable_thrift_server_load"]);
        let algorithm = match fields.text("algorithm")? {
            None | Some("weighted-hashing") => LoadBalancerAlgorithm::WeightedHashing,
            Some("two-random-choices") => LoadBalancerAlgorithm::TwoRandomChoices,
            Some(other) => {
                let message =
                    format!("'{other}' is not 'weighted-hashing' or 'two-random-choices'");
                return fail(fields.place("algorithm"), message);
            }
        };
        Ok(Route::LoadBalancer(Box::new(LoadBalancer {
            children: self.routes(fields.need("children")?)?,
            algorithm,
            load_ttl_ms: fields.natural("load_ttl_ms")?.unwrap_or(100),
            failover_count: fields.int32("failover_count", 1, u32::MAX)?.unwrap_or(1),
            salt: fields.text("salt")?.unwrap_or_default().to_owned(),
        })))
    }

    fn modify_exptime(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        fields.need("exptime")?;
        let action = match fields.text("action")? {
            None | Some("set") => ExptimeAction::Set,
            Some("min") => ExptimeAction::Min,
            Some(other) => {
                return fail(fields.place("action"), format!("'{other}' is not 'set' or 'min'"));
            }
        };
        let exptime = fields.int("exptime", -1, i64::from(u32::MAX))?.unwrap_or(0);
        if action == ExptimeAction::Min && exptime < 0 {
            return fail(fields.place("exptime"), "the smaller of two times cannot be negative");
        }
        Ok(Route::ModifyExptime { target: self.need_route(fields, "target")?, exptime, action })
    }

    fn modify_key(&mut self, fields: &Fields<'_>) -> Fallible<Route> {
        let own = |name| -> Fallible<Option<String>> {
            let text = fields.text(name)?;
            let wrong = |c: char| c.is_whitespace() || c.is_control();
            match text.filter(|text| text.contains(wrong) || text.len() > 250) {
                Some(text) => fail(fields.place(name), format!("'{text}' cannot be part of a key")),
                None => Ok(text.map(str::to_owned)),
            }
        };
        let (modify_inplace, replace_key_prefix) =
            (fields.flag("modify_inplace", false)?, own("replace_key_prefix")?);
        if modify_inplace && replace_key_prefix.is_some() {
            let text = "'modify_inplace' and 'replace_key_prefix' cannot be used together";
            return fail(fields.place("modify_inplace"), text);
        }
        let prefix = own("set_routing_prefix")?;
        if let Some(prefix) = prefix.as_deref().filter(|prefix| !prefix.is_empty())
            && !(prefix.starts_with('/')
                && prefix.ends_with('/')
                && prefix.matches('/').count() == 3)
        {
            let message = format!("'{prefix}' is not of the form /region/cluster/");
            return fail(fields.place("set_routing_prefix"), message);
        }
        let change = KeyChange {
            set_routing_prefix: prefix,
            ensure_key_prefix: own("ensure_key_prefix")?.unwrap_or_default(),
            modify_inplace,
            replace_key_prefix,
            set_key_suffix: own("set_key_suffix")?.unwrap_or_default(),
        };
        let target = self.need_route(fields, "target")?;
        Ok(Route::ModifyKey(Box::new(ModifyKey { target, change })))
    }

    /// `ErrorRoute|text`, or `response` and `result`.
    fn error(&mut self, given: &HandleContent<'_>) -> Fallible<Route> {
        let (mut result, mut message) = (Failure::LocalError, String::new());
        match &given.fields {
            Some(fields) => {
                fields.unused(&["enable_logging"]);
                message = fields.text("response")?.unwrap_or_default().to_owned();
                if let Some(text) = fields.text("result")? {
                    let known = Failure::by_name(&result_name(text));
                    if known.is_none() {
                        let at = fields.place("result");
                        self.warn(at, format!("'{text}' is no failure here: it is local_error"));
                    }
                    result = known.unwrap_or(result);
                }
            }
            None => given.node.as_str().unwrap_or_default().clone_into(&mut message),
        }
        Ok(Route::Error { result, message })
    }
}
