//! The settings of a server from any source: command line, file, environment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::IpAddr;

use options::settings::{Given, Origin};
use options::{Endpoint, Environment, Invocation, Options, Style};

use crate::host::Host;
use crate::words::{Words, without_files};

/// Memcached's defaults, which are also holdall's.
const MEMORY_MB: u64 = 64;
const CONNECTIONS: u64 = 1024;
const BACKLOG: u64 = 1024;
const THREADS: u64 = 4;
const PORT: u64 = 11211;

/// The settings used by checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `-m` in bytes.
    pub memory_bytes: u64,
    /// `-t`.
    pub threads: u64,
    /// `-c`.
    pub connections: u64,
    /// `-b`.
    pub backlog: u64,
    /// The TCP ports.
    pub ports: Vec<u64>,
    /// A listening address other than the host's own.
    pub open_address: Option<String>,
    /// It speaks TLS.
    pub has_tls: bool,
    /// Its clients log in.
    pub has_logins: bool,
    /// `-L`.
    pub huge_pages: bool,
    /// Files that not everyone should read, by content.
    pub secrets: Vec<(&'static str, String)>,
    /// The settings that are not on the command line, for a report.
    pub beside_line: Vec<String>,
}

/// The reason why some settings are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Only its user and root may read the process's environment.
    Environment,
    /// The file, or all together, in the words of the server's own refusal.
    Refused(String),
}

impl Settings {
    /// Those of memcached's command line.
    pub(crate) fn of_words(words: &Words, is_memcached: bool) -> Self {
        let lists = words.flags('l', "listen");
        let elements = || lists.iter().flat_map(|list| list.split([',', ';'])).map(host_and_port);
        let hosts = elements().map(|(host, _)| host);
        let everywhere = (lists.is_empty() && is_memcached).then_some("every address");
        let is_unix = words.flag('s', "unix-socket").is_some() && !words.has_option("keep_tcp");
        let default = words.number('p', "port").unwrap_or(PORT);
        let mut ports: BTreeSet<u64> =
            elements().map(|(_, port)| port.unwrap_or(default)).collect();
        if lists.is_empty() {
            ports.insert(default);
        }
        let secrets = [
            ("private key", words.option("ssl_key")),
            ("file of users", words.flag('Y', "auth-file")),
            ("file of rights", words.option("rights")),
        ];
        Self {
            memory_bytes: memory_bytes(words.flag('m', "memory-limit").unwrap_or_default()),
            threads: words.number('t', "threads").unwrap_or(THREADS),
            connections: words.number('c', "conn-limit").unwrap_or(CONNECTIONS),
            backlog: words.number('b', "listen-backlog").unwrap_or(BACKLOG),
            // Port 0 is no TCP; a port that the system chose does not stand on the command line.
            ports: ports.into_iter().filter(|port| !is_unix && *port != 0).collect(),
            open_address: hosts
                .chain(everywhere)
                .find(|host| !is_unix && !is_own(host))
                .map(str::to_owned),
            has_tls: words.has('Z', "enable-ssl"),
            has_logins: words.has('S', "enable-sasl") || words.flag('Y', "auth-file").is_some(),
            huge_pages: words.has('L', "enable-largepages"),
            secrets: secrets
                .into_iter()
                .filter_map(|(what, file)| Some((what, file?.to_owned())))
                .collect(),
            beside_line: Vec::new(),
        }
    }

