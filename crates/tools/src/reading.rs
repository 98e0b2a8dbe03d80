//! A member's answer: the lines of `stats` and of its role's groups.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Error};

/// Maximum bytes of one group: a server has some thousand, with namespaces some hundred thousand.
const GROUP_BYTES_MAX: usize = 4 << 20;

/// Maximum number of statistics in a reading, because one takes more memory than its line has
/// bytes. A server has some thousand, and 14,336 more with all 1,024 namespaces; a proxy has some
/// for each server.
const STATS_MAX: usize = 50_000;

/// The maximum time for one group, however often a line of it comes.
const GROUP_TIME_MAX: Duration = Duration::from_secs(30);

/// The kind of a member, determined by its statistics.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// holdall or memcached.
    Server,
    /// `holdall route` or mcrouter.
    Proxy,
    /// `holdall invalidate`.
    Invalidator,
}

impl Role {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Proxy => "proxy",
            Self::Invalidator => "invalidator",
        }
    }
}

/// One answer of a member.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The kind of the member.
    pub role: Role,
    /// The time at which the answer was complete.
    pub at: Instant,
    /// From the request for `stats` to the end of its answer.
    pub round_trip: Duration,
    /// Statistics by name. Groups have distinct names (`latency:get:p99_seconds`), so all share one
    /// map. Control characters are escaped, because values are shown on terminals.
    pub stats: BTreeMap<String, String>,
}

/// The groups to query in addition to those of the table.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// The most popular keys.
    pub hot_keys: bool,
    /// All statistics of the member's keys, namespaces or servers.
    pub details: bool,
}

impl Reading {
    /// Queries a member.
    ///
    /// # Errors
    ///
    /// Returns errors of the connection, or of an invalid answer.
    pub fn take(connection: &mut Connection, wanted: Wanted) -> Result<Self, Error> {
        let begin = Instant::now();
        let mut stats = BTreeMap::new();
        stats_group(connection, "stats", &mut stats)?;
        let round_trip = begin.elapsed();
        let role = role_of(&stats);
        let is_holdall = stats.contains_key("holdall_version");
        match role {
            Role::Server if is_holdall => {
                stats_group(connection, "stats latency", &mut stats)?;
                if wanted.hot_keys || wanted.details {
                    stats_group(connection, "stats hotkeys", &mut stats)?;
                }
                if wanted.details {
                    stats_group(connection, "stats workingset", &mut stats)?;
                    stats_group(connection, "stats mrc", &mut stats)?;
                    stats_group(connection, "stats eviction", &mut stats)?;
                    stats_group(connection, "stats prefixes", &mut stats)?;
                }
            }
            Role::Proxy if wanted.details => {
                stats_group(connection, "stats servers", &mut stats)?;
                stats_group(connection, "stats latency", &mut stats)?;
            }
            Role::Server | Role::Proxy | Role::Invalidator => {}
        }
        Ok(Self { role, at: Instant::now(), round_trip, stats })
    }

    /// A statistic as a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        self.stats.get(name)?.parse().ok().filter(|number: &f64| number.is_finite())
    }

    /// The growth of a count since an earlier answer, per second; none after a reset.
    #[must_use]
    pub fn rate_since(&self, before: &Self, name: &str) -> Option<f64> {
        let grown = self.number(name)? - before.number(name)?;
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        (grown >= 0.0 && seconds > 0.0).then(|| grown / seconds)
    }

    /// The numbers of one name for each cluster: `cluster:NAME:what`.
    pub fn of_clusters<'r>(&'r self, what: &'r str) -> impl Iterator<Item = f64> + 'r {
        let clusters = self.stats.range("cluster:".to_owned()..="cluster;".to_owned());
        let named = clusters
            .filter(move |(name, _)| name.rsplit_once(':').is_some_and(|(_, last)| last == what));
        named.filter_map(|(_, value)| value.parse().ok())
    }

    /// The version that the member reports.
    #[must_use]
    pub fn version(&self) -> &str {
        let own = self.stats.get("holdall_version").or_else(|| self.stats.get("version"));
        own.map_or("", String::as_str)
    }
}

fn role_of(stats: &BTreeMap<String, String>) -> Role {
    if stats.contains_key("delivered_position") {
        Role::Invalidator
    } else if stats.contains_key("num_servers") {
        Role::Proxy
    } else {
        Role::Server
    }
}

/// Adds the lines of the group that `request` queries. A group that the member does not have adds
/// none.
///
/// # Errors
///
/// Returns errors of the connection, or of an answer that is invalid, or exceeds a member's limits
/// of size or time.
pub fn stats_group(
    connection: &mut Connection,
    request: &'static str,
    stats: &mut BTreeMap<String, String>,
) -> Result<(), Error> {
    group_end(connection, request, stats).map(drop)
}

