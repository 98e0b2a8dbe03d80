//! The specification of a run: servers, keys, rate and duration. It is parsed once and stored with
//! the result.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::keys::Pattern;
use super::sizes::{KeySize, ValueSize};
use crate::parse_error::ParseError;
use crate::serde_text;

/// memcached's port, for targets without one.
const PORT: u16 = 11211;

/// Everything that determines the requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// The servers; a key belongs to one of them, by its number.
    pub targets: Vec<Target>,
    /// The protocol.
    pub protocol: Protocol,
    /// Generator threads.
    pub threads: usize,
    /// Connections of each thread to each server.
    pub connections: usize,
    /// Maximum number of requests in flight per connection; the closed loop sends this number and
    /// waits for all.
    pub pipeline: usize,
    /// Keys per get.
    pub multiget: usize,
    /// Sets to gets.
    pub ratio: Ratio,
    /// Each thread repeatedly sends the ratio's sets and then its gets; otherwise each request is
    /// random.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ratio_in_turn: bool,
    /// Number of keys.
    pub keys: u64,
    /// The number in the first key's name.
    #[serde(default)]
    pub first_key: u64,
    /// The prefix of keys.
    pub key_prefix: String,
    /// The lengths of keys.
    pub key_size: KeySize,
    /// The pattern of keys.
    pub pattern: Pattern,
    /// The lengths of values; a key's value always has the same length.
    pub value_size: ValueSize,
    /// Expiration time of stored items, in seconds; 0 for never.
    pub ttl: u32,
    /// Store every key once before measuring.
    pub preload: bool,
    /// Compare every fetched value with the stored one.
    pub verify: bool,
    /// The times at which requests are sent.
    pub pace: Pace,
    /// Measured seconds.
    pub seconds: f64,
    /// Seconds that are run before and not counted.
    pub warm_up: f64,
    /// Requests per connection (in an open loop, per connection of a thread on average) after which
    /// the run ends; 0 for no limit.
    #[serde(default)]
    pub requests: u64,
    /// Requests after which a connection is replaced by a new one; 0 for never.
    #[serde(default)]
    pub reconnect: u64,
    /// TLS over TCP.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// Files of the certificate and the key to present to servers.
    #[serde(default)]
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that a server's certificate must have, if it is not the host's.
    #[serde(default)]
    pub tls_name: Option<String>,
    /// A file whose first line is `USER:PASSWORD`; no result contains the secret.
    #[serde(default)]
    pub login: Option<PathBuf>,
    /// The login itself, instead of the file.
    #[serde(skip)]
    pub credentials: Option<Credentials>,
    /// Processors to which the generator threads are bound, in turn; if empty, the system places
    /// them.
    #[serde(default)]
    pub pin: Vec<usize>,
    /// Determines the keys' order and the arrivals.
    pub seed: u64,
}

/// The time at which a request is sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pace {
    /// After each reply.
    Closed,
    /// At scheduled times, independent of the replies.
    Open {
        /// Requests per second, of all threads together.
        rate: f64,
        /// The distribution of arrivals.
        arrival: Arrival,
    },
}

/// The distribution of arrivals in an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// As independent users come: intervals have an exponential distribution.
    #[default]
    Poisson,
    /// Evenly.
    Fixed,
}

/// The language spoken with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// memcached's classic text commands.
    #[default]
    Text,
    /// memcached's meta commands.
    Meta,
    /// memcached's binary protocol.
    Binary,
    /// Redis and Valkey.
    Resp,
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Over TCP; the given name and the resolved address.
    Tcp(String, SocketAddr),
    /// Over UDP, only for gets; the given name and the resolved address.
    Udp(String, SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// The certificates that a TLS connection trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// Servers with a certificate of the authorities in this file.
    Verified(PathBuf),
    /// Any server.
    Unverified,
}