    /// Those of a `holdall serve` with this process id, as the server itself reads them, and the
    /// unreadable part.
    pub(crate) fn of_process(
        host: &Host,
        pid: u32,
        words: &Words,
        cpus: usize,
    ) -> (Self, Option<Unknown>) {
        let (variables, unknown) = variables(host, pid);
        let sasl_users = value(&variables, "MEMCACHED_SASL_PWDB").map(Into::into);
        let ours = variables.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("HOLDALL_")?;
            let value = if name == "CONFIG" { path_for(host, pid, value) } else { value.clone() };
            Some((name.to_owned(), value))
        });
        let environment = Environment {
            cpus,
            port_file: None,
            sasl_users,
            variables: ours.collect(),
            folder: host.path("/"),
        };
        let arguments = with_files_of(host, pid, words).into_iter().map(OsString::from);
        match options::parse(Style::Holdall, arguments, &environment) {
            Ok(Invocation::Run { options, given, .. }) => {
                (Self::resolved(&options, &given), unknown)
            }
            Ok(Invocation::Print(_)) => (Self::of_words(words, false), unknown),
            Err(refusal) => {
                // Without the unreadable variables, the rest may be inconsistent.
                let unknown = unknown.unwrap_or_else(|| Unknown::Refused(refusal.to_string()));
                (Self::of_words(words, false), Some(unknown))
            }
        }
    }

    fn resolved(options: &Options, given: &[Given]) -> Self {
        // As given: the paths of `options` are relative to this process's folder.
        let file = |key: &str| {
            let given = given.iter().find(|given| given.key == key);
            given.and_then(|given| given.values.last().cloned())
        };
        let users = || {
            let path = options.auth.users.as_ref().filter(|_| options.sasl);
            path.map(|path| path.display().to_string())
        };
        let secrets = [
            ("private key", file("ssl_key")),
            ("file of users", file("auth_file").or_else(users)),
            ("file of rights", file("rights")),
        ];
        let ports: BTreeSet<u64> =
            options.tcp.iter().map(|endpoint| u64::from(endpoint.port)).collect();
        let beside_line = given.iter().filter(|given| given.origin != Origin::Flag);
        Self {
            memory_bytes: options.memory_bytes,
            threads: options.threads as u64,
            connections: options.connections_max as u64,
            backlog: u64::try_from(options.backlog).unwrap_or(BACKLOG),
            ports: ports.into_iter().collect(),
            open_address: open_of(options.tcp.iter().chain(&options.udp)),
            has_tls: options.tls.is_some(),
            has_logins: options.auth.users.is_some(),
            huge_pages: options.huge_pages,
            secrets: secrets.into_iter().filter_map(|(what, file)| Some((what, file?))).collect(),
            beside_line: beside_line
                .map(|given| without_files(&format!("{}={}", given.key, given.values.join(";"))))
                .collect(),
        }
    }
}

fn open_of<'o>(mut endpoints: impl Iterator<Item = &'o Endpoint>) -> Option<String> {
    endpoints.find_map(|endpoint| match &endpoint.host {
        None => Some("every address".to_owned()),
        Some(host) => (!is_own(host)).then(|| host.clone()),
    })
}

/// The variables of a process, if it is a real one.
fn variables(host: &Host, pid: u32) -> (Vec<(String, String)>, Option<Unknown>) {
    match fs::read(host.path(&format!("/proc/{pid}/environ"))) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
            let owned = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
            (owned.collect(), None)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            (Vec::new(), Some(Unknown::Environment))
        }
        Err(_) => (Vec::new(), None),
    }
}

fn value(variables: &[(String, String)], wanted: &str) -> Option<String> {
    variables.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
}

fn path_for(host: &Host, pid: u32, name: &str) -> String {
    host.of_process(pid, name).display().to_string()
}

/// The words, with the files of `--config` as this process finds them.
fn with_files_of(host: &Host, pid: u32, words: &Words) -> Vec<String> {
    // The parser accepts any unique prefix of a flag.
    let is_config = |name: &str| name.len() >= "--conf".len() && "--config".starts_with(name);
    let mut is_file = false;
    let found = words.0.iter().map(|word| {
        let is_name = std::mem::replace(&mut is_file, is_config(word));
        match word.split_once('=') {
            _ if is_name => path_for(host, pid, word),
            Some((name, file)) if is_config(name) => {
                format!("{name}={}", path_for(host, pid, file))
            }
            _ => word.clone(),
        }
    });
    found.collect()
}

