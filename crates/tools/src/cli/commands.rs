//! Flags and help of each command.

use std::path::PathBuf;

use clap::Parser;

use super::Reach;
use crate::connection::Options;
use crate::redis::SCHEME as REDIS;

/// A server's address, for help.
const ADDRESS: &str = "127.0.0.1:11211";

/// An address that no server has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum WrongAddress {
    #[error("a Redis is only read, by dump and cp")]
    Redis,
    #[error("'{0}' is not a port: a number up to 65535")]
    Port(String),
}

/// An address of a server with memcached's protocol.
fn server(text: &str) -> Result<String, WrongAddress> {
    if text.starts_with(REDIS) {
        return Err(WrongAddress::Redis);
    }
    source(text)
}

/// An address of a server that is read, which may be a Redis.
fn source(text: &str) -> Result<String, WrongAddress> {
    if text.starts_with("unix:") {
        return Ok(text.to_owned());
    }
    let place = match text.strip_prefix(REDIS) {
        Some(rest) => rest.split_once('/').map_or(rest, |(place, _)| place),
        None => text,
    };
    match hostport::split(place).1 {
        Some(port) if port.parse::<u16>().is_err() => Err(WrongAddress::Port(port.to_owned())),
        _ => Ok(text.to_owned()),
    }
}

/// Asks servers whether they answer: version and time of one round trip.
#[derive(Debug, Parser)]
#[command(
    name = "holdall ping",
    version,
    after_help = "\
Examples:
  holdall ping 10.0.0.1 10.0.0.2:11212 unix:/run/cache
  holdall ping cache1 --tls-ca ca.pem --login login.txt

Exit status: 0 if every server answered; 1 if one did not; 64 for a wrong command line."
)]
pub(super) struct PingArgs {
    /// Servers: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "ADDRESS", default_value = ADDRESS, value_parser = server)]
    pub addresses: Vec<String>,
    /// A line of JSON for each server
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// Measures the time of round trips to a server, one after the other.
#[derive(Debug, Parser)]
#[command(
    name = "holdall latency",
    version,
    after_help = "\
Examples:
  holdall latency 10.0.0.1                              a second's worth, every 10 ms
  holdall latency 10.0.0.1 --count 10000 --interval 0   as fast as one connection goes

holdall bench measures under load."
)]
pub(super) struct LatencyArgs {
    /// Server: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "ADDRESS", default_value = ADDRESS, value_parser = server)]
    pub address: String,
    /// Round trips
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    pub count: u64,
    /// Milliseconds between two
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub interval: u64,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// Lists the keys of a server; it goes on serving meanwhile.
#[derive(Debug, Parser)]
#[command(
    name = "holdall keys",
    version,
    after_help = "\
Examples:
  holdall keys 10.0.0.1 --prefix user: | wc -l
  holdall keys 10.0.0.1 --json --limit 10

Bytes of a key that are not printable ASCII are escaped, for example as \\x1b."
)]
pub(super) struct KeysArgs {
    /// Server: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "ADDRESS", default_value = ADDRESS, value_parser = server)]
    pub address: String,
    /// Keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// Keys at the most
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// A line of JSON for each key, with its size and the Unix time at which it expires
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// Shows the largest items of a server, and the prefixes of keys that take the most memory.
#[derive(Debug, Parser)]
#[command(
    name = "holdall bigkeys",
    version,
    after_help = "\
Examples:
  holdall bigkeys 10.0.0.1
  holdall bigkeys 10.0.0.1 --count 50 --separator /

Sizes are of items with their headers. holdall keys lists all of them."
)]
pub(super) struct BigKeysArgs {
    /// Server: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "ADDRESS", default_value = ADDRESS, value_parser = server)]
    pub address: String,
    /// Rows of each kind
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub count: u16,
    /// The character at which a prefix ends
    #[arg(long, value_name = "CHAR", default_value_t = ':', value_parser = ascii)]
    pub separator: char,
    /// Prints JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

/// An invalid separator.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("one character of ASCII")]
struct NoSeparator;

fn ascii(text: &str) -> Result<char, NoSeparator> {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(only), None) if only.is_ascii() => Ok(only),
        _ => Err(NoSeparator),
    }
}

/// Writes all items of a server, with values, flags and expiry times, to a file.
#[derive(Debug, Parser)]
#[command(
    name = "holdall dump",
    version,
    after_help = "\
Examples:
  holdall dump 10.0.0.1 -o cache.dump
  holdall dump 10.0.0.1 --prefix session: | zstd >sessions.zst
  holdall dump redis://10.0.0.5:6379/0 -o strings.dump

The dump does not change the order of eviction. It may have the old or the new state of an item that
changes during the dump. It leaves out values that clients are to renew (marked stale, or made empty
for the first that asks), and their clients keep the right to renew them. Of Redis and Valkey, it
has the strings. holdall restore stores a dump."
)]
pub(super) struct DumpArgs {
    /// Server: HOST, HOST:PORT, unix:PATH or redis://HOST:PORT/DATABASE
    #[arg(value_name = "ADDRESS", default_value = ADDRESS, value_parser = source)]
    pub address: String,
    /// The file [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Prints what was done as JSON; with --out, since stdout is the dump otherwise
    #[arg(long, requires = "out")]
    pub json: bool,
    /// Keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    #[command(flatten)]
    pub reach: Reach,
}

