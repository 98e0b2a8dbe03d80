//! The proxy's configuration in the form of the map: prefixes, pools, their servers, migrations.

use std::path::PathBuf;

use plan::Target;
use routeconf::ast::{Config, Entry, Member, Pool, Route};
use routeconf::{Loaded, Params, Rejected, load_file};
use serde_json::{Value, json};

/// The file of a proxy's configuration.
#[derive(Debug)]
pub(crate) struct Source {
    /// The file, which is read for each request.
    pub(crate) file: PathBuf,
    /// The prefix of keys without one.
    pub(crate) route_prefix: Option<String>,
}

impl Source {
    /// Reads the file.
    ///
    /// # Errors
    ///
    /// Returns its fault.
    pub(crate) fn load(&self) -> Result<Loaded, Rejected> {
        let params = self.route_prefix.as_deref().map_or_else(Params::default, Params::new);
        load_file(&self.file, &params)
    }

    /// The servers of its pools, each once.
    ///
    /// # Errors
    ///
    /// Returns the configuration's fault.
    pub(crate) fn servers(&self) -> Result<Vec<Target>, Rejected> {
        let loaded = self.load()?;
        let mut servers: Vec<Target> = Vec::new();
        for pool in &loaded.config.pools {
            for member in &pool.members {
                let Member::Server(server) = member else { continue };
                let address = server.address.to_string();
                if servers.iter().all(|known| known.address != address) {
                    servers.push(Target { address, group: pool.name.clone() });
                }
            }
        }
        Ok(servers)
    }

    /// The current configuration, or the reason why it is unusable.
    pub(crate) fn shown(&self) -> Value {
        match self.load() {
            Ok(loaded) => of_config(&loaded.config),
            Err(rejected) => json!({ "error": rejected.render() }),
        }
    }
}

fn of_config(config: &Config) -> Value {
    let pools: Vec<Value> = config.pools.iter().map(|pool| of_pool(config, pool)).collect();
    let mut prefixes: Vec<Value> = Vec::new();
    for listener in &config.listeners {
        let mut add = |prefix: &str, route| {
            let handle = config.handle(route);
            let name = handle.name.as_deref();
            prefixes.push(json!({
                "listener": listener.name,
                "prefix": prefix,
                "route": handle.route.name(),
                "name": name,
            }));
        };
        match &listener.entry {
            Entry::Plain(route) => add("", *route),
            Entry::Prefixes(all) => all.iter().for_each(|one| add(&one.prefix, one.route)),
        }
    }
    let migrations = config.handles.iter().filter_map(|handle| match handle.route {
        Route::Migrate { from, to, start_time, interval } => Some(json!({
            "from": config.handle(from).route.name(),
            "to": config.handle(to).route.name(),
            "start_seconds": start_time,
            "interval_seconds": interval,
        })),
        _ => None,
    });
    json!({
        "pools": pools,
        "prefixes": prefixes,
        "migrations": migrations.collect::<Vec<_>>(),
    })
}

fn of_pool(config: &Config, pool: &Pool) -> Value {
    let name = |member: &Member| match member {
        Member::Server(server) => server.address.to_string(),
        Member::Route(route) => config.handle(*route).route.name().to_owned(),
    };
    let servers: Vec<String> = pool.members.iter().map(name).collect();
    json!({"name": pool.name, "servers": servers})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_prefixes_and_migrations_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcrouter.json");
        let text = r#"{"pools":{"A":{"servers":["127.0.0.1:7","127.0.0.1:8"]},
            "B":{"servers":["127.0.0.1:9"]}},
            "route":{"type":"MigrateRoute","from":"PoolRoute|A","to":"PoolRoute|B",
            "start_time":1795000000,"interval":3600}}"#;
        std::fs::write(&file, text).unwrap();
        let source = Source { file: file.clone(), route_prefix: None };
        let all = source.shown();
        let pool = all["pools"].as_array().unwrap().iter().find(|pool| pool["name"] == "A");
        assert_eq!(pool.unwrap()["servers"].as_array().unwrap().len(), 2, "{all:#}");
        let servers = source.servers().unwrap();
        assert_eq!(servers.len(), 3);
        assert!(servers.contains(&Target { address: "127.0.0.1:9".into(), group: "B".into() }));
        assert_eq!(all["migrations"][0]["interval_seconds"], 3600, "{all:#}");
        assert!(all["prefixes"].as_array().is_some_and(|all| !all.is_empty()), "{all:#}");
        std::fs::write(&file, "{").unwrap();
        assert!(source.shown()["error"].is_string());
    }
}
