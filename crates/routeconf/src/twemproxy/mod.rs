//! twemproxy's YAML: pools, each with a separate listener.
//!
//! Source: twemproxy's `nc_conf.c` and its notes on recommended settings. A pool becomes a
//! [`Route::Pool`], or a [`Route::Random`] with `distribution: random`; keys have no prefixes and
//! no hash stop there.

use hashing::{KeyHash, libmemcached_name};

use crate::ast::{
    Config, Entry, Handle, Hash, HashFunction, KeyPart, Listener, Member, Pool, PoolAddress,
    PoolId, PoolRoute, Protocol, Route, RouteId, Security, Server, ServerAddress,
};
use crate::count::count;
use crate::json::{Map, Node};
use crate::parse::{check_pool_name, port_of};
use crate::source::{At, Diagnostic, Fallible, Files, fail};

const KEYS: [&str; 19] = [
    "auto_eject_hosts",
    "backlog",
    "client_connections",
    "distribution",
    "hash",
    "hash_tag",
    "listen",
    "preconnect",
    "redis",
    "redis_auth",
    "redis_db",
    "reuseport",
    "server_connections",
    "server_failure_limit",
    "server_retry_timeout",
    "servers",
    "tcpkeepalive",
    "timeout",
    "mbuf_size",
];

/// Accepted settings without an effect, with alternatives.
const UNUSED: [(&str, &str); 7] = [
    ("backlog", "the length of the queue is the kernel's limit or 1024"),
    ("client_connections", "--max-conns limits them over all pools"),
    ("mbuf_size", "buffers grow as they need to"),
    ("preconnect", "connections are made when they are needed"),
    ("reuseport", "one process serves with several threads: --num-proxies"),
    ("server_connections", "a worker has one connection to each server: --num-proxies"),
    ("tcpkeepalive", "connections to servers have it always"),
];

/// Reads a configuration; if the findings contain an error, it is incomplete.
pub(crate) fn read(text: &str, file: u16, default_route: &str) -> (Config, Vec<Diagnostic>) {
    let mut config = Config {
        files: Files::default(),
        pools: Vec::new(),
        handles: Vec::new(),
        listeners: Vec::new(),
        default_route: default_route.to_owned(),
    };
    let mut findings = Vec::new();
    let root = crate::yaml::parse(text, file);
    let root = root.and_then(|root| match root.as_object() {
        Some(map) if !map.members().is_empty() => Ok(root),
        Some(_) => fail(root.at, "the configuration has no pool"),
        None => {
            fail(root.at, format!("a configuration is pools by name, not {}", root.value.kind()))
        }
    });
    match root {
        Err(error) => findings.push(*error),
        Ok(root) => {
            for (name, node) in root.as_object().into_iter().flat_map(Map::members) {
                if let Err(error) = pool(name, node, &mut config, &mut findings) {
                    findings.push(*error);
                }
            }
        }
    }
    (config, findings)
}

