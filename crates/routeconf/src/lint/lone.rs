//! Servers that are alone in their pools, whose marks of pending deletes must be kept elsewhere.
//! `peers` in the crate `routes` chooses the place.

use std::collections::{BTreeSet, HashSet};

use super::servers_of;
use crate::ast::{Config, Pool, Route, ServerAddress};
use crate::source::Diagnostic;

/// Warns about the only server of a configuration, because no other server can keep its mark.
#[must_use]
pub fn only_server(config: &Config) -> Option<Diagnostic> {
    let mut servers = config.pools.iter().flat_map(servers_of);
    let first = servers.next()?;
    if servers.any(|server| server.address != first.address) || !keeps_deletes(config) {
        return None;
    }
    let message = format!(
        "while one proxy keeps deletes for {}, others return its old values: no other server can keep its mark",
        first.address
    );
    let hint = "with several proxies add a second server, be it in a pool that no route uses";
    Some(Diagnostic::note(first.at, message).hint(hint))
}

fn keeps_deletes(config: &Config) -> bool {
    let mut routes = config.handles.iter().map(|handle| &handle.route);
    routes.any(|route| matches!(route, Route::Pool(pool) if pool.asynclog.is_some()))
}

/// The servers of the `used` pools that are alone in each of their pools.
pub(super) fn lone_servers<'c>(
    config: &'c Config,
    used: &BTreeSet<usize>,
) -> HashSet<&'c ServerAddress> {
    let addresses = |pool: &'c Pool| servers_of(pool).map(|server| &server.address);
    let has_several = |pool: &&'c Pool| {
        let first = addresses(pool).next();
        addresses(pool).any(|address| Some(address) != first)
    };
    let with_others = config.pools.iter().filter(has_several);
    let with_others: HashSet<_> = with_others.flat_map(addresses).collect();
    let used = config.pools.iter().enumerate().filter(|(index, _)| used.contains(index));
    let all = used.flat_map(|(_, pool)| addresses(pool));
    all.filter(|address| !with_others.contains(address)).collect()
}

/// The message about a pool that no request reaches.
pub(super) fn unused(pool: &Pool, lone: &HashSet<&ServerAddress>) -> Diagnostic {
    let message = format!("no request reaches the pool '{}'", pool.name);
    let keeps_mark_of = |one: &ServerAddress| servers_of(pool).any(|other| other.address != *one);
    if lone.iter().any(|one| keeps_mark_of(one)) {
        let use_of_it = "its servers keep the marks of those that are alone in their pools";
        Diagnostic::note(pool.at, format!("{message}: {use_of_it}"))
    } else {
        Diagnostic::warning(pool.at, message)
    }
}
