//! The settings of a running Redis or Valkey used as a cache, and the features that its clients
//! would miss.
//!
//! Source: the default `redis.conf` of Redis 7.0, and `CONFIG GET`, `INFO`, `SCAN` of redis.io.

use std::collections::BTreeMap;
use std::net::IpAddr;

use tools::{Error, KeyForm, Redis as Connection, Reply, key_form};

use crate::settings::Settings;

/// Keys sampled to find their kinds.
const SAMPLE: usize = 1000;

/// The answers of a server about itself.
#[derive(Clone, Debug, Default)]
pub struct Redis {
    /// `CONFIG GET *`.
    pub config: BTreeMap<String, String>,
    /// The major version, by `INFO server`; 0 if unknown.
    pub version: u32,
    /// The calls of each command, by `INFO commandstats`.
    pub calls: BTreeMap<String, u64>,
    /// Databases with keys, by `INFO keyspace`.
    pub databases: Vec<String>,
    /// Kinds of values in a sample of keys, each with its number.
    pub kinds: BTreeMap<String, u64>,
    /// Keys of that sample that are too long.
    pub long_keys: u64,
    /// Keys of that sample that clients name in base64.
    pub encoded_keys: u64,
    /// By `ACL LIST`: the users, and true for those that need a password. Empty if Redis has no
    /// such command, or refuses it.
    pub users: BTreeMap<String, bool>,
    /// True if the questions needed a login.
    pub has_login: bool,
}

impl Redis {
    /// Queries a server.
    ///
    /// # Errors
    ///
    /// If it does not answer, or refuses one of the commands.
    pub fn ask(connection: &mut Connection) -> Result<Self, Error> {
        let mut redis = Self::default();
        let reply = connection.ask("CONFIG", &["GET", "*"])?;
        let Some(words) = texts(&reply) else {
            return Err(connection.unexpected("CONFIG GET", &reply));
        };
        for pair in words.chunks_exact(2) {
            if let [name, value] = pair {
                redis.config.insert(name.clone(), value.clone());
            }
        }
        for line in info(connection, "server")? {
            if let Some(version) = line.strip_prefix("redis_version:") {
                let number = version.split('.').next().unwrap_or_default();
                redis.version = number.parse().unwrap_or(0);
            }
        }
        for line in info(connection, "commandstats")? {
            if let Some((name, rest)) =
                line.strip_prefix("cmdstat_").and_then(|line| line.split_once(":calls="))
            {
                let calls =
                    rest.split(',').next().and_then(|calls| calls.parse().ok()).unwrap_or(0);
                redis.calls.insert(name.to_owned(), calls);
            }
        }
        for line in info(connection, "keyspace")? {
            if let Some((database, _)) = line.split_once(":keys=") {
                redis.databases.push(database.to_owned());
            }
        }
        for line in texts(&connection.ask("ACL", &["LIST"])?).unwrap_or_default() {
            let mut words = line.split(' ').skip(1);
            if let Some(name) = words.next() {
                let needs_password = words.all(|word| word != "nopass");
                redis.users.insert(name.to_owned(), needs_password);
            }
        }
        redis.sample(connection)?;
        Ok(redis)
    }

    fn sample(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let mut cursor = "0".to_owned();
        let mut seen = 0;
        // A server whose listing does not end is sampled, too.
        for _ in 0..SAMPLE {
            let reply = connection.ask("SCAN", &[&cursor, "COUNT", "100"])?;
            let parts = match &reply {
                Reply::List(parts) => parts.as_slice(),
                _ => &[],
            };
            let [Reply::Text(next), keys] = parts else {
                return Err(connection.unexpected("SCAN", &reply));
            };
            for key in byte_texts(keys).unwrap_or_default() {
                seen += 1;
                let kind = match connection.ask_in_bytes("TYPE", &[key])? {
                    Reply::Text(kind) => String::from_utf8_lossy(&kind).into_owned(),
                    _ => continue,
                };
                // It has expired, or was deleted.
                if kind == "none" {
                    continue;
                }
                *self.kinds.entry(kind).or_default() += 1;
                match key_form(key) {
                    KeyForm::Plain => {}
                    KeyForm::Base64 => self.encoded_keys += 1,
                    KeyForm::None => self.long_keys += 1,
                }
            }
            cursor = String::from_utf8_lossy(next).into_owned();
            if cursor == "0" || seen >= SAMPLE {
                break;
            }
        }
        Ok(())
    }
}