/// One pool with its listener and its route.
fn pool(
    name: &str,
    node: &Node,
    config: &mut Config,
    findings: &mut Vec<Diagnostic>,
) -> Fallible<()> {
    let Some(map) = node.as_object() else {
        return fail(
            node.at,
            format!("the pool '{name}' is settings by name, not {}", node.value.kind()),
        );
    };
    check_pool_name(name, node.at)?;
    let settings = Settings { map, at: node.at, name };
    findings.extend(settings.unknown());
    findings.extend(settings.unused());
    if settings.truth("redis")? || map.get("redis_auth").is_some() {
        return fail(
            node.at,
            format!("the pool '{name}' is for Redis; only memcached's protocols are spoken here"),
        );
    }
    let Some(read) = settings.read(findings) else { return Ok(()) };
    if read.timeout.is_none() {
        findings.push(settings.unlimited());
    }
    let id = PoolId(count(config.pools.len()));
    let places = 0..count(read.servers.len());
    config.pools.push(Pool {
        name: name.to_owned(),
        members: read.servers.into_iter().map(Member::Server).collect(),
        weights: None,
        tags: None,
        server_timeout_ms: read.timeout,
        connect_timeout_ms: None,
        region: String::new(),
        cluster: String::new(),
        keep_routing_prefix: true,
        tko_tracker: None,
        error_on_empty: true,
        is_fanned_out: false,
        eject: read.eject,
        at: node.at,
    });
    let route = match read.hash {
        Some(hash) => add(config, Route::Pool(Box::new(plain(id, hash))), node.at),
        None => {
            let children = places
                .map(|index| add(config, Route::Destination { pool: id, index }, node.at))
                .collect();
            add(config, Route::Random(children), node.at)
        }
    };
    config.listeners.push(Listener {
        name: name.to_owned(),
        listen: Some(read.listen),
        entry: Entry::Plain(route),
        at: node.at,
    });
    Ok(())
}

fn add(config: &mut Config, route: Route, at: At) -> RouteId {
    let id = RouteId(count(config.handles.len()));
    config.handles.push(Handle { route, name: None, at });
    id
}

/// A route without spool, shadows and rates, which twemproxy lacks.
fn plain(pool: PoolId, hash: Hash) -> PoolRoute {
    PoolRoute {
        pool,
        hash,
        latest: None,
        buckets: None,
        rates: None,
        shard_splits: None,
        asynclog: None,
        shadows: Vec::new(),
        slow_warmup: None,
        max_outstanding: 0,
    }
}

/// The values of a pool's settings.
struct Read {
    servers: Vec<Server>,
    /// `None` for a random server each time.
    hash: Option<Hash>,
    /// Failures after which a server is ejected, and for how many milliseconds.
    eject: Option<(u32, u64)>,
    timeout: Option<u64>,
    listen: PoolAddress,
}

/// The value, if it is valid; errors go to the findings.
fn noted<T>(value: Fallible<T>, findings: &mut Vec<Diagnostic>) -> Option<T> {
    value.map_err(|error| findings.push(*error)).ok()
}

/// The settings of one pool.
struct Settings<'n> {
    map: &'n Map,
    at: At,
    name: &'n str,
}

