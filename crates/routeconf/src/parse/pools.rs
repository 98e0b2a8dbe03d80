//! `pools`: servers, and additions from `inherit` and files.

use std::sync::Arc;

use indexmap::IndexMap;

use super::fields::{Fields, as_number};
use super::server::{ServerDefaults, parse_protocol, parse_security, parse_server};
use super::{Builder, owned};
use crate::ast::{Member, Pool, PoolId, PoolWeights, Protocol, Security, TkoTracker};
use crate::count::count;
use crate::json::{self, Node, Value};
use crate::source::{At, Diagnostic, Fallible, fail};

/// Maximum number of servers in a pool: Ch3 can name more than any router can connect to.
const SERVERS_MAX: usize = 1 << 20;

/// Maximum number of additional places of each server: mcrouter's limit with one thread.
const FANOUT_MAX: u32 = (32 << 10) - 1;

impl Builder<'_> {
    /// The pool that a route names, or contains.
    pub(super) fn pool_of(&mut self, node: &Node) -> Fallible<PoolId> {
        if let Some(name) = node.as_str() {
            return match self.pool_nodes.get(name).cloned() {
                Some(pool) => self.pool(name, &pool),
                None if name.starts_with("file:") => self.pool(name, node),
                None => Err(Box::new(self.no_pool(name, node.at))),
            };
        }
        match node.get("name").and_then(Node::as_str) {
            Some(name) => {
                let name = name.to_owned();
                self.pool(&name, node)
            }
            None => fail(node.at, "a pool is a name, or an object with a 'name'"),
        }
    }

    fn no_pool(&self, name: &str, at: At) -> Diagnostic {
        let error = Diagnostic::error(at, format!("there is no pool '{name}'"));
        error.meant(name, self.pool_nodes.keys().map(String::as_str))
    }

    /// The pool of that name, built at first use.
    pub(super) fn pool(&mut self, name: &str, node: &Node) -> Fallible<PoolId> {
        if let Some(known) = self.pool_ids.get(name) {
            return Ok(*known);
        }
        if self.pools_open.iter().any(|open| open == name) {
            return fail(node.at, format!("the pool '{name}' inherits from itself"));
        }
        self.pools_open.push(name.to_owned());
        let whole = self.inherited(name, node);
        let pool = whole.and_then(|whole| self.build_pool(name, &whole));
        self.pools_open.pop();
        let pool = pool?;
        let Ok(id) = u32::try_from(self.pools.len()).map(PoolId) else {
            return fail(node.at, "too many pools");
        };
        self.pools.push(pool);
        self.pool_ids.insert(name.to_owned(), id);
        Ok(id)
    }

    /// The pool's object with its inherited members, or the content of a file.
    fn inherited(&mut self, name: &str, node: &Node) -> Fallible<Node> {
        let mut whole = node.clone();
        for _ in 0..32 {
            if let Some(file) = whole.as_str() {
                whole = self.pool_file(file, whole.at)?;
            }
            let Some(map) = whole.as_object() else {
                return fail(
                    whole.at,
                    format!("the pool '{name}' is an object or a file, not {}", whole.value.kind()),
                );
            };
            let Some(base) = map.get("inherit") else { return Ok(whole) };
            let Some(base_name) = base.as_str() else {
                return fail(base.at, format!("'inherit' is a string, not {}", base.value.kind()));
            };
            if base_name == name {
                return fail(base.at, format!("the pool '{name}' inherits from itself"));
            }
            let mut parent = match self.pool_nodes.get(base_name) {
                Some(local) => local.clone(),
                None => self.pool_file(base_name, base.at)?,
            };
            if let Some(file) = parent.as_str() {
                parent = self.pool_file(file, parent.at)?;
            }
            let Some(parent) = parent.as_object() else {
                return fail(base.at, format!("'{base_name}' is no pool"));
            };
            let mut members: IndexMap<_, _> = parent.members().clone();
            for (member, value) in map.members() {
                if &**member != "inherit" {
                    members.insert(member.clone(), value.clone());
                } else if !parent.members().contains_key("inherit") {
                    members.shift_remove("inherit");
                }
            }
            whole = Node::object(members, whole.at)?;
        }
        fail(node.at, format!("the pool '{name}' inherits more than 32 times; is there a cycle?"))
    }

    fn pool_file(&mut self, name: &str, at: At) -> Fallible<Node> {
        let (text, shown) = match self.sources.read(name) {
            Ok(read) => read,
            Err(error) => return fail(at, format!("cannot read the pool '{name}': {error}")),
        };
        let file = self.files.add(&shown);
        json::parse(&text, file, &mut self.findings)
    }

    fn build_pool(&mut self, name: &str, node: &Node) -> Fallible<Pool> {
        check_pool_name(name, node.at)?;
        let fields = Fields::new(node, format!("the pool '{name}'"))?;
        let defaults = server_defaults(&fields)?;
        fields.need("servers")?;
        let servers = fields.list("servers")?.unwrap_or_default();
        if servers.len() > SERVERS_MAX {
            return fail(node.at, format!("the pool '{name}' has more than {SERVERS_MAX} servers"));
        }
        let hostnames =
            same_length(&fields, fields.texts("hostnames")?, servers.len(), "hostnames")?;
        let domains = failure_domains(&fields, servers.len())?;
        let fanout = fields.int32("additional_fanout", 0, FANOUT_MAX)?.unwrap_or(0) as usize;
        if servers.len().saturating_mul(fanout) > SERVERS_MAX {
            return fail(node.at, format!("the pool '{name}' has more than {SERVERS_MAX} places"));
        }
        let by_tag = weights_by_tag(&fields)?;
        let given = if by_tag.is_none() { fields.numbers("weights")? } else { None };
        let mut weights =
            given.as_ref().filter(|all| all.len() == servers.len()).map(|_| Vec::new());
        let mut members = Vec::with_capacity(servers.len());
        for (place, server) in servers.iter().enumerate() {
            let (member, places) = match server.as_str() {
                Some(text) => {
                    let mut server = parse_server(text, defaults, server.at)?;
                    server.name = hostnames.get(place).cloned();
                    server.failure_domain = domains.get(place).cloned();
                    (Member::Server(server), fanout + 1)
                }
                None => (self.member(server, defaults)?, 1),
            };
            members.extend(std::iter::repeat_n(member, places));
            if let (Some(weights), Some(given)) = (&mut weights, &given) {
                weights.extend(given.get(place).into_iter().cycle().take(places));
            }
        }
        let tags = fields.texts("tags")?;
        let pool = Pool {
            name: name.to_owned(),
            tko_tracker: tko_tracker(&fields, servers.len())?,
            members,
            weights: by_tag.or_else(|| weights.or(given).map(PoolWeights::ByPlace)),
            tags,
            server_timeout_ms: timeout(&fields, "server_timeout")?,
            connect_timeout_ms: timeout(&fields, "connect_timeout")?,
            region: fields.text("region")?.unwrap_or_default().to_owned(),
            cluster: fields.text("cluster")?.unwrap_or_default().to_owned(),
            keep_routing_prefix: fields.flag("keep_routing_prefix", false)?,
            error_on_empty: fields.flag("error_on_empty", false)?,
            is_fanned_out: fanout > 0,
            eject: None,
            at: node.at,
        };
        fields.known(&["inherit"]);
        fields.unused(&["services", "service_id_override", "pool_locality"]);
        fields.unused(&["disable_request_deadline_check", "enable_compression", "use_typed"]);
        fields.unused(&["qos"]);
        fields.finish(&mut self.findings);
        Ok(pool)
    }

    /// A server as an object: the older form with `hostname`, or a route.
    fn member(&mut self, node: &Node, defaults: ServerDefaults) -> Fallible<Member> {
        if node.get("hostname").is_none() {
            return Ok(Member::Route(self.route(node)?));
        }
        let fields = Fields::new(node, "a server")?;
        let mut own = defaults;
        if let Some(protocol) = fields.text("protocol")? {
            own.protocol = parse_protocol(protocol, fields.place("protocol"))?;
        }
        if let Some(tls) = fields.truth("use_ssl")? {
            own.security = if tls { Security::Tls } else { Security::Plain };
        }
        fields.unused(&["qos"]);
        let server = parse_server(fields.need_text("hostname")?, own, node.at)?;
        fields.finish(&mut self.findings);
        Ok(Member::Server(server))
    }
}

