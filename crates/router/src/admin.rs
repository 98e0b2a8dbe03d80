//! `get __mcrouter__.what`: requests to this program, with mcrouter's names.

use std::sync::atomic::Ordering;

use routes::Core;
use routes::route::RouteRef;
use upstream::{Command, Request};

use crate::shared::Shared;

/// The reason why an admin request has no answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum Refused<'a> {
    #[error("bad admin request")]
    Bad,
    #[error("bad admin request: no closing bracket")]
    Bracket,
    #[error("{0} is no number")]
    Number(&'a str),
    #[error("unknown op {0}")]
    Op(&'a str),
    #[error("there is no option {0}")]
    Option(&'a str),
    #[error("there is no pool {0}")]
    Pool(&'a str),
    #[error("unknown admin request {0}")]
    Unknown(&'a str),
}

/// The answer.
///
/// # Errors
///
/// The reason why there is none.
pub(crate) fn answer<'a>(
    shared: &Shared,
    core: &Core,
    what: &'a [u8],
) -> Result<String, Refused<'a>> {
    let what = std::str::from_utf8(what).map_err(|_| Refused::Bad)?;
    let (name, arguments) = match what.split_once('(') {
        Some((name, rest)) => {
            let inner = rest.strip_suffix(')').ok_or(Refused::Bracket)?;
            // A key may contain commas.
            let most = if name.starts_with("route") { 2 } else { usize::MAX };
            (name, inner.splitn(most, ',').collect())
        }
        None => (what, Vec::new()),
    };
    match (name, &arguments[..]) {
        ("version", []) => Ok(shared.version.to_owned()),
        ("config_age", []) => Ok(shared.current().since.elapsed().as_secs().to_string()),
        ("config_file", []) => Ok(shared.options.config_name()),
        ("preprocessed_config", []) => Ok(shared.current().text.to_string()),
        ("hostid", []) => Ok(core.context().host_id().to_string()),
        ("config_md5_digest", []) => Ok(shared.current().info.md5.clone()),
        ("config_sources_info", []) => Ok(shared.current().info.sources.clone()),
        ("failure_domains", [pool]) => {
            let current = shared.current();
            let domains = current.info.failure_domains.get(*pool);
            domains.cloned().ok_or(Refused::Pool(pool))
        }
        ("global_params", []) => Ok(shared.current().info.params.clone()),
        ("options", []) => Ok(shared.options.list()),
        ("options", [name]) => {
            let value = shared.options.values().into_iter().find(|(known, _)| known == name);
            value.map(|(_, value)| value).ok_or(Refused::Option(name))
        }
        ("pools", []) => Ok(shared.current().info.pools.clone()),
        // Relaxed: no other data depends on the level.
        ("verbosity", []) => Ok(shared.verbosity.load(Ordering::Relaxed).to_string()),
        ("verbosity", [level]) => {
            let level = level.parse().map_err(|_| Refused::Number(level))?;
            let before = shared.verbosity.swap(level, Ordering::Relaxed);
            Ok(format!("{before} -> {level}"))
        }
        ("get_bucket", [key]) => {
            let mut lines = Vec::new();
            let request = Request::new(Command::Get, key.as_bytes());
            buckets(&mut Walk { core, steps: 0 }, &core.tree().root, request, &mut lines);
            Ok(lines.join("\r\n"))
        }
        ("route_handles", [op, key]) => {
            let request = Request::new(op_of(op)?, key.as_bytes());
            let mut lines = String::new();
            describe(&mut Walk { core, steps: 0 }, &core.tree().root, request, 0, &mut lines);
            Ok(lines)
        }
        ("route", [op, key]) => {
            let request = Request::new(op_of(op)?, key.as_bytes());
            let mut servers = Vec::new();
            leaves(&mut Walk { core, steps: 0 }, &core.tree().root, request, &mut servers);
            Ok(servers.join("\r\n"))
        }
        _ => Err(Refused::Unknown(name)),
    }
}

fn op_of(name: &str) -> Result<Command, Refused<'_>> {
    Command::by_name(name).ok_or(Refused::Op(name))
}

/// Maximum depth of a shown tree. Configurations are trees, so this only stops absurd ones.
const DEPTH_MAX: usize = 64;

/// Maximum number of routes in one answer. It shows all routes of which a request uses one, and
/// there may be more paths through them than anyone can read.
const STEPS_MAX: u32 = 20_000;

/// A walk over the tree that ends after [`STEPS_MAX`] routes.
struct Walk<'c> {
    core: &'c Core,
    steps: u32,
}

impl Walk<'_> {
    /// Calls `visit` with each route behind this one and the request as that one receives it; with
    /// none after the limit.
    fn next(
        &mut self,
        route: &RouteRef,
        mut request: Request<'_>,
        mut visit: impl FnMut(&mut Self, &RouteRef, Request<'_>),
    ) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return;
        }
        let context = self.core.context();
        let keys = route.keys(context, &request);
        let routes = route.next(context, &mut request);
        if keys.is_empty() {
            routes.iter().for_each(|next| visit(self, next, request));
        }
        for (key, hashed) in &keys {
            let named = Request { key, hashed: *hashed, ..request };
            routes.iter().for_each(|next| visit(self, next, named));
        }
    }
}

fn describe(
    walk: &mut Walk<'_>,
    route: &RouteRef,
    request: Request<'_>,
    depth: usize,
    lines: &mut String,
) {
    for _ in 0..depth {
        lines.push(' ');
    }
    lines.push_str(&route.name());
    lines.push_str("\r\n");
    if depth < DEPTH_MAX {
        walk.next(route, request, |walk, next, request| {
            describe(walk, next, request, depth + 1, lines);
        });
    }
}

fn leaves(walk: &mut Walk<'_>, route: &RouteRef, request: Request<'_>, servers: &mut Vec<String>) {
    if let Some(server) = route.name().strip_prefix("host|") {
        servers.push(server.to_owned());
    }
    walk.next(route, request, |walk, next, request| leaves(walk, next, request, servers));
}

/// The key's buckets in mcrouter's form: the key without its routing prefix, the bucket, its
/// keyspace.
fn buckets(walk: &mut Walk<'_>, route: &RouteRef, request: Request<'_>, lines: &mut Vec<String>) {
    if let Some((bucket, keyspace)) = route.bucket(&request) {
        let key = String::from_utf8_lossy(request.key);
        lines.push(format!("{key}\t{bucket}\t{keyspace}"));
        return;
    }
    walk.next(route, request, |walk, next, request| buckets(walk, next, request, lines));
}
