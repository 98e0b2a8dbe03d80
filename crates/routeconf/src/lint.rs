//! Warnings about configurations that work, but differ from their authors' intentions.

mod lone;

use std::collections::{BTreeMap, BTreeSet};

pub use lone::only_server;
use lone::{lone_servers, unused};

use crate::ast::{
    Command, Config, Entry, Handle, Member, Pool, PoolId, Route, RouteId, Security, Server,
};
use crate::select::{children, policy};
use crate::source::Diagnostic;

/// All warnings about the configuration.
#[must_use]
pub fn lint(config: &Config) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let reached = reached(config, None);
    for (index, handle) in config.handles.iter().enumerate() {
        if reached.contains(&index) {
            route(config, handle, &mut found);
        } else if let Some(name) = &handle.name {
            found.push(Diagnostic::warning(
                handle.at,
                format!("no request reaches the handle '{name}'"),
            ));
        }
    }
    pools(config, &reached, &mut found);
    security(config, &mut found);
    all_on_gets(config, &mut found);
    found.sort_by_key(|finding| finding.at);
    found.dedup();
    found
}

fn servers_of(pool: &Pool) -> impl Iterator<Item = &Server> {
    pool.members.iter().filter_map(|member| match member {
        Member::Server(server) => Some(server),
        Member::Route(_) => None,
    })
}

/// TLS only for the handshake is Meta's extension; a server that does not know it stays in TLS, as
/// with mcrouter.
fn security(config: &Config, found: &mut Vec<Diagnostic>) {
    for server in config.pools.iter().flat_map(servers_of) {
        if server.security == Security::TlsToPlain {
            let address = &server.address;
            let message =
                format!("{address}: what is sent stays encrypted: tls_to_plain is tls here");
            found.push(Diagnostic::warning(server.at, message));
        }
    }
}

