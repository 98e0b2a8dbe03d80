//! Pools and their servers.

use std::collections::BTreeMap;
use std::fmt;

use super::ids::RouteId;
use crate::source::At;

/// A pool: servers, in an order that affects placement, and the settings for them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Its servers.
    pub members: Vec<Member>,
    /// Shares for WeightedCh3, or weights for KetamaWeighted or WeightedRendezvous.
    pub weights: Option<PoolWeights>,
    /// Stable names for rendezvous, one for each member.
    pub tags: Option<Vec<String>>,
    /// `server_timeout`, milliseconds; `None` is the router's default.
    pub server_timeout_ms: Option<u64>,
    /// `connect_timeout`, milliseconds; `None` is `server_timeout`.
    pub connect_timeout_ms: Option<u64>,
    /// `region` and `cluster`, which give the router the pool's distance; empty if unset.
    pub region: String,
    /// See `region`.
    pub cluster: String,
    /// Servers receive keys with their routing prefix.
    pub keep_routing_prefix: bool,
    /// `tko_tracker`: if too many servers are out, they get requests anyway.
    pub tko_tracker: Option<TkoTracker>,
    /// `error_on_empty`: a pool without servers answers with an error instead of misses.
    pub error_on_empty: bool,
    /// `additional_fanout`: each server has several places.
    pub is_fanned_out: bool,
    /// twemproxy's `auto_eject_hosts`: `server_failure_limit` and `server_retry_timeout` in
    /// milliseconds.
    pub eject: Option<(u32, u64)>,
    /// Its place in the configuration.
    pub at: At,
}

/// `weights` of a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolWeights {
    /// One for each member, or fewer.
    ByPlace(Vec<f64>),
    /// By the tags of the members.
    ByTag(Vec<(String, f64)>),
}

impl Pool {
    /// Host and port of the members that have them, by which ketama places keys. The host is that
    /// of `hostnames`, as for clients that know the servers by these names, unless servers share a
    /// name.
    #[must_use]
    pub fn hosts(&self) -> Vec<(&str, u16)> {
        let servers = self.members.iter().filter_map(|member| match member {
            Member::Server(server) => match &server.address {
                ServerAddress::Tcp { host, port } => Some((server, host.as_str(), *port)),
                ServerAddress::Unix(_) => None,
            },
            Member::Route(_) => None,
        });
        let mut named = BTreeMap::new();
        let are_told_apart = servers.clone().all(|(server, host, port)| {
            let name = server.name.as_deref();
            name.is_some_and(|name| *named.entry((name, port)).or_insert(host) == host)
        });
        servers
            .map(|(server, host, port)| {
                let name = server.name.as_deref().filter(|_| are_told_apart);
                (name.unwrap_or(host), port)
            })
            .collect()
    }
}

/// One place in a pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Member {
    /// A server.
    Server(Server),
    /// A route instead of a server.
    Route(RouteId),
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Its address.
    pub address: ServerAddress,
    /// The protocol of its connections.
    pub protocol: Protocol,
    /// The protection of its connections.
    pub security: Security,
    /// twemproxy's name for it, or `hostnames` of mcrouter.
    pub name: Option<String>,
    /// twemproxy's weight; 1 elsewhere.
    pub weight: u32,
    /// mcrouter's `failure_domains`.
    pub failure_domain: Option<String>,
    /// Its place in the configuration.
    pub at: At,
}

/// An address as written; the connecting code resolves names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ServerAddress {
    /// A host (name, IPv4, or IPv6 without brackets) and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// 1 to 65535.
        port: u16,
    },
    /// A socket in the file system.
    Unix(String),
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// The protocol for a server. mcrouter's own caret, thrift and xdp are refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Classic text: mcrouter's `ascii`.
    #[default]
    Ascii,
    /// Binary; not mcrouter's.
    Binary,
    /// Meta; not mcrouter's.
    Meta,
}

/// mcrouter's `security_mech`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Security {
    /// None.
    #[default]
    Plain,
    /// TLS: `ssl`, `tls`, `fizz` (Meta's TLS 1.3 library), `ktls12`.
    Tls,
    /// TLS only for the handshake: `tls_to_plain`.
    TlsToPlain,
}

/// `tko_tracker`, in servers: the pool fails open above `upper`, until it is below `lower`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TkoTracker {
    /// At least `lower`.
    pub upper: u32,
    /// At least 1.
    pub lower: u32,
}