/// Stores the items of a dump in a server.
#[derive(Debug, Parser)]
#[command(
    name = "holdall restore",
    version,
    after_help = "\
Examples:
  holdall restore 10.0.0.1 cache.dump
  zstd -dc sessions.zst | holdall restore 10.0.0.1 --rate 50000 --add

Items that expired since the dump are left out. A dump that was cut short is restored as far as it
goes, and is an error. Expiry times are cut to January 2038, the latest that memcached takes.

Exit status: 0 done; 1 a server or a file failed; 2 the server refused items, such as those larger
than it takes; 64 a wrong command line."
)]
pub(super) struct RestoreArgs {
    /// Server: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "ADDRESS", value_parser = server)]
    pub address: String,
    /// The dump [default: stdin]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Prints what was done as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub storing: Storing,
    #[command(flatten)]
    pub reach: Reach,
}

/// Copies all items of a server into another.
#[derive(Debug, Parser)]
#[command(
    name = "holdall cp",
    version,
    after_help = "\
Examples:
  holdall cp 10.0.0.1 10.0.0.2 --add
      what the second server has already, it keeps
  holdall cp redis://10.0.0.5 10.0.0.2
      the strings of a Redis or Valkey, with the times at which they expire
  holdall cp redis://10.0.0.5 10.0.0.2 --from-login redis.txt --login app.txt --tls-ca ca.pem
      a login to each, and TLS to the second

FROM is reached in the same way as TO (TLS, login), unless a flag --from-.. says otherwise: then by
those flags alone. Values that change meanwhile are copied as they were or as they are: copy to a
server that is not in use, or with --add. Values that clients are to renew are left out, as are keys
of Redis that are no strings; expiry times are cut to January 2038.

Exit status: 0 done, less what was left out; 1 a server failed; 2 the second server refused items,
such as those larger than it takes; 64 a wrong command line."
)]
pub(super) struct CopyArgs {
    /// Server that is read: as TO, or redis://HOST:PORT/DATABASE
    #[arg(value_name = "FROM", value_parser = source)]
    pub from: String,
    /// Server that is filled: HOST, HOST:PORT or unix:PATH
    #[arg(value_name = "TO", value_parser = server)]
    pub to: String,
    /// Prints what was done as JSON
    #[arg(long)]
    pub json: bool,
    /// Keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    #[command(flatten)]
    pub storing: Storing,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub from_reach: FromReach,
}

/// The way to the server that is read, where it is another.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FromReach {
    /// Reads without TLS and login
    #[arg(long, conflicts_with_all = ["from_tls_ca", "from_tls_insecure", "from_login"])]
    from_plain: bool,
    /// Reads by TLS; the server is verified by these issuers (PEM)
    #[arg(long, value_name = "FILE", conflicts_with = "from_tls_insecure")]
    from_tls_ca: Option<PathBuf>,
    /// Reads by TLS with any certificate
    #[arg(long)]
    from_tls_insecure: bool,
    /// Logs in where it reads, by the first line of a file: USER:PASSWORD
    #[arg(long, value_name = "FILE")]
    from_login: Option<PathBuf>,
}

impl FromReach {
    /// The connection settings in these flags; without any, those of the other server.
    pub(super) fn options(&self, to: &Options) -> Options {
        let Self { from_plain, from_tls_ca, from_tls_insecure, from_login } = self.clone();
        let is_same =
            !from_plain && !from_tls_insecure && from_tls_ca.is_none() && from_login.is_none();
        if is_same {
            return to.clone();
        }
        Options {
            tls_ca: from_tls_ca,
            tls_insecure: from_tls_insecure,
            login: from_login,
            timeout: to.timeout,
        }
    }
}

/// The way in which items are stored.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Storing {
    /// Items a second at the most; 0: as fast as the server takes them
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub rate: u64,
    /// Keys that are there keep their values
    #[arg(long)]
    pub add: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_addresses_are_refused_before_a_connection() {
        for address in ["a", "a:1", "::1", "[::1]:65535", "unix:/run/a:b"] {
            assert_eq!(server(address), Ok(address.to_owned()));
            assert_eq!(source(address), Ok(address.to_owned()));
        }
        for address in ["redis://a", "redis://a:6379/3", "redis://::1"] {
            assert_eq!(source(address), Ok(address.to_owned()));
            assert_eq!(server(address), Err(WrongAddress::Redis));
        }
        let wrong = |port: &str| Err(WrongAddress::Port(port.to_owned()));
        assert_eq!(server("a:99999"), wrong("99999"));
        assert_eq!(server("a:"), wrong(""));
        assert_eq!(source("redis://a:x/1"), wrong("x"));
    }
}