/// Refuses a name that would end its line of statistics.
pub(crate) fn check_pool_name(name: &str, at: At) -> Fallible<()> {
    if name.contains(char::is_control) {
        return fail(at, format!("the pool '{name}' has a control character in its name"));
    }
    Ok(())
}

fn server_defaults(fields: &Fields<'_>) -> Fallible<ServerDefaults> {
    let protocol = match fields.text("protocol")? {
        Some(name) => parse_protocol(name, fields.place("protocol"))?,
        None => Protocol::default(),
    };
    let mut security = Security::default();
    for name in ["security_mech", "security_mech_within_dc", "security_mech_cross_dc"] {
        if let Some(text) = fields.text(name)? {
            security = parse_security(text, fields.place(name))?;
        }
    }
    if let Some(tls) = fields.truth("use_ssl")? {
        security = if tls { Security::Tls } else { Security::Plain };
    }
    let mut port = None;
    for name in ["port_override", "port_override_within_dc", "port_override_cross_dc"] {
        if let Some(number) = fields.int(name, 1, i64::from(u16::MAX))? {
            port = u16::try_from(number).ok();
        }
    }
    Ok(ServerDefaults { protocol, security, port })
}

fn same_length(
    fields: &Fields<'_>,
    list: Option<Vec<String>>,
    servers: usize,
    name: &str,
) -> Fallible<Vec<String>> {
    let Some(list) = list else { return Ok(Vec::new()) };
    if list.len() != servers {
        let message =
            format!("'{name}' of {} has {} entries for {servers} servers", fields.what, list.len());
        return fail(fields.place(name), message);
    }
    Ok(list)
}