/// The lines of a section of INFO.
fn info(connection: &mut Connection, section: &str) -> Result<Vec<String>, Error> {
    match connection.ask("INFO", &[section])? {
        Reply::Text(text) => {
            Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
        }
        reply => Err(connection.unexpected("INFO", &reply)),
    }
}

/// A list of texts.
fn texts(reply: &Reply) -> Option<Vec<String>> {
    let texts = byte_texts(reply)?.into_iter();
    Some(texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect())
}

/// A list of texts, as they are.
fn byte_texts(reply: &Reply) -> Option<Vec<&[u8]>> {
    let Reply::List(entries) = reply else { return None };
    let mut texts = Vec::with_capacity(entries.len());
    for entry in entries {
        let Reply::Text(text) = entry else { return None };
        texts.push(text.as_slice());
    }
    Some(texts)
}

/// Converts a Redis's settings, with notes on necessary changes in its clients.
#[must_use]
pub fn from_redis(redis: &Redis) -> Settings {
    let mut made = Settings::default();
    let of =
        |name: &str| redis.config.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let hosts = listening(&mut made, &of, redis);
    network(&mut made, &of, &hosts);
    tls(&mut made, &of);
    keeping(&mut made, &of);
    logins(&mut made, &of, redis);
    others(&mut made, &of);
    data(&mut made, redis);
    commands(&mut made, redis);
    made
}

/// A setting of Redis by its name; `None` if it is not set.
type Of<'a> = &'a dyn Fn(&str) -> Option<&'a str>;

/// The port of a name, unless it is 0: Redis does not listen.
fn port<'a>(of: Of<'a>, name: &str) -> Option<&'a str> {
    of(name).filter(|port| *port != "0")
}

/// The addresses where Redis listens unless `bind` says otherwise.
const EVERYWHERE: &str = "* -::*";

/// The addresses of `bind`, except those whose clients protected mode refuses.
fn listening<'a>(made: &mut Settings, of: Of<'a>, redis: &Redis) -> Vec<&'a str> {
    let mut hosts: Vec<_> = of("bind").unwrap_or(EVERYWHERE).split_whitespace().collect();
    if is_protected(of, redis) {
        let all = hosts.len();
        hosts.retain(|host| address(host).parse().is_ok_and(|ip: IpAddr| ip.is_loopback()));
        if hosts.len() < all {
            made.note(
                "protected-mode: without a password Redis refuses clients of other hosts, so \
                 listen is a loopback address; for other clients, set auth_file and change listen",
            );
        }
        if hosts.is_empty() {
            hosts.push("127.0.0.1");
        }
    }
    // Here `*` also includes every IPv6 address.
    if hosts.contains(&"*") && hosts.iter().any(|host| address(host) == "::*") {
        return vec!["*"];
    }
    let (mut needed, optional): (Vec<_>, Vec<_>) =
        hosts.into_iter().partition(|host| !host.starts_with('-'));
    if needed.is_empty() {
        needed = optional;
    } else if !optional.is_empty() {
        made.note(format!(
            "bind {}: Redis does without an address that the host does not have, and a server \
             of holdall does not start: add it to listen where the host has it",
            optional.join(" ")
        ));
    }
    let addresses = needed.into_iter().map(|host| match address(host) {
        "*" => "0.0.0.0",
        "::*" => "::",
        host => host,
    });
    addresses.collect()
}

/// An address of `bind`; a leading minus means that the host may lack it.
fn address(host: &str) -> &str {
    host.trim_start_matches('-')
}

