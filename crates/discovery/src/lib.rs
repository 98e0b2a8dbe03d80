//! Servers that a configuration does not list but says where to ask for.
//!
//! | pool | asked |
//! | --- | --- |
//! | `"elasticache:HOST:PORT"` | `config get cluster` |
//! | `"dns:NAME:PORT"` | every address of the name |
//! | `"srv:NAME"` | the SRV records of the name |
//! | `"etcd:HOST:PORT/PREFIX"` | the keys below the prefix |
//! | `"elasticache+tls:.."`, `"etcd+tls:.."` | the same by TLS |
//!
//! A discovered pool is text like a file's (`{"servers": [...]}`), so nothing else of a
//! configuration has to know. What was found last stays when the next question fails or finds
//! nothing, and, with a folder, outlives the program: a source that is away takes no server away.
#![forbid(unsafe_code)]

mod access;
mod dns;
mod elasticache;
mod etcd;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod member;

pub use access::{Access, AccessFiles};
pub use elasticache::answer;
pub use member::Member;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use routeconf::Sources;

/// How a source is asked for what follows its name.
type Ask = fn(&str, &Discovery) -> io::Result<Vec<Member>>;

const SOURCES: [(&str, Ask); 6] = [
    ("dns:", |name, _| dns::addresses(name)),
    ("elasticache:", |endpoint, _| elasticache::servers(endpoint)),
    ("elasticache+tls:", |endpoint, own| elasticache::servers_by_tls(endpoint, own.access()?)),
    ("etcd:", |source, own| etcd::servers(source, "http", own.access()?)),
    ("etcd+tls:", |source, own| etcd::servers(source, "https", own.access()?)),
    ("srv:", |name, _| dns::services(name)),
];

/// How long a source has for each step of its answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of a source's answer at the most.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The members found last, by the source's name.
#[derive(Debug, Default)]
pub struct Discovery {
    found: Mutex<BTreeMap<String, Vec<Member>>>,
    folder: Option<PathBuf>,
    /// Without files it is read when a source first needs it: the public issuers, and no login.
    access: OnceLock<Access>,
}

/// True if a file's name is a source's.
#[must_use]
pub fn is_source(name: &str) -> bool {
    SOURCES.iter().any(|(scheme, _)| name.starts_with(scheme))
}

impl Discovery {
    /// Keeps what it finds in `folder`, too.
    #[must_use]
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { found: Mutex::default(), folder, access: OnceLock::new() }
    }

    /// Uses these files for sources that want TLS or a login.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, and the reason.
    pub fn with_access(self, files: &AccessFiles) -> io::Result<Self> {
        if *files == AccessFiles::default() {
            return Ok(self);
        }
        Ok(Self { access: OnceLock::from(files.read()?), ..self })
    }

    fn access(&self) -> io::Result<&Access> {
        if let Some(access) = self.access.get() {
            return Ok(access);
        }
        let access = AccessFiles::default().read()?;
        Ok(self.access.get_or_init(|| access))
    }

    /// The servers that the source names now, or named last.
    ///
    /// # Errors
    ///
    /// When it is no source, or it names none and never did.
    pub fn servers(&self, source: &str) -> io::Result<Vec<Member>> {
        let error = match self.ask(source) {
            Ok(servers) if !servers.is_empty() => {
                self.keep(source, &servers);
                return Ok(servers);
            }
            Ok(_) => io::Error::other("it names no server"),
            Err(error) => error,
        };
        let known = self.found.lock().get(source).cloned();
        known.or_else(|| self.kept(source)).ok_or(error)
    }

    fn ask(&self, source: &str) -> io::Result<Vec<Member>> {
        let known =
            SOURCES.iter().find_map(|(scheme, ask)| Some((source.strip_prefix(scheme)?, ask)));
        let Some((what, ask)) = known else { return Err(io::Error::other("it is no source")) };
        let mut servers = ask(what, self)?;
        // Whatever the order of an answer, keys stay where they are.
        servers.sort();
        servers.dedup_by(|one, other| one.server() == other.server());
        Ok(servers)
    }

    fn keep(&self, source: &str, servers: &[Member]) {
        let mut found = self.found.lock();
        let before = found.insert(source.to_owned(), servers.to_vec());
        if before.as_deref() == Some(servers) {
            return;
        }
        if let Some(path) = self.path(source) {
            // Written whole or not at all. Without it, only the next start is worse off.
            let (new, lines) = (path.with_extension("new"), servers.iter().map(Member::line));
            let text = lines.collect::<Vec<_>>().join("\n");
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
        }
    }

    fn kept(&self, source: &str) -> Option<Vec<Member>> {
        let text = fs::read_to_string(self.path(source)?).ok()?;
        let servers: Option<Vec<Member>> = text.lines().map(Member::of_line).collect();
        servers.filter(|servers| !servers.is_empty())
    }

    fn path(&self, source: &str) -> Option<PathBuf> {
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
        let name: String = source.chars().map(plain).collect();
        Some(self.folder.as_ref()?.join(name).with_extension("servers"))
    }
}

/// Files, and pools that are discovered.
#[derive(Debug)]
pub struct Discovered<'a, F> {
    /// For names that are no source's.
    pub files: F,
    /// For those that are.
    pub discovery: &'a Discovery,
}

impl<F: Sources> Sources for Discovered<'_, F> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        if !is_source(name) {
            return self.files.read(name);
        }
        let members = self.discovery.servers(name)?;
        // Nothing that JSON would have to escape gets into a member.
        let list = |texts: Vec<String>| {
            texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
        };
        let names: Option<Vec<String>> = members.iter().map(|member| member.name.clone()).collect();
        let names =
            names.map_or_else(String::new, |names| format!(", \"hostnames\": [{}]", list(names)));
        let servers = list(members.iter().map(Member::server).collect());
        Ok((format!("{{\"servers\": [{servers}]{names}}}"), name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those that `holdall check` and `holdall explain` know without asking them.
    #[test]
    fn the_sources_are_those_that_are_known_offline() {
        let known = routeconf::cli::DISCOVERED.map(|(scheme, _)| scheme);
        assert_eq!(SOURCES.map(|(scheme, _)| scheme), known);
    }

    #[test]
    fn what_was_found_outlives_the_program() {
        let folder = std::env::temp_dir().join(format!("discovery-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let discovery = Discovery::new(Some(folder.clone()));
        let found = discovery.servers("dns:localhost:7").unwrap();
        assert!(found.iter().any(|one| one.server() == "127.0.0.1:7"), "{found:?}");
        let again = Discovery::new(Some(folder.clone()));
        assert_eq!(again.kept("dns:localhost:7"), Some(found));
        assert_eq!(again.kept("dns:other:7"), None);
        assert!(again.servers("dns:no.such.name.invalid:7").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn sources_are_told_from_files() {
        for source in
            ["dns:a:1", "srv:_x._tcp.y", "etcd:a:1/b", "etcd+tls:a:1/b", "elasticache+tls:a:1"]
        {
            assert!(is_source(source), "{source}");
        }
        assert!(!is_source("file:a") && !is_source("/etc/a.json"));
    }
}