/// `weights` that are an object, for `WeightedRendezvous`.
fn weights_by_tag(fields: &Fields<'_>) -> Fallible<Option<PoolWeights>> {
    let Some(given) = fields.get("weights").and_then(Node::as_object) else { return Ok(None) };
    let weight = |(tag, node): (&Arc<str>, &Node)| match as_number(node) {
        Some(weight) => Ok((owned(tag), weight)),
        None => {
            let kind = node.value.kind();
            fail(node.at, format!("the weight of '{tag}' is a number, not {kind}"))
        }
    };
    let weights = given.members().iter().map(weight).collect::<Fallible<_>>()?;
    Ok(Some(PoolWeights::ByTag(weights)))
}

/// Strings or integers.
fn failure_domains(fields: &Fields<'_>, servers: usize) -> Fallible<Vec<String>> {
    let Some(list) = fields.list("failure_domains")? else { return Ok(Vec::new()) };
    let name = |node: &Node| match &node.value {
        Value::String(text) => Ok(owned(text)),
        Value::Int(number) => Ok(number.to_string()),
        other => fail(
            node.at,
            format!("a failure domain is a string or an integer, not {}", other.kind()),
        ),
    };
    let list = list.iter().map(name).collect::<Fallible<Vec<_>>>()?;
    same_length(fields, Some(list), servers, "failure_domains")
}

fn timeout(fields: &Fields<'_>, name: &'static str) -> Fallible<Option<u64>> {
    Ok(fields.int(name, 0, 1_000_000_000)?.map(i64::unsigned_abs))
}

fn tko_tracker(fields: &Fields<'_>, servers: usize) -> Fallible<Option<TkoTracker>> {
    let Some(node) = fields.get("tko_tracker") else { return Ok(None) };
    let inner = Fields::new(node, "'tko_tracker'")?;
    let bound = |number: &'static str, percent: &'static str| -> Fallible<u32> {
        if let Some(number) = inner.int32(number, 1, u32::MAX)? {
            return Ok(number);
        }
        let percent = inner.int32(percent, 1, 100)?.unwrap_or(0);
        Ok(count(servers * percent as usize / 100))
    };
    let upper = bound("num_tko_threshold_upper", "percent_tko_threshold_upper")?;
    let lower = bound("num_tko_threshold_lower", "percent_tko_threshold_lower")?;
    if upper == 0 || lower == 0 || lower > upper {
        return fail(
            node.at,
            "'tko_tracker' needs an upper and a lower threshold of at least one server, the lower one not above",
        );
    }
    Ok(Some(TkoTracker { upper, lower }))
}
