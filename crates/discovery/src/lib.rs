//! Servers that a configuration does not list, but for which it names a source.
//!
//! | pool | asked |
//! | --- | --- |
//! | `"elasticache:HOST:PORT"` | `config get cluster` |
//! | `"dns:NAME:PORT"` | every address of the name |
//! | `"srv:NAME"` | the SRV records of the name |
//! | `"etcd:HOST:PORT/PREFIX"` | the keys below the prefix |
//! | `"elasticache+tls:.."`, `"etcd+tls:.."` | the same by TLS |
//!
//! A discovered pool is text like a file's (`{"servers": [...]}`), so the rest of a configuration
//! does not change. The last result stays when the next query fails or finds nothing, and, with a
//! folder, survives restarts: an unavailable source removes no server.
#![forbid(unsafe_code)]

mod access;
mod asked;
mod deadline;
mod dns;
mod elasticache;
mod etcd;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hosts;
mod member;
mod names;
mod order;
mod resolver;

pub use access::{Access, AccessFiles};
pub use asked::Addresses;
pub use elasticache::answer;
pub use member::Member;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use routeconf::Sources;
use xxhash_rust::xxh3::xxh3_64;

use asked::Asked;
use deadline::Deadline;
use order::order;

/// The query of a source for the text after its name.
type Ask = fn(&str, &Asking<'_>) -> io::Result<Answer>;

/// The inputs of a query.
struct Asking<'a> {
    discovery: &'a Discovery,
    /// The source's last servers.
    before: Vec<Member>,
    deadline: Deadline,
}

const SOURCES: [(&str, Ask); 6] = [
    ("dns:", |name, asking| Ok(dns::addresses(name, asking.deadline)?.into())),
    ("elasticache:", |endpoint, asking| elasticache::servers(endpoint, asking.deadline)),
    ("elasticache+tls:", |endpoint, asking| {
        elasticache::servers_by_tls(endpoint, asking.discovery.access()?, asking.deadline)
    }),
    ("etcd:", |source, asking| etcd_servers(source, "http", asking)),
    ("etcd+tls:", |source, asking| etcd_servers(source, "https", asking)),
    ("srv:", |name, asking| Ok(dns::services(name, &asking.before, asking.deadline)?.into())),
];

fn etcd_servers(source: &str, scheme: &str, asking: &Asking<'_>) -> io::Result<Answer> {
    let access = asking.discovery.access()?;
    Ok(etcd::servers(source, scheme, access, asking.deadline)?.into())
}

/// The time limit of a source's whole answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Maximum bytes of a source's answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// The time for which an older version of a source's answer is refused. One node of a cluster may
/// lag; a recreated source starts to count again.
const OLDER_FOR: Duration = Duration::from_secs(60);

/// A source's answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Answer {
    /// Greater for later answers; 0 without versions.
    pub(crate) version: u64,
    pub(crate) members: Vec<Member>,
}

impl From<Vec<Member>> for Answer {
    fn from(members: Vec<Member>) -> Self {
        Self { version: 0, members }
    }
}

/// A source's last answer.
#[derive(Debug)]
struct Known {
    answer: Answer,
    /// The time of the answer.
    at: Instant,
}

impl Known {
    /// Returns true if this answer replaces it.
    fn is_replaced_by(&self, answer: &Answer, now: Instant) -> bool {
        answer.version >= self.answer.version || now.duration_since(self.at) >= OLDER_FOR
    }
}

/// The members found last, by the source's name.
#[derive(Debug, Default)]
pub struct Discovery {
    found: Mutex<BTreeMap<String, Known>>,
    asked: Asked,
    folder: Option<PathBuf>,
    /// The sources whose last answer is not in the folder, with the reasons.
    not_kept: Mutex<BTreeMap<String, String>>,
    /// Without files, it is created when a source first needs it: the public issuers, and no login.
    access: OnceLock<Access>,
}

/// Returns true if a file's name is a source's.
#[must_use]
pub fn is_source(name: &str) -> bool {
    SOURCES.iter().any(|(scheme, _)| name.starts_with(scheme))
}

