//! Servers that a configuration does not list but says where to ask for: a pool `"elasticache:HOST:PORT"` or `"dns:NAME:PORT"`.
//!
//! A discovered pool is text like a file's (`{"servers": [...]}`), so nothing else of a configuration has to know. What was found last stays
//! when the next question fails or finds nothing, and, with a folder, outlives the program: a source that is away takes no server away.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use routeconf::{FileSources, Sources};

const ELASTICACHE: &str = "elasticache:";
const DNS: &str = "dns:";

/// How long a source has for each step of its answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of a source's answer at the most.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// What was found last, by the source's name.
#[derive(Debug, Default)]
pub(crate) struct Discovery {
    found: Mutex<BTreeMap<String, Vec<String>>>,
    folder: Option<PathBuf>,
}

/// Whether a file's name is a source's.
pub(crate) fn is_source(name: &str) -> bool {
    name.starts_with(ELASTICACHE) || name.starts_with(DNS)
}

impl Discovery {
    /// Keeps what it finds in `folder`, too.
    pub(crate) fn new(folder: Option<PathBuf>) -> Self {
        Self { found: Mutex::default(), folder }
    }

    /// The servers that the source names now, or named last.
    fn servers(&self, source: &str) -> io::Result<Vec<String>> {
        let error = match ask(source) {
            Ok(servers) if !servers.is_empty() => {
                self.keep(source, &servers);
                return Ok(servers);
            }
            Ok(_) => io::Error::other("it names no server"),
            Err(error) => error,
        };
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(source).cloned();
        known.or_else(|| self.kept(source)).ok_or(error)
    }

    fn keep(&self, source: &str, servers: &[String]) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let before = found.insert(source.to_owned(), servers.to_vec());
        if before.as_deref() == Some(servers) {
            return;
        }
        if let Some(path) = self.path(source) {
            // Written whole or not at all. Without it, only the next start is worse off.
            let new = path.with_extension("new");
            let _ = fs::write(&new, servers.join("\n")).and_then(|()| fs::rename(&new, &path));
        }
    }

    fn kept(&self, source: &str) -> Option<Vec<String>> {
        let text = fs::read_to_string(self.path(source)?).ok()?;
        let servers: Vec<String> = text.lines().map(str::to_owned).collect();
        (!servers.is_empty()).then_some(servers)
    }

    fn path(&self, source: &str) -> Option<PathBuf> {
        let plain =
            |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
        let name: String = source.chars().map(plain).collect();
        Some(self.folder.as_ref()?.join(name).with_extension("servers"))
    }
}

/// Files, and pools that are discovered.
pub(crate) struct Discovered<'a> {
    pub(crate) files: FileSources,
    pub(crate) discovery: &'a Discovery,
}

impl Sources for Discovered<'_> {
    fn read(&mut self, name: &str) -> io::Result<(String, String)> {
        if !is_source(name) {
            return self.files.read(name);
        }
        let servers = self.discovery.servers(name)?;
        // Names and addresses: nothing that JSON would have to escape gets through `is_plain`.
        let list: Vec<String> = servers.iter().map(|server| format!("\"{server}\"")).collect();
        Ok((format!("{{\"servers\": [{}]}}", list.join(", ")), name.to_owned()))
    }
}

fn ask(source: &str) -> io::Result<Vec<String>> {
    let mut servers = match source.strip_prefix(ELASTICACHE) {
        Some(endpoint) => elasticache(endpoint)?,
        None => dns(source.strip_prefix(DNS).unwrap_or(source))?,
    };
    // Whatever the order of an answer, keys stay where they are.
    servers.sort();
    servers.dedup();
    Ok(servers)
}

/// Every address of a name.
fn dns(name: &str) -> io::Result<Vec<String>> {
    Ok(name.to_socket_addrs()?.map(|address| address.to_string()).collect())
}

/// `config get cluster`, as Amazon ElastiCache answers it: a version, then `host|ip|port` for each server.
fn elasticache(endpoint: &str) -> io::Result<Vec<String>> {
    let address = endpoint.to_socket_addrs()?.next();
    let address = address.ok_or_else(|| io::Error::other("the name has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(b"config get cluster\r\n")?;
    let mut reader = BufReader::new(stream.take(ANSWER_BYTES_MAX));
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let bytes = line.trim_end().strip_prefix("CONFIG cluster ").and_then(|rest| {
        let (_flags, bytes) = rest.split_once(' ')?;
        bytes.parse::<u64>().ok().filter(|bytes| *bytes <= ANSWER_BYTES_MAX)
    });
    let Some(bytes) = bytes else {
        return Err(io::Error::other(format!("it answers {:?}", line.trim_end())));
    };
    let mut text = String::new();
    reader.take(bytes).read_to_string(&mut text)?;
    if text.len() as u64 != bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    members(&text).ok_or_else(|| io::Error::other(format!("it names {text:?}")))
}

fn members(text: &str) -> Option<Vec<String>> {
    let (version, servers) = text.split_once('\n')?;
    version.trim().parse::<u64>().ok()?;
    let member = |word: &str| {
        let mut parts = word.split('|');
        let (host, ip, port) = (parts.next()?, parts.next()?, parts.next()?);
        let port: u16 = port.parse().ok()?;
        let host = if ip.is_empty() { host } else { ip };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
        if host.is_empty() || !host.chars().all(is_plain) || parts.next().is_some() {
            return None;
        }
        Some(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    };
    servers.split_whitespace().map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_as_amazon_writes_them() {
        let text = "12\na.example.com|10.0.0.1|11211 b.example.com||11212 c|2001:db8::1|11213\n";
        let want = ["10.0.0.1:11211", "b.example.com:11212", "[2001:db8::1]:11213"];
        assert_eq!(members(text).unwrap(), want);
        assert_eq!(members("1\n\n"), Some(Vec::new()));
        for wrong in ["", "x\na|b|1", "1\na|b", "1\na|b|x", "1\na\"|\"|1", "1\na|b|1|2", "1\n||1"] {
            assert_eq!(members(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_was_found_outlives_the_program() {
        let folder = std::env::temp_dir().join(format!("discovery-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let discovery = Discovery::new(Some(folder.clone()));
        let found = discovery.servers("dns:localhost:7").unwrap();
        assert!(found.contains(&"127.0.0.1:7".to_owned()), "{found:?}");
        let again = Discovery::new(Some(folder.clone()));
        assert_eq!(again.kept("dns:localhost:7"), Some(found));
        assert_eq!(again.kept("dns:other:7"), None);
        assert!(again.servers("dns:no.such.name.invalid:7").is_err());
        fs::remove_dir_all(&folder).unwrap();
    }
}