/// Megabytes, or the unit that follows.
fn memory_bytes(text: &str) -> u64 {
    let (digits, unit) = text.split_at(text.trim_end_matches(char::is_alphabetic).len());
    let shift = match unit {
        "g" | "G" => 30,
        "t" | "T" => 40,
        "k" | "K" => 10,
        _ => 20,
    };
    digits.parse::<u64>().unwrap_or(MEMORY_MB).saturating_mul(1 << shift)
}

/// The host and the port of an element of `-l`, without memcached's prefixes:
/// `notls:127.0.0.1:11211`.
fn host_and_port(element: &str) -> (&str, Option<u64>) {
    let element = element.trim();
    if let Some((kind, rest)) = element.split_once(':')
        && (matches!(kind, "tls" | "notls" | "mtls" | "btls") || kind.starts_with("proto["))
    {
        return host_and_port(rest);
    }
    if let Some(rest) = element.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').unwrap_or((rest, ""));
        return (host, tail.strip_prefix(':').and_then(|port| port.parse().ok()));
    }
    match element.rsplit_once(':') {
        Some((host, port)) if element.parse::<IpAddr>().is_err() => (host, port.parse().ok()),
        _ => (element, None),
    }
}

/// True for an address that other hosts cannot reach.
fn is_own(host: &str) -> bool {
    host.parse::<IpAddr>().map_or_else(|_| host == "localhost", |ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Settings {
        let mut words = line.split(' ').map(str::to_owned);
        let program = words.next().unwrap();
        let is_memcached = program == "memcached";
        Settings::of_words(&Words(words.collect()), is_memcached)
    }

    #[test]
    fn flags_are_found_in_every_form() {
        for line in ["holdall -m 2g", "holdall -m2048", "holdall --memory-limit=2g"] {
            assert_eq!(settings(line).memory_bytes, 2 << 30, "{line}");
        }
        let joined = Words(vec!["-m 2048".to_owned(), "-c 9".to_owned()]);
        let joined = Settings::of_words(&joined, true);
        assert_eq!((joined.memory_bytes, joined.connections), (2 << 30, 9));
        assert_eq!(settings("memcached").memory_bytes, 64 << 20);
        let all =
            settings("memcached -m 1g -t 8 -c 9 -b 5 -p 7 -vZ -S -l 10.0.0.1 -o a=1,ssl_key=/k");
        assert_eq!((all.threads, all.connections), (8, 9));
        assert_eq!((all.backlog, all.ports), (5, vec![7]));
        assert!(all.has_tls && all.has_logins);
        assert_eq!(all.secrets, [("private key", "/k".to_owned())]);
        assert_eq!(settings("memcached -m").memory_bytes, 64 << 20);
    }

    #[test]
    fn ports_are_those_that_the_server_listens_on() {
        for (line, ports) in [
            ("memcached", &[11211][..]),
            ("memcached -p 40000", &[40000]),
            ("memcached -s /run/m -p 40000", &[]),
            ("memcached -s /run/m -p 40000 -o keep_tcp", &[40000]),
            ("memcached -s /run/m -o track_sizes,keep_tcp", &[11211]),
            ("memcached -p 0", &[]),
            ("memcached -l 127.0.0.1:34567", &[34567]),
            ("memcached -p 40000 -l 127.0.0.1,notls:[::1]:34567 -l ::1", &[34567, 40000]),
        ] {
            assert_eq!(settings(line).ports, ports, "{line}");
        }
    }

    #[test]
    fn only_non_loopback_addresses_count_as_open() {
        for (line, open) in [
            ("memcached", Some("every address")),
            ("holdall", None),
            ("memcached -s /run/m", None),
            ("memcached -s /run/m -o keep_tcp", Some("every address")),
            ("holdall -l notls:127.0.0.1:5 -l [::1]:7", None),
            ("holdall -l 10.0.0.1 -l ::1", Some("10.0.0.1")),
            ("memcached -l 127.0.0.1,::1", None),
            ("memcached -l localhost:11211", None),
            ("memcached -l 127.0.0.1,0.0.0.0", Some("0.0.0.0")),
            ("memcached -l ::1234", Some("::1234")),
        ] {
            assert_eq!(settings(line).open_address.as_deref(), open, "{line}");
        }
    }
}
