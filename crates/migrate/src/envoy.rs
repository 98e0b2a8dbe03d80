//! An Envoy in front of cache servers: its static listeners and clusters.
//!
//! Source: the reference of Envoy's v3 API for `redis_proxy`, `tcp_proxy` and clusters.

use std::collections::BTreeMap;

use routeconf::yaml_values;
use serde_json::{Map, Value, json};

use crate::routing::{Pool, Routing, Untranslatable, server};

const REDIS: &str = ".redis_proxy.v3.RedisProxy";
const TCP: &str = ".tcp_proxy.v3.TcpProxy";

/// Converts the listener `wanted` in Envoy's YAML or JSON; without a name, the first that leads to
/// cache servers.
///
/// # Errors
///
/// If the text is not a configuration of Envoy, no listener leads to servers, or a cluster has no
/// servers in the file.
pub fn from_envoy(name: &str, text: &str, wanted: Option<&str>) -> Result<Routing, Untranslatable> {
    let whole = yaml_values(name, text).map_err(|rejected| Untranslatable(rejected.render()))?;
    let resources = &whole["static_resources"];
    let mut making =
        Making { resources, pools: BTreeMap::new(), notes: Vec::new(), has_tags: false };
    let listeners: Vec<_> = list(&resources["listeners"]).filter_map(listener).collect();
    let chosen = listeners.iter().find(|(name, _, _)| wanted.is_none_or(|wanted| wanted == *name));
    let Some((name, kind, settings)) = chosen else {
        return Err(Untranslatable(match wanted {
            Some(name) => format!("no listener '{name}' has redis_proxy or tcp_proxy"),
            None => "no listener of static_resources has redis_proxy or tcp_proxy".to_owned(),
        }));
    };
    if let Some((host, port)) = listening(resources, name) {
        making.note(format!(
            "the listener '{name}' is at {host}, port {port}: holdall route \
             --listen-addresses {host} --port {port}"
        ));
    }
    for (other, ..) in listeners.iter().filter(|(other, ..)| other != name) {
        making.note(format!("the listener '{other}' is a file of its own: --listener {other}"));
    }
    let route = if *kind == REDIS { making.redis(settings)? } else { making.tcp(settings)? };
    Routing::made(&making.pools, &route, making.notes)
}

/// Host and port of the listener of a name, if the file contains them.
fn listening<'v>(resources: &'v Value, name: &str) -> Option<(&'v str, u16)> {
    let found = list(&resources["listeners"]).find(|found| text(&found["name"]) == name)?;
    let address = &found["address"]["socket_address"];
    Some((address["address"].as_str()?, port(&address["port_value"])?))
}

/// Name, kind and settings of a listener that leads to servers.
fn listener(listener: &Value) -> Option<(&str, &'static str, &Value)> {
    let filters = list(&listener["filter_chains"]).flat_map(|chain| list(&chain["filters"]));
    let mut settings = filters.map(|filter| &filter["typed_config"]);
    settings.find_map(|settings| {
        let kind = text(&settings["@type"]);
        let kind = [REDIS, TCP].into_iter().find(|known| kind.ends_with(known))?;
        Some((text(&listener["name"]), kind, settings))
    })
}

struct Making<'a> {
    resources: &'a Value,
    pools: BTreeMap<String, Pool>,
    notes: Vec<String>,
    has_tags: bool,
}