/// The routes that requests reach, or those of one command.
fn reached(config: &Config, operation: Option<Command>) -> BTreeSet<usize> {
    let mut work: Vec<RouteId> = Vec::new();
    for listener in &config.listeners {
        match &listener.entry {
            Entry::Plain(route) => work.push(*route),
            Entry::Prefixes(prefixes) => work.extend(prefixes.iter().map(|entry| entry.route)),
        }
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = work.pop() {
        if !seen.insert(id.index()) {
            continue;
        }
        let route = &config.handle(id).route;
        match (route, operation) {
            (Route::OperationSelector { default, policies }, Some(operation)) => {
                work.extend(policy(policies, &operation).or(default.as_ref()));
            }
            (Route::RoutingGroup { default, policies }, Some(operation)) => {
                work.extend(policy(policies, &operation.class()).or(default.as_ref()));
            }
            _ => work.extend(children(route)),
        }
        if let Some(pool) = pool_of(route) {
            work.extend(config.pool(pool).members.iter().filter_map(|member| match member {
                Member::Route(route) => Some(*route),
                Member::Server(_) => None,
            }));
        }
    }
    seen
}

fn pool_of(route: &Route) -> Option<PoolId> {
    match route {
        Route::Pool(route) => Some(route.pool),
        Route::Destination { pool, .. } => Some(*pool),
        _ => None,
    }
}

/// The servers below a route, by their addresses.
fn servers(config: &Config, id: RouteId) -> BTreeSet<String> {
    let (mut found, mut seen, mut work) = (BTreeSet::new(), BTreeSet::new(), vec![id]);
    while let Some(id) = work.pop() {
        if !seen.insert(id) {
            continue;
        }
        let route = &config.handle(id).route;
        work.extend(children(route));
        let address = |member: &Member| match member {
            Member::Server(server) => Some(server.address.to_string()),
            Member::Route(_) => None,
        };
        match route {
            Route::Pool(route) => {
                found.extend(config.pool(route.pool).members.iter().filter_map(address))
            }
            Route::Destination { pool, index } => {
                found.extend(config.pool(*pool).members.get(*index as usize).and_then(address));
            }
            _ => {}
        }
    }
    found
}

/// Finds servers that are behind both of two routes that should differ.
fn same(
    config: &Config,
    handle: &Handle,
    a: RouteId,
    b: RouteId,
    what: &str,
    found: &mut Vec<Diagnostic>,
) {
    let one = servers(config, a);
    if a == b || (!one.is_empty() && one == servers(config, b)) {
        let name = handle.route.name();
        found
            .push(Diagnostic::warning(handle.at, format!("{what} of {name} are the same servers")));
    }
}

fn route(config: &Config, handle: &Handle, found: &mut Vec<Diagnostic>) {
    let mut warn = |message: String| found.push(Diagnostic::warning(handle.at, message));
    let name = handle.route.name();
    match &handle.route {
        Route::Failover(failover) if failover.children.len() < 2 => {
            warn(format!("{name} has nobody to go on to"));
        }
        Route::MissFailover { children, .. } if children.len() < 2 => {
            warn(format!("{name} has nobody to go on to"));
        }
        Route::Failover(failover) => {
            let [normal, others @ ..] = &failover.children[..] else { return };
            let own = servers(config, *normal);
            // A salted failover deliberately uses its own servers; a gutter equal to the pool is a
            // mistake.
            let is_null = |id: &RouteId| matches!(config.handle(*id).route, Route::Null);
            let is_pool = |id: &RouteId| match &config.handle(*id).route {
                Route::Pool(_) => true,
                // A PoolRoute with 'weights_rv'.
                Route::Hash { children, .. } => children.last().is_some_and(is_null),
                _ => false,
            };
            if !own.is_empty() && others.iter().any(|id| is_pool(id) && servers(config, *id) == own)
            {
                warn(format!("{name} goes on to the same servers that failed"));
            }
        }
        Route::WarmUp(warm_up) => {
            if warm_up.leases && warm_up.hold_off > 0 {
                warn(format!("{name} has no use for 'hold_off' beside 'leases'"));
            }
            if !warm_up.leases && warm_up.hold_off == 0 {
                warn(format!(
                    "deleted items come back from 'warm' of {name}: set 'leases' or 'hold_off'"
                ));
            }
            same(config, handle, warm_up.warm, warm_up.cold, "'warm' and 'cold'", found)
        }
        Route::Staging { warm, staging } => {
            same(config, handle, *warm, *staging, "'warm' and 'staging'", found)
        }
        Route::Migrate { from, to, .. } => {
            same(config, handle, *from, *to, "'from' and 'to'", found)
        }
        Route::L1L2Cache { l1, l2, .. } => same(config, handle, *l1, *l2, "'l1' and 'l2'", found),
        Route::PrefixSelector { wildcard: None, .. } => {
            warn(format!(
                "{name} has no 'wildcard': keys without any of its prefixes are answered as misses"
            ));
        }
        Route::ModifyExptime { exptime, .. } if *exptime < 0 => {
            warn(format!("{name} stores everything already expired"));
        }
        Route::Hash { children, .. }
        | Route::HostId { children, .. }
        | Route::OriginalClientHash { children, .. }
        | Route::Random(children)
            if children.is_empty() =>
        {
            warn(format!("{name} has no children: everything is answered as a miss"));
        }
        Route::KeySplit { all_sync: false, replicas, .. } => {
            warn(format!(
                "a set goes to one of the {replicas} names of a key ('all_sync' is false), so the others keep what they have"
            ));
        }
        _ => {}
    }
}

fn pools(config: &Config, reached: &BTreeSet<usize>, found: &mut Vec<Diagnostic>) {
    let routes = reached.iter().filter_map(|index| config.handles.get(*index));
    let used = routes.filter_map(|handle| pool_of(&handle.route)).map(PoolId::index).collect();
    let lone = lone_servers(config, &used);
    for (index, pool) in config.pools.iter().enumerate() {
        let name = &pool.name;
        if !used.contains(&index) {
            found.push(unused(pool, &lone));
        }
        if pool.members.is_empty() {
            let how = if pool.error_on_empty { "an error" } else { "a miss" };
            found.push(Diagnostic::warning(
                pool.at,
                format!("the pool '{name}' has no servers: everything is answered with {how}"),
            ));
        }
        let mut seen = BTreeMap::new();
        for member in &pool.members {
            let Member::Server(server) = member else { continue };
            // With `additional_fanout`, one text is several places.
            let first = seen.insert(server.address.to_string(), server.at);
            if let Some(first) = first.filter(|first| *first != server.at) {
                let message = format!(
                    "the pool '{name}' has the server {} twice, first in line {}",
                    server.address, first.line
                );
                found.push(Diagnostic::warning(server.at, message));
            }
        }
    }
}

/// A route that asks all children answers a get with the worst reply, so one dead server fails
/// every get.
fn all_on_gets(config: &Config, found: &mut Vec<Diagnostic>) {
    for index in reached(config, Some(Command::Get)) {
        let Some(handle) = config.handles.get(index) else { continue };
        let (name, children, effect) = match &handle.route {
            Route::AllSync(children) => {
                ("AllSyncRoute", children, "answers gets with the worst reply of all")
            }
            Route::AllMajority(children) => {
                ("AllMajorityRoute", children, "waits for more than half on gets")
            }
            Route::AllAsync(children) => ("AllAsyncRoute", children, "answers gets with misses"),
            _ => continue,
        };
        if children.len() > 1 {
            let warning = Diagnostic::warning(handle.at, format!("{name} {effect}"));
            found.push(warning.hint("an OperationSelectorRoute can keep gets away from it"));
        }
    }
}