impl Settings<'_> {
    /// Reads all settings, so that one pass finds all errors; `None` if there are any.
    fn read(&self, findings: &mut Vec<Diagnostic>) -> Option<Read> {
        let servers = self.servers(findings);
        let servers = noted(servers, findings);
        let hash = servers.as_ref().and_then(|servers| noted(self.hash(servers), findings));
        let is_ejecting = noted(self.truth("auto_eject_hosts"), findings);
        let limit = noted(self.number("server_failure_limit"), findings);
        let retry = noted(self.number("server_retry_timeout"), findings);
        let timeout = noted(self.number("timeout"), findings);
        let connections = noted(self.number("server_connections"), findings);
        let preconnect = noted(self.truth("preconnect"), findings);
        let listen = noted(self.listen(), findings);
        let _ = (connections?, preconnect?);
        let limit = u32::try_from(limit?.unwrap_or(2).max(1)).unwrap_or(u32::MAX);
        let eject = (limit, retry?.unwrap_or(30_000));
        Some(Read {
            servers: servers?,
            hash: hash?,
            eject: is_ejecting?.then_some(eject),
            // In twemproxy, 0 is no limit.
            timeout: timeout?.filter(|millis| *millis > 0),
            listen: listen?,
        })
    }

    /// An error for each unknown setting.
    fn unknown(&self) -> impl Iterator<Item = Diagnostic> {
        let unknown = self.map.members().iter().filter(|(key, _)| !KEYS.contains(&&***key));
        unknown.map(|(key, node)| {
            let message = format!("the pool '{}' has no setting '{key}'", self.name);
            Diagnostic::error(node.at, message).meant(key, KEYS)
        })
    }

    fn listen(&self) -> Fallible<PoolAddress> {
        let listen = self.need("listen")?;
        let text = listen.as_str().unwrap_or_default().trim();
        let (address, mode) = match text.split_once(char::is_whitespace) {
            Some((path, mode)) if path.starts_with('/') => (path, Some(mode.trim())),
            _ => (text, None),
        };
        if address.is_empty() || address.contains(char::is_whitespace) {
            return fail(listen.at, "'listen' is an address, or a path with an access mode");
        }
        let mode = mode.map(|mode| access_mode(mode, listen.at)).transpose()?;
        Ok(PoolAddress { address: address.to_owned(), mode })
    }

    /// The warning about a pool whose servers may take any time in twemproxy, but not here.
    fn unlimited(&self) -> Diagnostic {
        let message = format!(
            "the pool '{}' has no 'timeout': a server has --server-timeout to reply",
            self.name
        );
        Diagnostic::warning(self.at, message)
            .hint("in twemproxy there is no limit; set 'timeout' for a longer one")
    }

    /// A warning for each setting without an effect.
    fn unused(&self) -> impl Iterator<Item = Diagnostic> {
        UNUSED.iter().filter_map(|(key, instead)| {
            let node = self.map.get(key)?;
            let message = format!("the pool '{}': '{key}' changes nothing", self.name);
            Some(Diagnostic::warning(node.at, message).hint(*instead))
        })
    }

    fn need(&self, key: &str) -> Fallible<&Node> {
        match self.map.get(key) {
            Some(node) => Ok(node),
            None => fail(self.at, format!("the pool '{}' needs '{key}'", self.name)),
        }
    }

    fn truth(&self, key: &str) -> Fallible<bool> {
        match self.map.get(key).map(|node| (node.as_str(), node.at)) {
            None | Some((Some("false"), _)) => Ok(false),
            Some((Some("true"), _)) => Ok(true),
            Some((_, at)) => fail(at, format!("'{key}' is true or false")),
        }
    }

    fn number(&self, key: &str) -> Fallible<Option<u64>> {
        let Some(node) = self.map.get(key) else { return Ok(None) };
        let digits = node.as_str().unwrap_or_default();
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse().ok().filter(|_| plain) {
            Some(number) if number <= u64::from(u32::MAX) => Ok(Some(number)),
            _ => {
                fail(node.at, format!("'{key}' is a number from 0 to {}, not '{digits}'", u32::MAX))
            }
        }
    }

    fn hash(&self, servers: &[Server]) -> Fallible<Option<Hash>> {
        let key_part = match self.map.get("hash_tag").map(|node| (node.as_str(), node.at)) {
            None => KeyPart::Whole,
            Some((Some(tag), at)) => match tag.as_bytes() {
                [open, close] => KeyPart::HashTag([*open, *close]),
                _ => {
                    return fail(
                        at,
                        format!("'hash_tag' is two characters, \"{{}}\" for instance, not '{tag}'"),
                    );
                }
            },
            Some((None, at)) => {
                return fail(at, "'hash_tag' is two characters, \"{}\" for instance");
            }
        };
        let hash = match self.map.get("hash") {
            None => KeyHash::Fnv1a64,
            Some(node) => self.key_hash(node)?,
        };
        let named = servers.iter().map(|server| (server_name(server), server.weight)).collect();
        let function = match self.map.get("distribution").map(|node| (node.as_str(), node.at)) {
            None | Some((Some("ketama"), _)) => {
                HashFunction::TwemproxyKetama { hash, servers: named }
            }
            Some((Some("modula"), _)) => HashFunction::TwemproxyModula { hash, servers: named },
            Some((Some("random"), _)) => return Ok(None),
            Some((_, at)) => return fail(at, "'distribution' is ketama, modula or random"),
        };
        let hash = Hash { function, salt: String::new(), key_part, buckets: None };
        match hash.placement(servers.len(), &[]) {
            Ok(_) => Ok(Some(hash)),
            Err(error) => fail(self.at, format!("the pool '{}': {error}", self.name)),
        }
    }

    fn key_hash(&self, node: &Node) -> Fallible<KeyHash> {
        let name = node.as_str().unwrap_or_default();
        match KeyHash::by_name(name) {
            Some(hash) if hash != KeyHash::Murmur3 => Ok(hash),
            _ => {
                let error = Diagnostic::error(node.at, format!("there is no hash '{name}'"));
                let known = KeyHash::ALL.into_iter();
                let known = known.filter(|(_, hash)| *hash != KeyHash::Murmur3);
                Err(Box::new(error.meant(name, known.map(|(name, _)| name))))
            }
        }
    }

    fn servers(&self, findings: &mut Vec<Diagnostic>) -> Fallible<Vec<Server>> {
        let node = self.need("servers")?;
        let Some(items) = node.as_array().filter(|items| !items.is_empty()) else {
            return fail(node.at, "'servers' is a list of at least one 'host:port:weight'");
        };
        let mut servers: Vec<Server> = Vec::with_capacity(items.len());
        for item in items {
            let Some(text) = item.as_str() else {
                return fail(
                    item.at,
                    format!("a server is 'host:port:weight name', not {}", item.value.kind()),
                );
            };
            let server = server(text, item.at)?;
            let name = server_name(&server);
            if servers.iter().any(|known| server_name(known) == name) {
                findings
                    .push(Diagnostic::error(item.at, format!("two servers are called '{name}'")));
            }
            servers.push(server);
        }
        Ok(servers)
    }
}

