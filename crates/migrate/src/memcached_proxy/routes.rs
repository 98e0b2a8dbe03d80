//! `routes{}`: the tree, by prefixes and commands.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::routing::{Pool, Untranslatable};

/// One call of `routes{}`.
#[derive(Debug, Deserialize)]
pub(super) struct Tree {
    #[serde(default)]
    conf: Conf,
    map: Option<BTreeMap<String, Target>>,
    cmap: Option<BTreeMap<String, Route>>,
    default: Option<Route>,
}

/// The part of a key by which `map` chooses.
#[derive(Debug, Default, Deserialize)]
struct Conf {
    mode: Option<String>,
    start: Option<String>,
    stop: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Target {
    Commands { commands: BTreeMap<String, Route> },
    Route(Route),
}

/// A call of `route_..`.
#[derive(Debug, Deserialize)]
struct Route {
    route: String,
    settings: Box<Settings>,
}

/// The settings of all handlers combined.
#[derive(Debug, Deserialize)]
struct Settings {
    child: Option<Child>,
    child_a: Option<Child>,
    child_b: Option<Child>,
    children: Option<Children>,
    miss: Option<bool>,
    failover_count: Option<usize>,
    #[serde(default)]
    shuffle: bool,
    local_zone: Option<String>,
    ttl: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Child {
    Pool(String),
    Route(Route),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Children {
    /// The name of a set of pools.
    Set(String),
    List(Vec<Child>),
    ByZone(BTreeMap<String, Child>),
}

/// The name passed to `local_zone`.
#[derive(Clone, Copy)]
pub(super) struct Zone<'a>(pub(super) Option<&'a str>);

impl Tree {
    /// Converts it to mcrouter's routes.
    pub(super) fn to_json(
        &self,
        pools: &BTreeMap<String, Pool>,
        zone: Zone<'_>,
        notes: &mut Vec<String>,
    ) -> Result<Value, Untranslatable> {
        let mut made = Making { pools, zone, notes };
        let default = self.default.as_ref().map(|route| made.route(route)).transpose()?;
        if let Some(commands) = &self.cmap {
            return made.commands(commands, default.as_ref());
        }
        let Some(map) = &self.map else {
            return default
                .ok_or_else(|| Untranslatable("routes{} has no map and no default".to_owned()));
        };
        let mut policies = Map::new();
        for (name, target) in map {
            let route = match target {
                Target::Commands { commands } => made.commands(commands, default.as_ref())?,
                Target::Route(route) => made.route(route)?,
            };
            policies.insert(self.conf.prefix(name)?, route);
        }
        let wildcard =
            default.unwrap_or_else(|| json!("ErrorRoute|no route has the prefix of this key"));
        Ok(json!({ "type": "PrefixSelectorRoute", "policies": policies, "wildcard": wildcard }))
    }
}

impl Conf {
    /// The key prefix that an entry of `map` represents.
    fn prefix(&self, name: &str) -> Result<String, Untranslatable> {
        let stop = self.stop.as_deref().unwrap_or("/");
        match self.mode.as_deref() {
            None | Some("prefix") => Ok(format!("{name}{stop}")),
            Some("anchor") => {
                Ok(format!("{}{name}{stop}", self.start.as_deref().unwrap_or_default()))
            }
            Some(mode) => Err(Untranslatable(format!("conf.mode '{mode}' is not known"))),
        }
    }
}

struct Making<'a> {
    pools: &'a BTreeMap<String, Pool>,
    zone: Zone<'a>,
    notes: &'a mut Vec<String>,
}

impl Making<'_> {
    fn commands(
        &mut self,
        commands: &BTreeMap<String, Route>,
        default: Option<&Value>,
    ) -> Result<Value, Untranslatable> {
        let mut otherwise = default.cloned();
        let mut policies = Map::new();
        for (command, route) in commands {
            let route = self.route(route)?;
            let names: &[&str] = match command.as_str() {
                "all" => {
                    otherwise = Some(route);
                    continue;
                }
                // Here a meta command takes the route of the classic one.
                "mg" => &["get"],
                "ms" => &["set"],
                "md" => &["delete"],
                "ma" => &["incr", "decr"],
                "mn" | "me" => {
                    self.notes.push(format!("{command} of a command map is left out"));
                    continue;
                }
                command => &[command],
            };
            for name in names {
                let before = policies.insert((*name).to_owned(), route.clone());
                if before.is_some_and(|before| before != route) {
                    self.notes.push(format!(
                        "{name} and its meta command have different routes; here both go one way"
                    ));
                }
            }
        }
        let otherwise = otherwise.unwrap_or_else(|| json!("ErrorRoute|no route has this command"));
        Ok(json!({
            "type": "OperationSelectorRoute", "operation_policies": policies, "default_policy":
            otherwise,
        }))
    }

