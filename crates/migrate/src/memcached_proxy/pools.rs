//! `pools{}` and `settings{}`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::part;
use crate::routing::{Pool, Untranslatable, server};

/// A pool of `pools{}`.
#[derive(Debug, Deserialize)]
struct Described {
    backends: Vec<Backend>,
    #[serde(default)]
    options: BTreeMap<String, Value>,
    #[serde(default)]
    backend_options: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Backend {
    /// `host:port`, optionally with a label or `_down_`.
    Text(String),
    /// With its own settings.
    Table(BTreeMap<String, Value>),
}

/// All pools by their names in routes; those of a set have the set's name as a prefix.
pub(super) fn of(
    described: &BTreeMap<String, Value>,
    settings: &BTreeMap<String, Value>,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, Pool>, Untranslatable> {
    let common = Common::of(settings, notes);
    let mut pools = BTreeMap::new();
    for (name, described) in described {
        if name.starts_with("set_") {
            let zones: BTreeMap<String, Value> = part(name, described)?;
            for (zone, described) in &zones {
                let name = format!("{name}_{zone}");
                let pool = common.pool(&name, part(&name, described)?, notes)?;
                pools.insert(name, pool);
            }
        } else {
            pools.insert(name.clone(), common.pool(name, part(name, described)?, notes)?);
        }
    }
    Ok(pools)
}

/// `settings{}`: the settings for all pools.
struct Common {
    backends: BTreeMap<String, Value>,
    pools: BTreeMap<String, Value>,
}

impl Common {
    fn of(settings: &BTreeMap<String, Value>, notes: &mut Vec<String>) -> Self {
        let mut common = Self { backends: BTreeMap::new(), pools: BTreeMap::new() };
        for (name, value) in settings {
            match (name.as_str(), value) {
                ("backend_connect_timeout", _) => {
                    common.backends.insert("connecttimeout".to_owned(), value.clone());
                }
                ("backend_read_timeout", _) => {
                    common.backends.insert("readtimeout".to_owned(), value.clone());
                }
                ("backend_use_tls", _) => {
                    common.backends.insert("tls".to_owned(), value.clone());
                }
                ("backend_failure_limit", _) => notes.push(format!(
                    "backend_failure_limit {value}: start holdall route with \
                     --timeouts-until-tko {value}"
                )),
                ("backend_retry_waittime", value) => notes.push(format!(
                    "backend_retry_waittime {value}: start holdall route with \
                     --probe-timeout-initial {}",
                    millis(value).unwrap_or_default()
                )),
                ("pool_options", Value::Object(options)) => {
                    common
                        .pools
                        .extend(options.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
                _ => notes.push(format!("settings{{}}: {name} is left out")),
            }
        }
        common
    }

    fn pool(
        &self,
        name: &str,
        described: Described,
        notes: &mut Vec<String>,
    ) -> Result<Pool, Untranslatable> {
        let mut of_backends = self.backends.clone();
        of_backends.extend(described.backend_options);
        let mut options = self.pools.clone();
        options.extend(described.options);
        let mut pool = Pool {
            servers: Vec::new(),
            hash: hash(name, &options, notes)?,
            connect_timeout_ms: of_backends.get("connecttimeout").and_then(millis),
            server_timeout_ms: of_backends.get("readtimeout").and_then(millis),
        };
        for key in of_backends.keys().filter(|key| !BACKEND_OPTIONS.contains(&key.as_str())) {
            notes.push(format!("pool {name}: the backends' {key} is left out"));
        }
        for backend in described.backends {
            pool.servers.push(one(name, backend, &of_backends, notes)?);
        }
        Ok(pool)
    }
}

/// Converted settings of backends.
const BACKEND_OPTIONS: [&str; 6] =
    ["connecttimeout", "readtimeout", "tls", "host", "port", "label"];

/// The choice of the server: XXH3 and jump hash unless the options say otherwise, applied to the
/// part of the key that the filter leaves.
fn hash(
    name: &str,
    options: &BTreeMap<String, Value>,
    notes: &mut Vec<String>,
) -> Result<Value, Untranslatable> {
    let mut hash = BTreeMap::from([("hash_func", json!("Jump"))]);
    let (mut filter, mut conf) = ("none", None);
    for (key, value) in options {
        match (key.as_str(), value.as_str()) {
            ("seed", Some(_)) => {
                hash.insert("seed", value.clone());
            }
            ("filter", Some("tags")) => filter = "tags",
            ("filter", Some("stop")) => filter = "stop",
            ("filter_conf", text) => conf = text,
            ("dist", Some("jump_hash")) | ("hash", Some("xxhash")) => {}
            ("dist" | "hash", _) => notes.push(format!(
                "pool {name}: its {key} is not known here, so that keys go to other servers than \
                 before"
            )),
            // The thread that communicates with the servers.
            ("iothread" | "beprefix", _) => {}
            _ => notes.push(format!("pool {name}: the option {key} is left out")),
        }
    }
    hash.insert("filter", json!(filter));
    if filter != "none" {
        hash.insert("filter_conf", json!(filter_conf(name, filter, conf)?));
    }
    Ok(json!(hash))
}

/// The proxy reads it only beside a filter, and of tags only the first two bytes.
fn filter_conf<'c>(
    pool: &str,
    filter: &str,
    conf: Option<&'c str>,
) -> Result<&'c str, Untranslatable> {
    let wrong = |what| {
        Untranslatable(format!("pool {pool}: the filter_conf of '{filter}' must have {what}"))
    };
    let conf = conf.filter(|conf| (2..=5).contains(&conf.len()));
    let conf = conf.ok_or_else(|| wrong("2 to 5 characters"))?;
    if filter == "stop" {
        return Ok(conf);
    }
    // With equal tags, the proxy reads past the end of a key that contains them.
    let tags = conf.get(..2).filter(|tags| !matches!(tags.as_bytes(), [a, b] if a == b));
    tags.ok_or_else(|| wrong("two different characters"))
}

fn one(
    pool: &str,
    backend: Backend,
    common: &BTreeMap<String, Value>,
    notes: &mut Vec<String>,
) -> Result<Value, Untranslatable> {
    let mut settings = common.clone();
    match backend {
        Backend::Text(text) => {
            let (address, label) = text.split_once(char::is_whitespace).unwrap_or((&text, ""));
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            settings.insert("host".to_owned(), json!(host));
            settings.insert("port".to_owned(), json!(port));
            settings.insert("down".to_owned(), json!(label.ends_with("_down_")));
        }
        Backend::Table(own) => {
            for key in own
                .keys()
                .filter(|key| !["host", "port", "label", "tls", "down"].contains(&key.as_str()))
            {
                notes.push(format!(
                    "pool {pool}: {key} of one backend is left out; timeouts are those of the pool"
                ));
            }
            settings.extend(own);
        }
    }
    let host = settings.get("host").and_then(Value::as_str).unwrap_or_default();
    let port = settings.get("port").map_or(Some(11211), port);
    let (Some(port), false) = (port, host.is_empty()) else {
        return Err(Untranslatable(format!("pool {pool}: a backend has no host and port")));
    };
    let is = |key: &str| settings.get(key).and_then(Value::as_bool).unwrap_or_default();
    if is("down") {
        // Its keys stay without a server, as there, instead of moving to the others.
        let why = format!("{host}:{port} is down by the configuration");
        return Ok(json!({ "type": "ErrorRoute", "response": why }));
    }
    Ok(server(host, port, is("tls")))
}

/// A number, or its text.
fn port(value: &Value) -> Option<u16> {
    match value {
        Value::String(digits) => digits.parse().ok(),
        number => number
            .as_f64()
            .filter(|port| port.fract() == 0.0)
            .and_then(|_| number.as_u64()?.try_into().ok()),
    }
}

/// Seconds with a fraction, in milliseconds.
fn millis(seconds: &Value) -> Option<u64> {
    let millis = std::time::Duration::try_from_secs_f64(seconds.as_f64()?).ok()?.as_millis();
    u64::try_from(millis).ok()
}