/// As [`stats_group`]; returns the group's last line, which may be an error of the server.
fn group_end(
    connection: &mut Connection,
    request: &'static str,
    stats: &mut BTreeMap<String, String>,
) -> Result<String, Error> {
    connection.send(format!("{request}\r\n").as_bytes())?;
    let (begin, mut bytes) = (Instant::now(), 0);
    let is_within = |bytes, stats: &BTreeMap<_, _>| {
        bytes <= GROUP_BYTES_MAX && stats.len() <= STATS_MAX && begin.elapsed() < GROUP_TIME_MAX
    };
    while is_within(bytes, stats) {
        let line = connection.line()?;
        bytes += line.len();
        if let Some(stat) = line.strip_prefix("STAT ") {
            let (name, value) = stat.split_once(' ').unwrap_or((stat, ""));
            stats.insert(shown(name), shown(value));
        } else if line == "END" || (request != "stats" && line.contains("ERROR")) {
            return Ok(shown(&line));
        } else {
            return Err(connection.unexpected(request, &shown(&line)));
        }
    }
    Err(connection.unexpected(request, "more, or more slowly, than a member does"))
}

/// The settings of a server, as `stats settings` shows them.
///
/// # Errors
///
/// Those of [`stats_group`]; an answer without any setting.
pub fn server_settings(connection: &mut Connection) -> Result<BTreeMap<String, String>, Error> {
    let (request, mut settings) = ("stats settings", BTreeMap::new());
    let end = group_end(connection, request, &mut settings);
    let found = match end {
        Ok(end) if settings.is_empty() => Err(connection.unexpected(request, &end)),
        end => end.map(|_| settings),
    };
    found.map_err(|error| {
        let advice = match &error {
            Error::Reply { reply, .. } if reply.contains("unauthenticated") => {
                "it wants a login (--login)"
            }
            Error::Io { error, .. } if is_close(error) && connection.has_tls() => {
                "it may accept only the binary protocol (-B binary)"
            }
            Error::Io { error, .. } if is_close(error) => {
                "it may want TLS (--tls-ca), or accept only the binary protocol (-B binary)"
            }
            _ => return error,
        };
        Error::NoSettings { error: Box::new(error), advice }
    })
}

fn is_close(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

/// A text without control characters.
fn shown(text: &str) -> String {
    if text.contains(char::is_control) { text.escape_debug().to_string() } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::connection::Options;

    #[test]
    fn roles_are_recognized_by_their_statistics() {
        let of = |name: &str| role_of(&BTreeMap::from([(name.to_owned(), "1".to_owned())]));
        assert_eq!(of("cmd_get"), Role::Server);
        assert_eq!(of("num_servers"), Role::Proxy);
        assert_eq!(of("delivered_position"), Role::Invalidator);
    }

    #[test]
    fn a_count_that_was_reset_has_no_rate() {
        let start = Instant::now();
        let of = |secs, count: &str| Reading {
            role: Role::Server,
            at: start + Duration::from_secs(secs),
            round_trip: Duration::ZERO,
            stats: BTreeMap::from([("cmd_get".to_owned(), count.to_owned())]),
        };
        let before = of(0, "10");
        for (now, rate) in [
            (of(2, "20"), Some(5.0)),
            (of(2, "10"), Some(0.0)),
            (of(2, "9"), None),
            (of(0, "20"), None),
        ] {
            assert_eq!(now.rate_since(&before, "cmd_get"), rate);
            assert_eq!(now.rate_since(&before, "cmd_set"), None);
        }
    }

    #[test]
    fn an_endless_reply_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let line = format!("STAT {} 1\r\n", "x".repeat(4000));
            let mut sent = 0;
            while stream.write_all(line.as_bytes()).is_ok() {
                sent += line.len();
            }
            sent
        });
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let mut connection = Connection::open(&address, &options).unwrap();
        let error = Reading::take(&mut connection, Wanted::default()).unwrap_err().to_string();
        assert!(error.contains("more, or more slowly, than a member does"), "{error}");
        drop(connection);
        // The contents of the sockets come on top.
        assert!(server.join().unwrap() < 32 * GROUP_BYTES_MAX);
    }

    /// A short line takes many times its bytes in memory.
    #[test]
    fn a_reply_with_too_many_lines_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines: String = (0..=STATS_MAX).map(|name| format!("STAT {name}\r\n")).collect();
            assert!(lines.len() < GROUP_BYTES_MAX);
            stream.read_exact(&mut [0; b"stats\r\n".len()]).unwrap();
            // The peer closes before it has everything.
            let _ = stream.write_all((lines + "END\r\n").as_bytes());
        });
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let mut connection = Connection::open(&address, &options).unwrap();
        let mut stats = BTreeMap::new();
        let error = stats_group(&mut connection, "stats", &mut stats).unwrap_err().to_string();
        assert!(error.contains("more, or more slowly, than a member does"), "{error}");
        assert_eq!(stats.len(), STATS_MAX + 1);
        drop(connection);
        server.join().unwrap();
    }

    #[test]
    fn a_server_without_settings_is_quoted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        for (reply, said) in [
            (
                "CLIENT_ERROR unauthenticated\r\n",
                "was answered by \"CLIENT_ERROR unauthenticated\"; it wants a login (--login)",
            ),
            (
                "-ERR unknown command\r\n",
                "was answered by \"-ERR unknown command\"; dump and cp read a Redis by the address \
                 redis://HOST:PORT",
            ),
            ("END\r\n", "was answered by \"END\""),
            (
                "",
                "closed the connection; it may want TLS (--tls-ca), or accept only the binary \
                 protocol (-B binary)",
            ),
        ] {
            let mut connection = Connection::open(&address, &options).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(reply.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let error = server_settings(&mut connection).unwrap_err().to_string();
            assert!(error.ends_with(said), "{error}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\x1b[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(shown("plain é"), "plain é");
    }
}