    fn route(&mut self, route: &Route) -> Result<Value, Untranslatable> {
        let Route { route: name, settings } = route;
        let all = |kind: &str, children: Vec<Value>| json!({ "type": kind, "children": children });
        Ok(match name.as_str() {
            "direct" => self.named(name, "child", settings.child.as_ref())?,
            "allfastest" => all("AllFastestRoute", self.children(name, settings)?),
            "allsync" => all("AllSyncRoute", self.children(name, settings)?),
            "split" => {
                let first = self.named(name, "child_a", settings.child_a.as_ref())?;
                let second = self.named(name, "child_b", settings.child_b.as_ref())?;
                all("AllInitialRoute", vec![first, second])
            }
            "ttl" => {
                let target = self.named(name, "child", settings.child.as_ref())?;
                let exptime = settings.ttl.ok_or_else(|| missing(name, "ttl"))?;
                json!({ "type": "ModifyExptimeRoute", "target": target, "exptime": exptime })
            }
            "failover" => {
                let mut children = self.children(name, settings)?;
                children.truncate(settings.failover_count.unwrap_or(usize::MAX).max(1));
                if settings.shuffle {
                    self.notes.push(
                        "route_failover: shuffle is left out; children are tried in their order"
                            .to_owned(),
                    );
                }
                all(failover(settings.miss == Some(true)), children)
            }
            "zfailover" => self.zone_failover(settings)?,
            other => return Err(Untranslatable(format!("route_{other} is not known here"))),
        })
    }

    /// The zone's own pool first, then the fastest of the others.
    fn zone_failover(&mut self, settings: &Settings) -> Result<Value, Untranslatable> {
        let name = "zfailover";
        let zone = settings.local_zone.as_deref().or(self.zone.0);
        let zone = zone.ok_or_else(|| missing(name, "local_zone"))?.to_owned();
        let zones = match settings.children.as_ref() {
            Some(Children::Set(set)) => self.set(set)?,
            Some(Children::ByZone(zones)) => {
                let mut routes = BTreeMap::new();
                for (zone, child) in zones {
                    routes.insert(zone.clone(), self.child(child)?);
                }
                routes
            }
            Some(Children::List(_)) | None => return Err(missing(name, "children by zone")),
        };
        let Some(near) = zones.get(&zone) else {
            return Err(Untranslatable(format!(
                "route_zfailover has no child for the zone '{zone}'"
            )));
        };
        let far: Vec<_> =
            zones.iter().filter(|(other, _)| **other != zone).map(|(_, far)| far).collect();
        let far = json!({ "type": "AllFastestRoute", "children": far });
        let kind = failover(settings.miss != Some(false));
        Ok(json!({ "type": kind, "children": [near, far] }))
    }

    fn children(&mut self, name: &str, settings: &Settings) -> Result<Vec<Value>, Untranslatable> {
        match settings.children.as_ref().ok_or_else(|| missing(name, "children"))? {
            Children::Set(set) => Ok(self.set(set)?.into_values().collect()),
            Children::List(children) => children.iter().map(|child| self.child(child)).collect(),
            Children::ByZone(zones) => zones.values().map(|child| self.child(child)).collect(),
        }
    }

    fn named(
        &mut self,
        route: &str,
        name: &str,
        child: Option<&Child>,
    ) -> Result<Value, Untranslatable> {
        self.child(child.ok_or_else(|| missing(route, name))?)
    }

    fn child(&mut self, child: &Child) -> Result<Value, Untranslatable> {
        match child {
            Child::Route(route) => self.route(route),
            Child::Pool(name) => match self.pools.get(name) {
                Some(pool) => Ok(pool.route(name)),
                None => Err(Untranslatable(format!(
                    "a route names the pool '{name}', which is not there"
                ))),
            },
        }
    }

    /// The pools of a set by zone.
    fn set(&self, set: &str) -> Result<BTreeMap<String, Value>, Untranslatable> {
        let start = format!("{set}_");
        let of_set = |(name, pool): (&String, &Pool)| {
            Some((name.strip_prefix(&start)?.to_owned(), pool.route(name)))
        };
        let zones: BTreeMap<_, _> = self.pools.iter().filter_map(of_set).collect();
        match zones.is_empty() {
            true => Err(Untranslatable(format!(
                "a route names the set of pools '{set}', which is not there"
            ))),
            false => Ok(zones),
        }
    }
}

fn failover(on_misses: bool) -> &'static str {
    if on_misses { "MissFailoverRoute" } else { "FailoverRoute" }
}

fn missing(route: &str, setting: &str) -> Untranslatable {
    Untranslatable(format!("route_{route} has no {setting}"))
}