impl Making<'_> {
    /// Adds a note, once.
    fn note(&mut self, sentence: impl Into<String>) {
        let sentence = sentence.into();
        if !self.notes.contains(&sentence) {
            self.notes.push(sentence);
        }
    }

    /// Notes the settings of `place` that have no counterpart: all but those in `known`.
    fn others(&mut self, place: &str, settings: &Value, known: &[&str]) {
        for (key, value) in settings.as_object().into_iter().flatten() {
            if !known.contains(&key.as_str()) && !value.is_null() && text(value) != "false" {
                self.note(format!("{place}: {key} has no counterpart and is left out"));
            }
        }
    }

    fn redis(&mut self, settings: &Value) -> Result<Value, Untranslatable> {
        self.note(
            "clients and servers speak memcached's protocol from now on (docs/migrate-redis.md)",
        );
        let logins =
            ["downstream_auth_password", "downstream_auth_passwords", "downstream_auth_username"];
        if logins.iter().any(|key| !settings[*key].is_null()) {
            self.note(
                "downstream_auth_password: logins are those of --auth-file (docs/security.md)",
            );
        }
        let known = ["@type", "stat_prefix", "settings", "prefix_routes"];
        self.others("redis_proxy", settings, &[known.as_slice(), &logins].concat());
        let options = &settings["settings"];
        self.others("settings", options, &["op_timeout", "enable_hashtagging"]);
        self.has_tags = is_true(&options["enable_hashtagging"]);
        let timeout = millis(&options["op_timeout"]);
        let prefixes = &settings["prefix_routes"];
        let known = ["routes", "catch_all_route", "case_insensitive"];
        self.others("prefix_routes", prefixes, &known);
        if is_true(&prefixes["case_insensitive"]) {
            self.note(
                "prefix_routes: case_insensitive has no counterpart: prefixes are compared as \
                 written, so keys with a prefix in another case take another route",
            );
        }
        let otherwise = match &prefixes["catch_all_route"] {
            Value::Null => json!("ErrorRoute|no route has the prefix of this key"),
            route => self.prefix_route(route)?,
        };
        let mut policies = Map::new();
        for route in list(&prefixes["routes"]) {
            let to = self.prefix_route(route)?;
            policies.insert(text(&route["prefix"]).to_owned(), to);
        }
        for pool in self.pools.values_mut() {
            pool.server_timeout_ms = timeout;
        }
        Ok(match policies.is_empty() {
            true => otherwise,
            false => {
                json!({ "type": "PrefixSelectorRoute", "policies": policies, "wildcard":
                    otherwise })
            }
        })
    }

    fn prefix_route(&mut self, route: &Value) -> Result<Value, Untranslatable> {
        let mut to = self.cluster(text(&route["cluster"]))?;
        let prefix = text(&route["prefix"]);
        let place = match prefix {
            "" => "catch_all_route".to_owned(),
            prefix => format!("prefix {prefix}"),
        };
        let known = ["prefix", "cluster", "remove_prefix", "request_mirror_policy"];
        self.others(&place, route, &[known.as_slice(), &["key_formatter"]].concat());
        if !route["key_formatter"].is_null() {
            self.note(format!(
                "{place}: key_formatter has no counterpart: items have the keys of the clients"
            ));
        }
        if is_true(&route["remove_prefix"]) {
            to = json!({ "type": "ModifyKeyRoute", "target": to, "replace_key_prefix": prefix });
        }
        let mirrors: Vec<_> = list(&route["request_mirror_policy"]).collect();
        if mirrors.is_empty() {
            return Ok(to);
        }
        let mut children = vec![to];
        for mirror in mirrors {
            if !mirror["runtime_fraction"].is_null() || !mirror["exclude_read_commands"].is_null() {
                self.note(format!("{place}: a mirror gets all requests, not a part of them"));
            }
            children.push(self.cluster(text(&mirror["cluster"]))?);
        }
        Ok(json!({ "type": "AllInitialRoute", "children": children }))
    }

    /// Each connection went to one server of the cluster, regardless of its keys.
    fn tcp(&mut self, settings: &Value) -> Result<Value, Untranslatable> {
        let name = text(&settings["cluster"]);
        if name.is_empty() {
            return Err(Untranslatable(
                "tcp_proxy names no cluster; weighted_clusters have no counterpart".to_owned(),
            ));
        }
        self.others("tcp_proxy", settings, &["@type", "stat_prefix", "cluster"]);
        let route = self.cluster(name)?;
        if self.pools.get(name).is_some_and(|pool| pool.servers.len() < 2) {
            return Ok(route);
        }
        self.note(format!(
            "cluster {name}: each connection went to one of several servers whatever its keys, \
             and so does each request by RandomRoute; where the servers are to share the keys, \
             write \"PoolRoute|{name}\""
        ));
        Ok(json!({ "type": "RandomRoute", "children": format!("Pool|{name}") }))
    }

    /// The route to a cluster, whose pool is created at first use.
    fn cluster(&mut self, name: &str) -> Result<Value, Untranslatable> {
        if let Some(pool) = self.pools.get(name) {
            return Ok(pool.route(name));
        }
        let resources = self.resources;
        let cluster = list(&resources["clusters"]).find(|cluster| text(&cluster["name"]) == name);
        let cluster =
            cluster.ok_or_else(|| Untranslatable(format!("there is no cluster '{name}'")))?;
        let is_tls = !cluster["transport_socket"].is_null();
        let mut servers = Vec::new();
        for endpoint in self.endpoints(name, cluster) {
            let address = &endpoint["endpoint"]["address"];
            servers.push(match (&address["socket_address"], text(&address["pipe"]["path"])) {
                (place @ Value::Object(_), _) => {
                    let port = port(&place["port_value"]).ok_or_else(|| {
                        Untranslatable(format!("cluster {name}: an endpoint has no port_value"))
                    })?;
                    server(text(&place["address"]), port, is_tls)
                }
                (_, "") => {
                    return Err(Untranslatable(format!(
                        "cluster {name}: an endpoint has no address"
                    )));
                }
                (_, path) => json!(format!("unix:{path}")),
            });
            if !endpoint["load_balancing_weight"].is_null() {
                self.note(format!(
                    "cluster {name}: load_balancing_weight is left out; servers count alike"
                ));
            }
        }
        if servers.is_empty() {
            return Err(Untranslatable(format!(
                "cluster {name} has no endpoints in the file that Envoy sends requests to; \
                 docs/discovery.md has the sources of servers"
            )));
        }
        self.about(name, cluster, servers.len());
        let hash = match self.has_tags {
            true => json!({ "hash_func": "Jump", "filter": "tags", "filter_conf": "{}" }),
            false => json!("Ch3"),
        };
        let connect_timeout_ms = millis(&cluster["connect_timeout"]);
        let pool = Pool { servers, hash, connect_timeout_ms, server_timeout_ms: None };
        let route = pool.route(name);
        self.pools.insert(name.to_owned(), pool);
        Ok(route)
    }

    /// The endpoints that get the requests while all servers work: those of the first priority,
    /// except the ones out of service.
    fn endpoints<'v>(&mut self, name: &str, cluster: &'v Value) -> Vec<&'v Value> {
        let groups = list(&cluster["load_assignment"]["endpoints"]);
        let all = groups.flat_map(|group| {
            let priority: u32 = text(&group["priority"]).parse().unwrap_or(0);
            list(&group["lb_endpoints"]).map(move |endpoint| (priority, endpoint))
        });
        let mut ranked = Vec::new();
        for (priority, endpoint) in all {
            match text(&endpoint["health_status"]) {
                // The numbers are those of Envoy's HealthStatus.
                "UNHEALTHY" | "2" | "DRAINING" | "3" | "TIMEOUT" | "4" => self.note(format!(
                    "cluster {name}: endpoints with health_status UNHEALTHY, DRAINING or TIMEOUT \
                     are left out"
                )),
                status => {
                    ranked.push(((["DEGRADED", "5"].contains(&status), priority), endpoint));
                }
            }
        }
        let first = ranked.iter().map(|(rank, _)| *rank).min();
        if ranked.iter().any(|(rank, _)| Some(*rank) != first) {
            self.note(format!(
                "cluster {name}: endpoints of a later priority or with health_status DEGRADED are \
                 left out, since Envoy uses them only when others fail; FailoverRoute does this \
                 with a pool of them (docs/router.md)"
            ));
        }
        ranked.retain(|(rank, _)| Some(*rank) == first);
        ranked.into_iter().map(|(_, endpoint)| endpoint).collect()
    }

    /// Notes the settings of a cluster that work differently here.
    fn about(&mut self, name: &str, cluster: &Value, servers: usize) {
        let policy = text(&cluster["lb_policy"]);
        if servers > 1 && ["MAGLEV", "RING_HASH"].contains(&policy) {
            self.note(format!(
                "cluster {name}: lb_policy {policy} places keys otherwise, so that the cache \
                 begins cold"
            ));
        }
        if ["STRICT_DNS", "LOGICAL_DNS"].contains(&text(&cluster["type"])) {
            self.note(format!(
                "cluster {name}: names are looked up when a connection is made; dns: follows the \
                 addresses of one name as servers (docs/discovery.md)"
            ));
        }
        for key in ["health_checks", "outlier_detection"] {
            if !cluster[key].is_null() {
                self.note(format!(
                    "cluster {name}: {key} is left out; failed requests take a server out, and \
                     probes bring it back"
                ));
            }
        }
        if !cluster["transport_socket"].is_null() {
            self.note(format!(
                "cluster {name}: start holdall route with --pem-ca-path for its certificates"
            ));
        }
    }
}

/// The entries of a list; none for other values.
fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// True for `true`.
fn is_true(value: &Value) -> bool {
    text(value) == "true"
}

/// A port.
fn port(value: &Value) -> Option<u16> {
    text(value).parse().ok()
}

/// A text; empty for other values.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A duration of protobuf's JSON, as `0.25s`, in milliseconds.
fn millis(value: &Value) -> Option<u64> {
    let seconds = value.as_str()?.strip_suffix('s')?.parse().ok()?;
    let millis = std::time::Duration::try_from_secs_f64(seconds).ok()?.as_millis();
    u64::try_from(millis).ok()
}