impl Discovery {
    /// Also stores its results in `folder`.
    #[must_use]
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, ..Self::default() }
    }

    /// Uses these files for sources that require TLS or a login.
    ///
    /// # Errors
    ///
    /// The unusable file, and the reason.
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

    /// The source's current servers, or its last ones.
    ///
    /// # Errors
    ///
    /// If it is not a source, or has never named a server.
    pub fn servers(&self, source: &str) -> io::Result<Vec<Member>> {
        let (servers, outcome) = match self.ask(source) {
            Ok(servers) => (servers, Ok(())),
            Err(error) => match self.known(source) {
                Some(known) => (known, Err(error.to_string())),
                None => return Err(error),
            },
        };
        self.asked.sources.lock().insert(source.to_owned(), outcome);
        Ok(servers)
    }

    /// Reads a configuration with `read`, to which `files` gives the texts that are not a source's.
    /// `read` is called again when the sources that it names for the first time have been queried,
    /// all together, so that the waits for unavailable ones do not add up.
    pub fn read<T>(
        &self,
        files: &mut dyn Sources,
        mut read: impl FnMut(&mut dyn Sources) -> T,
    ) -> T {
        let failed = Mutex::new(BTreeMap::new());
        loop {
            let mut sources = Discovered {
                files: &mut *files,
                discovery: self,
                failed: &failed,
                new: BTreeSet::new(),
            };
            let found = read(&mut sources);
            let new: Vec<String> = sources.new.into_iter().collect();
            if new.is_empty() {
                return found;
            }
            asked::for_each(&new, |source| {
                if let Err(error) = self.servers(source) {
                    failed.lock().insert(source.clone(), error.to_string());
                }
            });
        }
    }

    /// The servers of the source's last query; `None` if it is new.
    fn latest(&self, source: &str) -> Option<Vec<Member>> {
        let is_asked = self.asked.sources.lock().contains_key(source);
        if is_asked { self.known(source) } else { None }
    }

    /// Every address of each of these hosts from the last lookup; a new host is looked up now.
    /// Other hosts are no longer looked up.
    pub fn addresses(&self, hosts: &BTreeSet<String>) -> BTreeMap<String, Addresses> {
        let mut found = self.asked.hosts.lock().clone();
        found.retain(|host, _| hosts.contains(host));
        let missing = hosts.iter().filter(|host| !found.contains_key(*host)).cloned();
        found.extend(asked::look_up(&missing.collect::<Vec<_>>()));
        self.asked.hosts.lock().clone_from(&found);
        found
    }

    /// Stops queries of all other sources.
    pub fn retain(&self, sources: &BTreeSet<&str>) {
        self.asked.sources.lock().retain(|source, _| sources.contains(&**source));
        self.not_kept.lock().retain(|source, _| sources.contains(&**source));
    }

    /// Queries all sources and looks up all hosts again. Readers of configurations do not wait for
    /// that.
    pub fn refresh(&self) {
        let sources: Vec<String> = self.asked.sources.lock().keys().cloned().collect();
        asked::for_each(&sources, |source| {
            let outcome = self.ask(source).map(drop).map_err(|error| error.to_string());
            // A source that is no longer needed is forgotten.
            self.asked.sources.lock().entry(source.clone()).and_modify(|known| *known = outcome);
        });
        let hosts: Vec<String> = self.asked.hosts.lock().keys().cloned().collect();
        let found = asked::look_up(&hosts);
        let mut known = self.asked.hosts.lock();
        for (host, addresses) in found {
            known.entry(host).and_modify(|known| *known = addresses);
        }
    }

    /// The outcome of the last query of each source. After an error, its servers are the previous
    /// ones.
    #[must_use]
    pub fn outcomes(&self) -> BTreeMap<String, Result<(), String>> {
        self.asked.sources.lock().clone()
    }

    /// The reason why an answer is not in the folder; `None` if all are, and without a folder.
    #[must_use]
    pub fn not_kept(&self) -> Option<String> {
        self.not_kept.lock().values().next().cloned()
    }

    /// Queries a source, and keeps its members. Returns the members then known.
    fn ask(&self, source: &str) -> io::Result<Vec<Member>> {
        let known =
            SOURCES.iter().find_map(|(scheme, ask)| Some((source.strip_prefix(scheme)?, ask)));
        let Some((what, ask)) = known else { return Err(io::Error::other("it is no source")) };
        let before = self.known(source).unwrap_or_default();
        let asking = Asking { discovery: self, before, deadline: Deadline::after(PATIENCE) };
        let mut answer = ask(what, &asking)?;
        if answer.members.is_empty() {
            return Err(io::Error::other("it names no server"));
        }
        order(&mut answer.members);
        Ok(self.keep(source, answer))
    }

    /// A source's last members, also from before this program's start.
    fn known(&self, source: &str) -> Option<Vec<Member>> {
        let known = self.found.lock().get(source).map(|known| known.answer.members.clone());
        known.or_else(|| self.kept(source))
    }

    /// Keeps a source's answer, unless it is older than the known one. Returns the members then
    /// known.
    fn keep(&self, source: &str, answer: Answer) -> Vec<Member> {
        let (mut found, now) = (self.found.lock(), Instant::now());
        let known = found.get(source);
        if let Some(known) = known.filter(|known| !known.is_replaced_by(&answer, now)) {
            return known.answer.members.clone();
        }
        let is_known = known.is_some_and(|known| known.answer.members == answer.members);
        let members = answer.members.clone();
        found.insert(source.to_owned(), Known { answer, at: now });
        let mut not_kept = self.not_kept.lock();
        if (!is_known || not_kept.contains_key(source))
            && let Some(path) = self.path(source)
        {
            // Written whole or not at all. Without it, only the next start suffers.
            let (new, lines) = (path.with_extension("new"), members.iter().map(Member::line));
            let text = lines.collect::<Vec<_>>().join("\n");
            match fs::write(&new, text).and_then(|()| fs::rename(&new, &path)) {
                Ok(()) => drop(not_kept.remove(source)),
                Err(error) => {
                    not_kept.insert(source.to_owned(), format!("{}: {error}", path.display()));
                }
            }
        }
        members
    }

    fn kept(&self, source: &str) -> Option<Vec<Member>> {
        let text = fs::read_to_string(self.path(source)?).ok()?;
        let servers: Option<Vec<Member>> = text.lines().map(Member::of_line).collect();
        let mut servers = servers.filter(|servers| !servers.is_empty())?;
        // The writer may have used another order.
        order(&mut servers);
        Some(servers)
    }

    fn path(&self, source: &str) -> Option<PathBuf> {
        Some(self.folder.as_ref()?.join(format!("{}.servers", file_name(source))))
    }
}