/// Returns true if clients of other hosts are refused because there is no password. Before Redis 7,
/// setting `bind` let them in.
fn is_protected(of: Of<'_>, redis: &Redis) -> bool {
    // The mode depends on the password of the user `default`, even if that user is off.
    let has_password = match redis.users.get("default") {
        Some(needs_password) => *needs_password,
        None => has_logins(of, redis),
    };
    let is_opened = (1..7).contains(&redis.version) && of("bind").is_some();
    of("protected-mode") == Some("yes") && !has_password && !is_opened
}

/// Returns true if some users need a password.
fn has_logins(of: Of<'_>, redis: &Redis) -> bool {
    redis.has_login
        || of("requirepass").is_some()
        || of("aclfile").is_some()
        || redis.users.values().any(|needs_password| *needs_password)
}

fn network(made: &mut Settings, of: Of<'_>, hosts: &[&str]) {
    match (port(of, "port"), port(of, "tls-port")) {
        (Some(plain), Some(tls)) => {
            let at = |host: &&str, port| match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            };
            let plain = hosts.iter().map(|host| format!("notls:{}", at(host, plain)));
            made.listen(plain.chain(hosts.iter().map(|host| at(host, tls))));
        }
        (plain, tls) => {
            made.listen(hosts);
            if let Some(port) = plain.or(tls) {
                made.set("port", port);
            }
        }
    }
    made.note(
        "clients speak memcached's protocol from now on, at the same port; the table of commands \
         is in docs/migrate-redis.md",
    );
    if let Some(path) = of("unixsocket") {
        made.note(format!(
            "unixsocket {path}: a server of holdall listens there or at a port; for the first, \
             set unix_socket"
        ));
    }
    for (name, key) in [
        ("maxclients", "conn_limit"),
        ("timeout", "idle_timeout"),
        ("tcp-backlog", "listen_backlog"),
    ] {
        if let Some(number) = of(name).and_then(|number| number.parse::<u64>().ok()) {
            made.set(key, number);
        }
    }
}

fn tls(made: &mut Settings, of: Of<'_>) {
    if port(of, "tls-port").is_none() {
        return;
    }
    made.set("enable_ssl", true);
    for (name, key) in [
        ("tls-cert-file", "ssl_chain_cert"),
        ("tls-key-file", "ssl_key"),
        ("tls-ca-cert-file", "ssl_ca_cert"),
    ] {
        if let Some(path) = of(name) {
            made.set_text(key, path);
        }
    }
    let mode = match of("tls-auth-clients") {
        Some("no") => 0,
        Some("optional") => 1,
        _ => 2,
    };
    made.set("ssl_verify_mode", mode);
}

fn keeping(made: &mut Settings, of: Of<'_>) {
    match of("maxmemory").and_then(|bytes| bytes.parse::<u64>().ok()).filter(|bytes| *bytes > 0) {
        Some(bytes) => made.memory_limit(bytes),
        None => made.note("maxmemory is not set: choose memory_limit, which is 64 MB otherwise"),
    }
    match of("maxmemory-policy") {
        Some("noeviction") => {
            made.set("disable_evictions", true);
            made.note(
                "maxmemory-policy noeviction: stores are refused when memory is full; a cache \
                 evicts",
            );
        }
        Some(policy) if policy.starts_with("volatile-") => made.note(format!(
            "maxmemory-policy {policy}: items that never expire are evicted here as well"
        )),
        _ => {}
    }
    if of("save").is_some() || of("appendonly") == Some("yes") {
        made.note(
            "save, appendonly: items are in memory; memory_file keeps them over restarts and \
             crashes of the program, not over those of the machine",
        );
    }
}

fn logins(made: &mut Settings, of: Of<'_>, redis: &Redis) {
    if has_logins(of, redis) {
        made.note(
            "requirepass, user, aclfile: the file made here lets everyone in; name a file of users \
             by auth_file, whose lines holdall passwd makes",
        );
    }
}

