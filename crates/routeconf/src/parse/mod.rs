//! Values to routes: expanded configurations of mcrouter become an
//! [`ast::Config`](crate::ast::Config).
//!
//! One pass finds several errors: an `ErrorRoute` replaces a route that cannot be built, and the
//! whole configuration is refused.
//!
//! [`Builder`] has many methods, in a file for each family of handles: one for each kind of route
//! and of value. All of them add to the same lists of routes, pools and findings.

mod failover;
mod fields;
mod handles;
mod hash;
mod pool_route;
mod pools;
mod select;
mod server;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ast::{Config, Entry, Handle, Listener, Pool, PoolId, PrefixRoute, Route, RouteId};
use crate::json::{Node, Value};
use crate::source::{At, Diagnostic, Fallible, Files, Severity, Sources, fail};
use fields::Fields;

pub use handles::ROUTE_TYPES;
pub(crate) use pools::check_pool_name;
pub(crate) use server::port_of;

/// Maximum number of routes in a configuration.
const HANDLES_MAX: usize = 1_000_000;
/// Maximum nesting of routes.
const NESTED_MAX: u32 = 200;
/// Maximum number of findings; then reading ends.
const FINDINGS_MAX: usize = 100;

/// Builds the tree.
pub(crate) struct Builder<'s> {
    sources: &'s mut dyn Sources,
    files: &'s mut Files,
    findings: Vec<Diagnostic>,
    pools: Vec<Pool>,
    pool_ids: BTreeMap<String, PoolId>,
    pool_nodes: BTreeMap<String, Node>,
    pools_open: Vec<String>,
    handles: Vec<Handle>,
    named: BTreeMap<String, Node>,
    seen: BTreeMap<String, Vec<RouteId>>,
    open: Vec<String>,
    nested: u32,
}

impl<'s> Builder<'s> {
    pub(crate) fn new(sources: &'s mut dyn Sources, files: &'s mut Files) -> Self {
        Self {
            sources,
            files,
            findings: Vec::new(),
            pools: Vec::new(),
            pool_ids: BTreeMap::new(),
            pool_nodes: BTreeMap::new(),
            pools_open: Vec::new(),
            handles: Vec::new(),
            named: BTreeMap::new(),
            seen: BTreeMap::new(),
            open: Vec::new(),
            nested: 0,
        }
    }

    /// Reads a whole configuration. The findings contain an error if and only if it cannot be used.
    pub(crate) fn config(mut self, root: &Node, default_route: &str) -> (Config, Vec<Diagnostic>) {
        let entry = match self.root(root, default_route) {
            Ok(prefixes) => Entry::Prefixes(prefixes),
            Err(error) => {
                self.findings.push(*error);
                Entry::Prefixes(Vec::new())
            }
        };
        let listener = Listener { name: String::new(), listen: None, entry, at: root.at };
        let config = Config {
            files: Files::default(),
            pools: self.pools,
            handles: self.handles,
            listeners: vec![listener],
            default_route: default_route.to_owned(),
        };
        (config, self.findings)
    }

    fn root(&mut self, root: &Node, default_route: &str) -> Fallible<Vec<PrefixRoute>> {
        let fields = Fields::new(root, "the configuration")?;
        if let Some(pools) = fields.object("pools")? {
            for (name, node) in pools.members() {
                self.pool_nodes.insert(name.to_string(), node.clone());
            }
            for (name, node) in pools.members() {
                let pool = self.pool(name, node);
                self.keep(pool);
            }
        }
        self.named_handles(&fields)?;
        fields.unused(&["routing_options", "partial_reconfigure"]);
        let routes = fields.get("routes");
        let prefixes = match (fields.get("route"), routes) {
            (Some(_), Some(both)) => {
                return fail(both.at, "a configuration has 'route' or 'routes', not both");
            }
            (None, None) => {
                return fail(root.at, "the configuration has no 'route' and no 'routes'");
            }
            (Some(route), None) => {
                let id = self.route(route)?;
                vec![PrefixRoute { prefix: default_route.to_owned(), route: id, at: route.at }]
            }
            (None, Some(routes)) => self.prefixes(routes)?,
        };
        if !prefixes.iter().any(|entry| entry.prefix == default_route) && !self.has_errors() {
            let message = format!("no route has the default prefix {default_route}");
            let at = routes.map_or(root.at, |routes| routes.at);
            let error = Diagnostic::error(at, message);
            self.findings
                .push(error.hint("add it to the aliases of one, or give another default route"));
        }
        fields.finish(&mut self.findings);
        Ok(prefixes)
    }

    fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Records an error and continues.
    fn keep<T>(&mut self, result: Fallible<T>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(error) => {
                if self.findings.len() < FINDINGS_MAX && !self.findings.contains(&error) {
                    self.findings.push(*error);
                }
                None
            }
        }
    }

    fn warn(&mut self, at: At, message: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(Diagnostic::warning(at, message));
        }
    }

    /// `named_handles`: a list of handles with names, or an object of handles by name.
    fn named_handles(&mut self, fields: &Fields<'_>) -> Fallible<()> {
        let Some(node) = fields.get("named_handles") else { return Ok(()) };
        let mut found: Vec<(String, Node)> = Vec::new();
        match &node.value {
            Value::Array(list) => {
                for handle in list.items() {
                    match handle.get("name").and_then(Node::as_str) {
                        Some(name) => found.push((name.to_owned(), handle.clone())),
                        None => return fail(handle.at, "a named handle needs a 'name'"),
                    }
                }
            }
            Value::Object(map) => {
                for (name, handle) in map.members() {
                    if handle.get("name").is_some_and(|inner| inner.as_str() != Some(name)) {
                        return fail(
                            handle.at,
                            format!("the handle '{name}' has another 'name' inside"),
                        );
                    }
                    found.push((name.to_string(), handle.clone()));
                }
            }
            other => {
                let kind = other.kind();
                return fail(
                    node.at,
                    format!("'named_handles' is a list or an object, not {kind}"),
                );
            }
        }
        for (name, handle) in &found {
            if self.named.insert(name.clone(), handle.clone()).is_some() {
                return fail(handle.at, format!("there are two handles named '{name}'"));
            }
        }
        for (name, handle) in found {
            let built = self.by_name(&name, &handle);
            self.keep(built);
        }
        Ok(())
    }

    /// `routes`: a list of aliases with their route, or an object of routes by prefix.
    fn prefixes(&mut self, node: &Node) -> Fallible<Vec<PrefixRoute>> {
        let mut found: Vec<PrefixRoute> = Vec::new();
        match &node.value {
            Value::Array(list) => {
                for item in list.items() {
                    let read = self.aliased(item, &mut found);
                    self.keep(read);
                }
            }
            Value::Object(map) => {
                for (prefix, route) in map.members() {
                    let read = self.route(route);
                    if let Some(id) = self.keep(read) {
                        let added = add_prefix(prefix, id, route.at, &mut found);
                        self.keep(added);
                    }
                }
            }
            other => {
                let kind = other.kind();
                return fail(node.at, format!("'routes' is a list or an object, not {kind}"));
            }
        }
        Ok(found)
    }

    fn aliased(&mut self, item: &Node, found: &mut Vec<PrefixRoute>) -> Fallible<()> {
        let fields = Fields::new(item, "an entry of 'routes'")?;
        let aliases = fields.list("aliases")?;
        let route = self.route(fields.need("route")?)?;
        let Some(aliases) = aliases else {
            return fail(item.at, "an entry of 'routes' needs 'aliases'");
        };
        for alias in aliases {
            let Some(prefix) = alias.as_str() else {
                return fail(alias.at, format!("an alias is a string, not {}", alias.value.kind()));
            };
            add_prefix(prefix, route, alias.at, found)?;
        }
        fields.finish(&mut self.findings);
        Ok(())
    }

    /// One route.
    fn route(&mut self, node: &Node) -> Fallible<RouteId> {
        let routes = self.routes(node)?;
        match routes[..] {
            [route] => Ok(route),
            _ => fail(node.at, format!("expected one route here, not {}", routes.len())),
        }
    }

    /// One required route.
    fn need_route(&mut self, fields: &Fields<'_>, name: &'static str) -> Fallible<RouteId> {
        self.route(fields.need(name)?)
    }

    /// One optional route.
    fn maybe_route(
        &mut self,
        fields: &Fields<'_>,
        name: &'static str,
    ) -> Fallible<Option<RouteId>> {
        fields.get(name).map(|node| self.route(node)).transpose()
    }

    /// A list of routes, in any form that mcrouter accepts for children.
    fn routes(&mut self, node: &Node) -> Fallible<Vec<RouteId>> {
        self.nested += 1;
        let routes = if self.nested > NESTED_MAX {
            fail(node.at, format!("more than {NESTED_MAX} routes inside of each other"))
        } else {
            self.routes_inside(node)
        };
        self.nested -= 1;
        routes
    }

    fn routes_inside(&mut self, node: &Node) -> Fallible<Vec<RouteId>> {
        match &node.value {
            Value::Array(list) => {
                let mut all = Vec::new();
                for item in list.items() {
                    all.extend(self.routes(item)?);
                }
                Ok(all)
            }
            Value::Object(map) => match map.get("name").and_then(Node::as_str) {
                Some(name) => self.by_name(name, node),
                None => self.typed(node, None),
            },
            Value::String(text) if text.is_empty() => Ok(Vec::new()),
            Value::String(text) => {
                let known = text.strip_prefix('$').filter(|name| self.is_named(name));
                self.by_name(known.unwrap_or(text), node)
            }
            other => fail(
                node.at,
                format!("a route is an object, a list or a string, not {}", other.kind()),
            ),
        }
    }

    fn is_named(&self, name: &str) -> bool {
        self.seen.contains_key(name) || self.named.contains_key(name)
    }

    /// The routes of that name or short form; `node` describes them if the name is new.
    fn by_name(&mut self, name: &str, node: &Node) -> Fallible<Vec<RouteId>> {
        if let Some(seen) = self.seen.get(name) {
            return Ok(seen.clone());
        }
        if self.open.iter().any(|open| open == name) {
            return fail(node.at, format!("the route handle '{name}' is made of itself"));
        }
        self.open.push(name.to_owned());
        let routes = match self.named.get(name).cloned() {
            Some(named) => self.named_routes(name, &named),
            None => self.named_routes(name, node),
        };
        self.open.pop();
        let routes = routes?;
        self.seen.insert(name.to_owned(), routes.clone());
        Ok(routes)
    }

    fn named_routes(&mut self, name: &str, node: &Node) -> Fallible<Vec<RouteId>> {
        match &node.value {
            Value::Object(_) => self.typed(node, Some(name)),
            Value::String(text) if &**text == name => match text.split_once('|') {
                Some((kind, argument)) => {
                    let argument = Node::string(argument, node.at);
                    self.create(kind, &argument, node.at, None)
                }
                None => self.create(text, &Node { value: Value::Null, at: node.at }, node.at, None),
            },
            _ => self.routes(node),
        }
    }

    /// A route in its long form.
    fn typed(&mut self, node: &Node, name: Option<&str>) -> Fallible<Vec<RouteId>> {
        let Some(kind) = node.get("type") else {
            return fail(node.at, "a route needs a 'type'");
        };
        let Some(text) = kind.as_str() else {
            return fail(
                kind.at,
                format!("the 'type' of a route is a string, not {}", kind.value.kind()),
            );
        };
        self.create(text, node, kind.at, name)
    }

    /// Adds a route and returns its id.
    fn add(&mut self, route: Route, name: Option<&str>, at: At) -> Fallible<RouteId> {
        match u32::try_from(self.handles.len()) {
            Ok(id) if self.handles.len() < HANDLES_MAX => {
                self.handles.push(Handle { route, name: name.map(str::to_owned), at });
                Ok(RouteId(id))
            }
            _ => fail(at, format!("more than {HANDLES_MAX} routes")),
        }
    }

    /// The error for an unknown type.
    fn unknown(&self, kind: &str, at: At) -> Diagnostic {
        if let Some((_, reason)) = handles::REFUSED.iter().find(|(name, _)| *name == kind) {
            return Diagnostic::error(at, format!("{kind} is not offered: {reason}"));
        }
        let error = Diagnostic::error(at, format!("there is no route handle '{kind}'"));
        let names = self.named.keys().map(String::as_str);
        let error = if self.pool_ids.contains_key(kind) {
            error.hint(format!("for the pool of that name write 'PoolRoute|{kind}'"))
        } else {
            error
        };
        error.meant(kind, ROUTE_TYPES.iter().copied().chain(names))
    }
}

/// `/region/cluster/` with both slashes, once.
fn add_prefix(prefix: &str, route: RouteId, at: At, found: &mut Vec<PrefixRoute>) -> Fallible<()> {
    let inner = prefix.strip_prefix('/').unwrap_or_default().trim_end_matches('/');
    let parts = inner.split_once('/');
    let Some((region, cluster)) = parts.filter(|(region, cluster)| {
        !region.is_empty() && !cluster.is_empty() && !cluster.contains('/')
    }) else {
        return fail(at, format!("the prefix '{prefix}' is not of the form /region/cluster/"));
    };
    if inner.contains('*') {
        return fail(at, format!("the prefix '{prefix}' of a route has a star; only keys may"));
    }
    let prefix = format!("/{region}/{cluster}/");
    if found.iter().any(|known| known.prefix == prefix) {
        return fail(at, format!("there are two routes for {prefix}"));
    }
    found.push(PrefixRoute { prefix, route, at });
    Ok(())
}

/// The name of a member, for lists that keep it.
fn owned(name: &Arc<str>) -> String {
    name.to_string()
}