/// Maximum bytes of a source in a name of a file: file systems accept 255, with `.servers`.
const NAME_BYTES_MAX: usize = 247;

/// The source as a file name, distinct for distinct sources: bytes that are not portable in file
/// names are written `%3A`, and the end of a long name is a hash.
fn file_name(source: &str) -> String {
    let mut name = source.bytes().fold(String::new(), |mut name, byte| {
        if byte.is_ascii_alphanumeric() || b".-_".contains(&byte) {
            name.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(name, "%{byte:02X}");
        }
        name
    });
    if name.len() > NAME_BYTES_MAX {
        // No short name has this sign.
        let hash = format!("={:016x}", xxh3_64(source.as_bytes()));
        name.truncate(NAME_BYTES_MAX - hash.len());
        name.push_str(&hash);
    }
    name
}

/// The text of a new source until it has been queried. It is never used.
const UNKNOWN: &str = r#"{"servers": ["127.0.0.1:1"]}"#;

/// Files, and discovered pools.
struct Discovered<'a> {
    /// For names that are not sources.
    files: &'a mut dyn Sources,
    /// For names of sources.
    discovery: &'a Discovery,
    /// The sources that named no server, with the reasons.
    failed: &'a Mutex<BTreeMap<String, String>>,
    /// The sources that must be queried first.
    new: BTreeSet<String>,
}