fn others(made: &mut Settings, of: Of<'_>) {
    if of("cluster-enabled") == Some("yes") {
        made.note(
            "cluster-enabled: one server per node, and holdall route before them (docs/routing.md)",
        );
    }
    if of("replicaof").is_some() {
        made.note(
            "replicaof: there are no replicas; holdall route writes to several pools \
             (docs/router.md)",
        );
    }
    if of("notify-keyspace-events").is_some() {
        made.note("notify-keyspace-events: clients hear of no changes; holdall watch shows them");
    }
}

fn data(made: &mut Settings, redis: &Redis) {
    let sampled: u64 = redis.kinds.values().sum();
    for (kind, count) in redis.kinds.iter().filter(|(kind, _)| *kind != "string") {
        made.note(format!(
            "{count} of {sampled} keys looked at are of the kind {kind}: store such a value \
             whole, as a string"
        ));
    }
    if redis.long_keys > 0 {
        made.note(format!(
            "{} of {sampled} keys looked at are longer than 250 bytes, or than 186 with spaces or \
             control characters: hash such keys; holdall cp leaves them out",
            redis.long_keys
        ));
    }
    if redis.encoded_keys > 0 {
        made.note(format!(
            "{} of {sampled} keys looked at have spaces or control characters: name them in \
             base64, by meta commands",
            redis.encoded_keys
        ));
    }
    if redis.databases.len() > 1 {
        made.note(format!(
            "keys are in {}: one server has one space of keys; run several, or put a prefix \
             before each key",
            redis.databases.join(", ")
        ));
    }
}

/// Commands that clients used since the server's start.
fn commands(made: &mut Settings, redis: &Redis) {
    let of_clients = redis.calls.iter().filter(|(name, _)| !ADMINISTRATIVE.contains(&family(name)));
    let (known, unknown): (Vec<_>, Vec<_>) =
        of_clients.partition(|(name, _)| COUNTERPARTS.iter().any(|(known, _)| known == name));
    for (name, calls) in unknown {
        made.note(format!("{name} was called {calls} times, and has no counterpart"));
    }
    for (name, calls) in known {
        let becomes =
            COUNTERPARTS.iter().find(|(known, _)| known == name).map_or("", |(_, becomes)| becomes);
        made.note(format!("{name} was called {calls} times: {becomes}"));
    }
}

/// `config|get` belongs to the family `config`.
fn family(command: &str) -> &str {
    command.split_once('|').map_or(command, |(family, _)| family)
}

/// Commands of operators and of connections, which clients' code does not contain.
/// `type` has no consequence for them, since `migrate` itself calls it.
const ADMINISTRATIVE: [&str; 23] = [
    "acl", "auth", "bgsave", "client", "cluster", "command", "config", "dbsize", "debug", "hello",
    "info", "latency", "memory", "monitor", "ping", "quit", "readonly", "save", "scan", "select",
    "shutdown", "slowlog", "type",
];

/// Commands of clients, each with its replacement; docs/migrate-redis.md has the same table.
pub const COUNTERPARTS: &[(&str, &str)] = &[
    ("append", "append, which does not make the item"),
    ("decr", "decr, which stops at 0 and does not make the item"),
    ("decrby", "decr, which stops at 0 and does not make the item"),
    ("del", "delete"),
    ("exists", "mg KEY without v"),
    ("expire", "touch"),
    ("expireat", "touch with a Unix time"),
    ("flushall", "flush_all"),
    ("flushdb", "flush_all"),
    ("get", "get"),
    ("getdel", "get, then delete"),
    ("getex", "gat"),
    ("getset", "gets, then cas"),
    ("incr", "incr, which does not make the item; ma with N and J does"),
    ("incrby", "incr, which does not make the item; ma with N and J does"),
    ("mget", "get with several keys"),
    ("mset", "a set for each key, sent together"),
    ("pexpire", "touch, in seconds"),
    ("psetex", "set with a time in seconds"),
    ("pttl", "mg KEY t, in seconds"),
    ("set", "set; with NX add, with XX replace"),
    ("setex", "set with a time in seconds"),
    ("setnx", "add"),
    ("strlen", "mg KEY s"),
    ("touch", "mg KEY without v"),
    ("ttl", "mg KEY t"),
    ("unlink", "delete"),
];
