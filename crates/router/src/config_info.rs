//! Facts about the loaded configuration, for admin commands and statistics files.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;

use md5::{Digest, Md5};
use routeconf::ast::{Config, Member};
use routeconf::{ParamValue, Params, Sources};
use serde_json::{Map, Value};

use crate::dump::Import;

/// mcrouter's name of the configuration among its sources.
const MAIN: &str = "mcrouter_config";

/// The loaded configuration as in mcrouter's admin requests: each field is JSON.
#[derive(Debug, Default)]
pub(crate) struct ConfigInfo {
    /// The digest of the configuration's text.
    pub(crate) md5: String,
    /// The digests of all texts read, by name.
    pub(crate) sources: String,
    /// The servers of each pool.
    pub(crate) pools: String,
    /// The failure domains of the servers of each pool that has some.
    pub(crate) failure_domains: BTreeMap<String, String>,
    /// The parameters for macros.
    pub(crate) params: String,
}

impl ConfigInfo {
    /// Creates the facts about a configuration made of `text` and `imports`.
    pub(crate) fn new(
        text: &str,
        imports: &BTreeMap<String, Import>,
        config: &Config,
        params: &Params,
    ) -> Self {
        let md5 = digest(text);
        let mut sources: Map<String, Value> =
            imports.values().map(|(text, name)| (name.clone(), digest(text).into())).collect();
        sources.insert(MAIN.to_owned(), md5.clone().into());
        let (mut pools, mut failure_domains) = (Map::new(), BTreeMap::new());
        for pool in &config.pools {
            let (mut names, mut domains) = (Vec::new(), Map::new());
            for member in &pool.members {
                let Member::Server(server) = member else { continue };
                names.push(Value::from(format!("host|{}", server.address)));
                if let Some(domain) = &server.failure_domain {
                    domains.insert(server.address.to_string(), domain.clone().into());
                }
            }
            pools.insert(pool.name.clone(), names.into());
            failure_domains.insert(pool.name.clone(), pretty(domains));
        }
        let params = params.values().iter().map(|(name, value)| {
            let value = match value {
                ParamValue::Number(number) => Value::from(*number),
                ParamValue::Text(text) => Value::from(text.as_str()),
            };
            (name.clone(), value)
        });
        let params = pretty(params.collect());
        Self { md5, sources: pretty(sources), pools: pretty(pools), failure_domains, params }
    }
}

/// JSON for display.
pub(crate) fn pretty(map: Map<String, Value>) -> String {
    format!("{:#}", Value::Object(map))
}

fn digest(text: &str) -> String {
    Md5::digest(text).iter().fold(String::new(), |mut hex, byte| {
        // Writing into a string does not fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Records the names that are read.
pub(crate) struct RecordingSources<'a> {
    pub(crate) sources: &'a mut dyn Sources,
    pub(crate) read: BTreeMap<String, Import>,
}

impl Sources for RecordingSources<'_> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        let import = self.sources.read(name)?;
        self.read.insert(name.to_owned(), import.clone());
        Ok(import)
    }
}
