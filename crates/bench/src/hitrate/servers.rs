//! The servers that can be compared, by name: finds installed ones and reports missing ones.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::{Launch, Server};
use generator::spec::Protocol;

/// A server and its protocol.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its command.
    pub server: Server,
    /// Its protocol.
    pub protocol: Protocol,
}

/// Names of the known servers, in the order of reports.
pub const KNOWN: [&str; 8] = [
    "holdall",
    "holdall-bag",
    "holdall-lru",
    "memcached",
    "redis",
    "redis-lfu",
    "valkey",
    "valkey-lfu",
];

/// The server of this name, if it is installed; `own` is this program. In its command, `{port}`,
/// `{memory}`, `{threads}` and, if it has such a setting, `{group}` are placeholders.
fn known(name: &str, own: &Path) -> Option<Contender> {
    let own = own.display().to_string();
    let holdall = [&own, "serve", "-l", "127.0.0.1", "-p", "{port}", "-U", "0", "-m", "{memory}"];
    let with = |base: &[&str], more: &[&str]| -> Vec<String> {
        base.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let memcached = ["memcached", "-l", "127.0.0.1", "-p", "{port}", "-U", "0", "-m", "{memory}"];
    // Nothing is saved to disk automatically, and a save requested by a client does not go into the
    // working folder.
    let folder = std::env::temp_dir().display().to_string();
    let redis = |program: &str| {
        let policy = if name.ends_with("-lfu") { "allkeys-lfu" } else { "allkeys-lru" };
        let listen = [program, "--bind", "127.0.0.1", "--port", "{port}", "--save", ""];
        let keep = ["--maxmemory", "{memory}mb", "--maxmemory-policy", policy];
        let more = ["--io-threads", "{threads}", "--dir", &folder];
        with(&listen, &[&keep[..], &more].concat())
    };
    // memcached and holdall drop root privileges unless a flag keeps them.
    let workers = ["-t", "{threads}", "-R", "{group}", "-u", "root"];
    let (words, protocol) = match name {
        "holdall" => (with(&holdall, &workers), Protocol::Text),
        "holdall-bag" | "holdall-lru" => {
            let policy = name.replace("holdall-", "eviction=");
            (with(&holdall, &[&workers[..], &["-o", &policy]].concat()), Protocol::Text)
        }
        "memcached" => (with(&memcached, &workers), Protocol::Text),
        "redis" | "redis-lfu" => (redis("redis-server"), Protocol::Resp),
        "valkey" | "valkey-lfu" => (redis("valkey-server"), Protocol::Resp),
        _ => return None,
    };
    let is_there = words.first().is_some_and(|program| is_installed(program));
    let server = Server { name: name.to_owned(), launch: Launch::Command(words) };
    is_there.then_some(Contender { server, protocol })
}

/// The servers of these names, or all installed ones.
///
/// # Errors
///
/// When a requested one is unknown or not installed, or none is installed.
pub fn find(names: Option<&[String]>, own: &Path, threads: usize) -> Result<Vec<Contender>> {
    let ready = |contender: Contender| Contender {
        server: with_threads(&contender.server, threads, GROUP),
        ..contender
    };
    Ok(templates(names, own)?.into_iter().map(ready).collect())
}

/// Finds the installed contenders, or those of `names`. Their commands still have the placeholders
/// `{threads}` and `{group}`.
///
/// # Errors
///
/// When a requested one is unknown or not installed.
pub fn templates(names: Option<&[String]>, own: &Path) -> Result<Vec<Contender>> {
    let Some(names) = names else {
        return Ok(KNOWN.iter().filter_map(|name| known(name, own)).collect());
    };
    let mut found = Vec::new();
    for name in names {
        match known(name, own) {
            Some(contender) => found.push(contender),
            None if KNOWN.contains(&name.as_str()) => bail!("{name} is not installed"),
            None => bail!("{name:?} is none of {}", KNOWN.join(", ")),
        }
    }
    Ok(found)
}

/// The server with this number of threads, and `group` requests of a connection before it turns to
/// the next.
#[must_use]
pub fn with_threads(server: &Server, threads: usize, group: usize) -> Server {
    let (threads, group) = (threads.to_string(), group.to_string());
    let launch = match &server.launch {
        Launch::Address(address) => Launch::Address(*address),
        Launch::Command(words) => Launch::Command(
            words
                .iter()
                .map(|word| word.replace("{threads}", &threads).replace("{group}", &group))
                .collect(),
        ),
    };
    Server { name: server.name.clone(), launch }
}

/// This program by the name by which it was called, if `PATH` leads to it: command lines in reports
/// are then those that a reader types.
///
/// # Errors
///
/// When the system does not report the program's file.
pub fn own_program() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own file")?;
    let called = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_by_name = called.components().count() == 1
        && std::env::split_paths(&path)
            .map(|folder| folder.join(&called))
            .find(|file| file.is_file())
            .and_then(|file| file.canonicalize().ok())
            .is_some_and(|file| own.canonicalize().is_ok_and(|own| own == file));
    Ok(if is_by_name { called } else { own })
}

/// memcached's own `-R`.
pub const GROUP: usize = 20;

fn is_installed(program: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_server_is_named() {
        let own = Path::new("/nowhere/holdall");
        let wanted = |name: &str| vec![name.to_owned()];
        let error = find(Some(&wanted("holdall")), own, 1).unwrap_err().to_string();
        assert!(error.contains("holdall is not installed"), "{error}");
        let error = find(Some(&wanted("memcash")), own, 1).unwrap_err().to_string();
        assert!(error.contains("none of holdall, holdall-bag, holdall-lru, memcached"), "{error}");
        let all = find(None, own, 1).unwrap();
        assert!(all.iter().any(|one| one.server.name == "memcached"), "{all:?}");
    }
}
