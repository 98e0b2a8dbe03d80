//! The configuration of memcached's own proxy, for its library routelib: Lua that calls `pools`,
//! `routes` and `settings`.
//!
//! The file is run, without the parts of Lua that access the system, so that its variables, loops
//! and functions keep their meaning. Route handlers that are Lua functions have no counterpart.
//! Source: routelib's README and `routelib.lua`, `mcplib_pool` of `proxy_lua.c`.

mod pools;
mod routes;
mod run;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::routing::{Routing, Untranslatable};
use routes::{Tree, Zone};

/// The calls of the file.
#[derive(Debug, Deserialize)]
struct Taken {
    pools: BTreeMap<String, Value>,
    routes: BTreeMap<String, Value>,
    settings: BTreeMap<String, Value>,
    zone: Option<String>,
}

/// Converts a file for routelib, the one that `-o proxy_arg` names. `tag` is the listener whose
/// routes are converted, `default` for those without a tag.
///
/// # Errors
///
/// If the file does not run, or its routes cannot be expressed in mcrouter's language.
pub fn from_memcached_proxy(name: &str, lua: &str, tag: &str) -> Result<Routing, Untranslatable> {
    let taken: Taken = run::run(name, lua)?;
    let mut notes = Vec::new();
    let pools = pools::of(&taken.pools, &taken.settings, &mut notes)?;
    let tree = taken.routes.get(tag).ok_or_else(|| {
        let tags: Vec<_> = taken.routes.keys().map(String::as_str).collect();
        Untranslatable(match tags.as_slice() {
            [] => "the file calls no routes{}".to_owned(),
            tags => format!("no routes{{}} has the tag '{tag}'; there are {}", tags.join(", ")),
        })
    })?;
    for other in taken.routes.keys().filter(|other| *other != tag) {
        notes.push(format!(
            "the routes with the tag '{other}' are a file of their own: --listener {other}"
        ));
    }
    let tree: Tree = part("routes", tree)?;
    let route = tree.to_json(&pools, Zone(taken.zone.as_deref()), &mut notes)?;
    Routing::made(&pools, &route, notes)
}

/// A part of the file's calls, in its form.
fn part<'a, T: Deserialize<'a>>(name: &str, value: &'a Value) -> Result<T, Untranslatable> {
    T::deserialize(value).map_err(|error| Untranslatable(format!("{name}: {error}")))
}
