//! A configuration for `holdall route` under construction.

use std::collections::BTreeMap;

use routeconf::{MemorySources, Params, load};
use serde_json::{Map, Value, json};

/// A configuration in mcrouter's language, and notes for the operator.
#[derive(Clone, Debug, PartialEq)]
pub struct Routing {
    /// The JSON text.
    pub text: String,
    /// A sentence for each setting that was not converted, or should be checked.
    pub notes: Vec<String>,
}

/// A configuration that mcrouter's language cannot express, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Untranslatable(pub String);

impl std::fmt::Display for Untranslatable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Untranslatable {}

/// A pool in mcrouter's form, with its hash.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    /// `host:port` or an object, as in the language.
    pub(crate) servers: Vec<Value>,
    /// For pools of more than one server.
    pub(crate) hash: Value,
    pub(crate) connect_timeout_ms: Option<u64>,
    pub(crate) server_timeout_ms: Option<u64>,
}

impl Pool {
    /// The route to this pool. Fewer than two servers need no hash.
    pub(crate) fn route(&self, name: &str) -> Value {
        if self.servers.len() < 2 || self.hash == json!("Ch3") {
            return json!(format!("PoolRoute|{name}"));
        }
        json!({ "type": "PoolRoute", "pool": name, "hash": self.hash })
    }

    fn to_json(&self) -> Value {
        let mut pool = Map::from_iter([("servers".to_owned(), json!(self.servers))]);
        let timeouts = [
            ("connect_timeout", self.connect_timeout_ms),
            ("server_timeout", self.server_timeout_ms),
        ];
        pool.extend(
            timeouts.iter().filter_map(|(name, ms)| Some(((*name).to_owned(), json!((*ms)?)))),
        );
        Value::Object(pool)
    }
}

impl Routing {
    /// Writes the configuration, and reads it like `holdall route`; warnings become notes.
    pub(crate) fn made(
        pools: &BTreeMap<String, Pool>,
        route: &Value,
        mut notes: Vec<String>,
    ) -> Result<Self, Untranslatable> {
        let pools: Map<_, _> =
            pools.iter().map(|(name, pool)| (name.clone(), pool.to_json())).collect();
        let whole = json!({ "pools": pools, "route": route });
        // Values of JSON can always be written.
        let text = serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n";
        match load("routes.json", &text, &Params::default(), &mut MemorySources::default()) {
            Ok(loaded) => {
                let files = &loaded.config.files;
                notes.extend(loaded.warnings.iter().map(|warning| warning.render(files)));
                Ok(Self { text, notes })
            }
            // Places in a text that no file has would mislead.
            Err(rejected) => {
                let flaws = rejected.findings.iter().map(|finding| finding.message.as_str());
                let flaws = flaws.collect::<Vec<_>>().join("; ");
                Err(Untranslatable(format!("the routes made of it cannot be used: {flaws}")))
            }
        }
    }
}

/// `host:port`, with brackets if the host is an IPv6 address.
pub(crate) fn server(host: &str, port: u16, is_tls: bool) -> Value {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    json!(format!("{host}:{port}{}", if is_tls { ":ascii:tls" } else { "" }))
}