/// The access mode of a unix socket, in octal.
fn access_mode(text: &str, at: At) -> Fallible<u32> {
    let is_octal = text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    match u32::from_str_radix(text, 8) {
        Ok(mode) if is_octal && mode <= 0o777 => Ok(mode),
        _ => fail(at, format!("'{text}' is not an access mode from 0 to 0777, in octal")),
    }
}

/// The server's name on the circle.
fn server_name(server: &Server) -> String {
    match (&server.name, &server.address) {
        (Some(name), _) => name.clone(),
        (None, ServerAddress::Tcp { host, port }) => libmemcached_name(host, *port),
        // twemproxy leaves out the weight and the port 11211, but not the colon before the weight.
        (None, ServerAddress::Unix(path)) => format!("{path}:"),
    }
}

/// `host:port:weight name`, `/path:weight name`; the name may be missing.
fn server(text: &str, at: At) -> Fallible<Server> {
    let mut words = text.split_whitespace();
    let address = words.next().unwrap_or_default();
    let name = words.next().map(str::to_owned);
    let wrong = || format!("'{text}' is not of the form host:port:weight name");
    if words.next().is_some() {
        return fail(at, wrong());
    }
    let Some((rest, weight)) = address.rsplit_once(':') else { return fail(at, wrong()) };
    let weight = match weight.parse::<u32>() {
        Ok(weight) if weight > 0 && weight.to_string().len() <= 9 => weight,
        _ => {
            return fail(
                at,
                format!("'{weight}' of the server '{text}' is not a weight of at least 1"),
            );
        }
    };
    let address = if rest.starts_with('/') {
        ServerAddress::Unix(rest.to_owned())
    } else {
        match rest
            .rsplit_once(':')
            .map(|(host, port)| (host.trim_matches(['[', ']']), port_of(port)))
        {
            Some((host, Some(port))) if !host.is_empty() => {
                ServerAddress::Tcp { host: host.to_owned(), port }
            }
            _ => return fail(at, wrong()),
        }
    };
    Ok(Server {
        address,
        protocol: Protocol::Ascii,
        security: Security::Plain,
        name,
        weight,
        failure_domain: None,
        at,
    })
}