/// `USER:PASSWORD`, or a Redis server's `PASSWORD`; never written.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials(pub String);

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Sets to gets, as in `1:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Parts of sets.
    pub sets: u32,
    /// Parts of gets.
    pub gets: u32,
}

impl Default for Spec {
    /// Gets of 64-byte values, ten for each set, uniformly of 100,000 keys, from a server on this
    /// host, in a closed loop.
    fn default() -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, PORT));
        Self {
            targets: vec![Target::Tcp(local.to_string(), local)],
            protocol: Protocol::Text,
            threads: 1,
            connections: 50,
            pipeline: 1,
            multiget: 1,
            ratio: Ratio { sets: 1, gets: 10 },
            ratio_in_turn: false,
            keys: 100_000,
            first_key: 0,
            key_prefix: "key:".to_owned(),
            key_size: KeySize::Shortest,
            pattern: Pattern::Uniform,
            value_size: ValueSize::Fixed(64),
            ttl: 0,
            preload: false,
            verify: false,
            pace: Pace::Closed,
            seconds: 10.0,
            warm_up: 1.0,
            requests: 0,
            reconnect: 0,
            tls: None,
            identity: None,
            tls_name: None,
            login: None,
            credentials: None,
            pin: Vec::new(),
            seed: 1,
        }
    }
}

impl FromStr for Target {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(PathBuf::from(text)));
        }
        if let Some(rest) = text.strip_prefix("udp:") {
            return match rest.parse()? {
                Self::Tcp(name, address) => Ok(Self::Udp(name, address)),
                Self::Udp(..) | Self::Unix(_) => Err(ParseError::form(text, "udp:HOST[:PORT]")),
            };
        }
        let with_port = hostport::with_port(text, PORT);
        let mut found = with_port.to_socket_addrs().map_err(|error| ParseError::Lookup {
            text: text.to_owned(),
            error: error.to_string(),
        })?;
        let address = found.next().ok_or_else(|| ParseError::NoAddress(text.to_owned()))?;
        Ok(Self::Tcp(with_port, address))
    }
}

impl Target {
    /// Its network address, if it has one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, address) | Self::Udp(_, address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// Its path, if it is a unix socket.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(..) | Self::Udp(..) => None,
            Self::Unix(path) => Some(path),
        }
    }

    /// True if it uses datagrams.
    #[must_use]
    pub fn is_udp(&self) -> bool {
        matches!(self, Self::Udp(..))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(name, _) => f.write_str(name),
            Self::Udp(name, _) => write!(f, "udp:{name}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Ratio {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refused = || ParseError::form(text, "SETS:GETS, for example 1:10");
        let (sets, gets) = text.split_once(':').ok_or_else(refused)?;
        let ratio = Self {
            sets: sets.parse().map_err(|_| refused())?,
            gets: gets.parse().map_err(|_| refused())?,
        };
        if ratio.sets.checked_add(ratio.gets).is_none_or(|sum| sum == 0) {
            return Err(refused());
        }
        Ok(ratio)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.sets, self.gets)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Meta => "meta",
            Self::Binary => "binary",
            Self::Resp => "resp",
        })
    }
}

serde_text!(Target, Ratio);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_defaults_to_memcacheds_port() {
        assert_eq!("127.0.0.1".parse::<Target>().unwrap().to_string(), "127.0.0.1:11211");
        assert_eq!("::1".parse::<Target>().unwrap().to_string(), "[::1]:11211");
        assert_eq!("[::1]:5".parse::<Target>().unwrap().to_string(), "[::1]:5");
        assert_eq!("/run/a".parse::<Target>().unwrap().to_string(), "unix:/run/a");
        let udp: Target = "udp:127.0.0.1".parse().unwrap();
        assert!(udp.is_udp() && udp.to_string() == "udp:127.0.0.1:11211");
        assert!("udp:/run/a".parse::<Target>().is_err());
        assert!("127.0.0.1:99999".parse::<Target>().is_err());
    }

    #[test]
    fn a_ratio_is_two_numbers_not_both_zero() {
        assert_eq!("1:10".parse::<Ratio>().unwrap(), Ratio { sets: 1, gets: 10 });
        for wrong in ["", "1", "0:0", "-1:2", "1:2:3", "4294967295:1"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
    }
}