impl Sources for Discovered<'_> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        if !is_source(name) {
            return self.files.read(name);
        }
        if let Some(reason) = self.failed.lock().get(name) {
            return Err(io::Error::other(reason.clone()));
        }
        let Some(members) = self.discovery.latest(name) else {
            self.new.insert(name.to_owned());
            return Ok((UNKNOWN.to_owned(), name.to_owned()));
        };
        // No member contains a character that JSON would escape.
        let list = |texts: Vec<String>| {
            texts.iter().map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ")
        };
        let hostnames: Option<Vec<String>> =
            members.iter().map(|member| member.name.clone()).collect();
        let names = hostnames
            .map_or_else(String::new, |names| format!(", \"hostnames\": [{}]", list(names)));
        let servers = list(members.iter().map(Member::server).collect());
        let tags = list(members.iter().map(Member::tag).collect());
        let text = format!("{{\"servers\": [{servers}]{names}, \"tags\": [{tags}]}}");
        Ok((text, name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// The sources known to `holdall check` and `holdall explain`, which do not query them.
    #[test]
    fn offline_commands_know_every_source() {
        let known = routeconf::cli::DISCOVERED.map(|(scheme, _)| scheme);
        assert_eq!(SOURCES.map(|(scheme, _)| scheme), known);
    }

    #[test]
    fn found_servers_persist_across_restarts() {
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

    /// The values for a hash.
    #[test]
    fn a_discovered_pool_has_the_names_of_its_servers() {
        let discovery = Discovery::default();
        let found = |lines: [&str; 2]| Answer {
            version: 0,
            members: lines.map(|line| Member::of_line(line).unwrap()).to_vec(),
        };
        let mut files = routeconf::MemorySources::default();
        let mut pool = |source, answer| {
            discovery.keep(source, answer);
            discovery.read(&mut files, |sources| sources.read(source).unwrap().0)
        };
        let named = pool("dns:no.such.name.invalid:1", found(["10.0.0.9:7 a", "[::1]:7 b"]));
        let text = r#"{"servers": ["10.0.0.9:7", "[::1]:7"], "hostnames": ["a", "b"], "tags": ["a:7", "b:7"]}"#;
        assert_eq!(named, text);
        let plain = pool("dns:no.such.host.invalid:1", found(["10.0.0.9:7 a", "[::1]:7"]));
        assert_eq!(plain, r#"{"servers": ["10.0.0.9:7", "[::1]:7"], "tags": ["a:7", "[::1]:7"]}"#);
    }

    /// None of the nodes answers before both are asked.
    #[test]
    fn new_sources_are_queried_together() {
        let nodes = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [one, other] =
            nodes.each_ref().map(|node| format!("elasticache:{}", node.local_addr().unwrap()));
        thread::spawn(move || {
            let clients = nodes.each_ref().map(|node| node.accept().unwrap().0);
            let answer = answer(1, &[Member::parse("10.0.0.1:7").unwrap()]);
            clients.each_ref().map(|mut client| client.write_all(&answer).unwrap())
        });
        let discovery = Discovery::default();
        let mut files = routeconf::MemorySources::default();
        let found = discovery.read(&mut files, |sources| {
            [&one, &other, "elasticache:no.port", "elasticache:no.port"]
                .map(|source| sources.read(source).map_err(|error| error.to_string()))
        });
        let text =
            r#"{"servers": ["10.0.0.1:7"], "hostnames": ["10.0.0.1"], "tags": ["10.0.0.1:7"]}"#;
        let found = found.each_ref().map(|one| one.as_ref().map(|(text, _)| &**text));
        let wrong = "\"no.port\" is not HOST:PORT".to_owned();
        assert_eq!(found, [Ok(text), Ok(text), Err(&wrong), Err(&wrong)]);
        let outcomes = BTreeMap::from([(one, Ok(())), (other, Ok(()))]);
        assert_eq!(discovery.outcomes(), outcomes);
    }

    #[test]
    fn every_source_has_a_separate_file() {
        let sources = [
            "dns:x.example.com:11211",
            "dns:x.example.com:11311",
            "srv:_m._tcp.a.com",
            "srv:_m._tcp.a.net",
            "etcd:10.0.0.1:2379/users/",
            "etcd:10.0.0.1:2379/users_",
            "etcd:10.0.0.1:2379/sessions/",
        ];
        let discovery = Discovery::new(Some(PathBuf::from("/kept")));
        let paths: BTreeSet<_> = sources
            .iter()
            .flat_map(|one| discovery.path(one))
            .map(|path| (path.with_extension("new"), path))
            .collect();
        assert_eq!(paths.len(), sources.len(), "{paths:?}");
        let path = discovery.path("etcd:10.0.0.1:2379/users/").unwrap();
        assert_eq!(path, PathBuf::from("/kept/etcd%3A10.0.0.1%3A2379%2Fusers%2F.servers"));
    }

    #[test]
    fn a_source_with_a_long_name_is_kept() {
        let folder = std::env::temp_dir().join(format!("discovery-long-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let discovery = Discovery::new(Some(folder.clone()));
        let endpoints = ["etcd.example.com:2379"; 20].join(",");
        let members = ["10.0.0.1:7", "10.0.0.2:7"].map(|one| vec![Member::parse(one).unwrap()]);
        let sources = ["a", "b"].map(|prefix| format!("etcd:{endpoints}/{prefix}/"));
        for (source, members) in sources.iter().zip(&members) {
            discovery.keep(source, Answer::from(members.clone()));
        }
        let again = Discovery::new(Some(folder.clone()));
        assert_eq!(sources.map(|source| again.kept(&source)), members.map(Some));
        assert_eq!(discovery.not_kept(), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_answer_that_cannot_be_kept_is_reported_and_retried() {
        let folder = std::env::temp_dir().join(format!("discovery-none-{}", std::process::id()));
        let discovery = Discovery::new(Some(folder.clone()));
        let answer = Answer::from(vec![Member::parse("10.0.0.1:7").unwrap()]);
        discovery.keep("dns:a:7", answer.clone());
        let why = discovery.not_kept().unwrap();
        assert!(why.starts_with(&format!("{}/dns%3Aa%3A7.servers: ", folder.display())), "{why}");
        fs::create_dir(&folder).unwrap();
        discovery.keep("dns:a:7", answer.clone());
        assert_eq!((discovery.not_kept(), discovery.kept("dns:a:7")), (None, Some(answer.members)));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_older_version_is_accepted_only_after_a_long_time() {
        let member = |server| vec![Member::parse(server).unwrap()];
        let of = |version| Answer { version, members: member("10.0.0.1:1") };
        let now = Instant::now();
        let known = Known { answer: of(12), at: now };
        assert!(known.is_replaced_by(&of(12), now) && known.is_replaced_by(&of(13), now));
        assert!(!known.is_replaced_by(&of(11), now));
        assert!(known.is_replaced_by(&of(1), now + OLDER_FOR));
        let discovery = Discovery::default();
        assert_eq!(discovery.keep("a", of(12)), member("10.0.0.1:1"));
        let older = Answer { version: 11, members: member("10.0.0.2:1") };
        assert_eq!(discovery.keep("a", older), member("10.0.0.1:1"));
        let newer = Answer { version: 13, members: member("10.0.0.2:1") };
        assert_eq!(discovery.keep("a", newer), member("10.0.0.2:1"));
    }

    #[test]
    fn sources_are_distinguished_from_files() {
        for source in
            ["dns:a:1", "srv:_x._tcp.y", "etcd:a:1/b", "etcd+tls:a:1/b", "elasticache+tls:a:1"]
        {
            assert!(is_source(source), "{source}");
        }
        assert!(!is_source("file:a") && !is_source("/etc/a.json"));
    }
}
