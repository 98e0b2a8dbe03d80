//! Servers to measure: starts them on a free port and one core, queries their CPU time and memory,
//! and ends them.

use std::fmt;
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use processes::{ChildGuard, StartError, free_port, usage, wait_until_accepts};

/// The time within which a server must accept connections.
const START_MAX: Duration = Duration::from_secs(10);

/// A server to measure: one to start, or a running one.
#[derive(Clone, Debug)]
pub struct Server {
    /// Its name in the report.
    pub name: String,
    /// Its command, or its address.
    pub launch: Launch,
}

/// The address of a server, or the command that starts it.
#[derive(Clone, Debug)]
pub enum Launch {
    /// A running server: its CPU time and memory are unknown.
    Address(SocketAddr),
    /// Words of a command, in which `{port}` and `{memory}` (in MB) are replaced, and `{port+1}`
    /// and so on for a server with several ports.
    Command(Vec<String>),
}

impl FromStr for Server {
    type Err = anyhow::Error;

    /// `NAME=ADDRESS` or `NAME=COMMAND`.
    fn from_str(text: &str) -> Result<Self> {
        let Some((name, rest)) = text.split_once('=') else {
            bail!("{text:?} is not NAME=ADDRESS or NAME=COMMAND")
        };
        let launch = match rest.parse() {
            Ok(address) => Launch::Address(address),
            Err(_) => Launch::Command(words(rest)),
        };
        Ok(Self { name: name.to_owned(), launch })
    }
}

/// The words of a command, separated by white space; `""` and `''` are empty words. Other quoting
/// is not supported.
pub fn words(command: &str) -> Vec<String> {
    let word = |word: &str| if [r#""""#, "''"].contains(&word) { "" } else { word }.to_owned();
    command.split_whitespace().map(word).collect()
}

/// A running server; ended when dropped if it was started here.
#[derive(Debug)]
pub struct Running {
    /// Its name in the report.
    pub name: String,
    /// Its listening address.
    pub address: SocketAddr,
    /// Its other addresses, if it has several ports.
    pub others: Vec<SocketAddr>,
    child: Option<ChildGuard>,
}

impl Server {
    /// Its command, word by word; none for a server that was already running.
    #[must_use]
    pub fn words(&self) -> &[String] {
        match &self.launch {
            Launch::Address(_) => &[],
            Launch::Command(words) => words,
        }
    }

    /// This server with more words at the end of its command, under another name.
    #[must_use]
    pub fn with(&self, name: &str, words: &[&str]) -> Self {
        let mut launch = self.launch.clone();
        if let Launch::Command(all) = &mut launch {
            all.extend(words.iter().map(|&word| word.to_owned()));
        }
        Self { name: name.to_owned(), launch }
    }

    /// Starts it with `memory_mb` MB on `core` and waits until it accepts connections.
    ///
    /// # Errors
    ///
    /// When the command cannot be run, ends, or does not accept within ten seconds.
    pub fn start(&self, memory_mb: u32, core: Option<usize>) -> Result<Running> {
        // A server's output matters when it does not start.
        let mut printed = tempfile::tempfile()?;
        let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut others = Vec::new();
        let (address, child) = match &self.launch {
            Launch::Address(address) => (*address, None),
            Launch::Command(words) => {
                let port = free_port()?;
                let mut words: Vec<String> = words
                    .iter()
                    .map(|word| {
                        word.replace("{port}", &port.to_string())
                            .replace("{memory}", &memory_mb.to_string())
                    })
                    .collect();
                while let Some(name) = Some(format!("{{port+{}}}", others.len() + 1))
                    && words.iter().any(|word| word.contains(&name))
                {
                    let port = free_port()?;
                    words
                        .iter_mut()
                        .for_each(|word| *word = word.replace(&name, &port.to_string()));
                    others.push(here(port));
                }
                let pinned = core.map(|core| ["taskset".into(), "-c".into(), core.to_string()]);
                let mut words = pinned.into_iter().flatten().chain(words);
                let program = words.next().context("an empty command")?;
                let child = Command::new(&program)
                    .args(words)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(printed.try_clone()?)
                    .spawn()
                    .with_context(|| format!("{}: {program}", self.name))?;
                (here(port), Some(child.into()))
            }
        };
        let mut running = Running { name: self.name.clone(), address, others, child };
        if let Err(error) = running.wait_until_it_accepts() {
            let mut words = String::new();
            printed.rewind()?;
            printed.read_to_string(&mut words)?;
            return Err(if words.is_empty() {
                error
            } else {
                error.context(words.trim().to_owned())
            });
        }
        Ok(running)
    }
}

impl Running {
    fn wait_until_it_accepts(&mut self) -> Result<()> {
        let addresses = self.addresses();
        match wait_until_accepts(&addresses, self.child.as_mut(), START_MAX) {
            Ok(()) => Ok(()),
            Err(StartError::Ended(status)) => bail!("{} ended: {status}", self.name),
            Err(StartError::Silent(at)) => bail!("{} does not accept on {at}", self.name),
        }
    }

    /// All its listening addresses.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        std::iter::once(self.address).chain(self.others.iter().copied()).collect()
    }

    /// Its process; `None` if it was not started here.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(ChildGuard::id)
    }

    /// User and system CPU time of its threads and of its children's; `None` if it was not started
    /// here.
    #[must_use]
    pub fn cpu(&self) -> Option<Duration> {
        let own = |pid| usage::cpu_time_of_live_threads(pid).or_else(|| usage::cpu_time(pid));
        let pid = self.pid()?;
        let children = usage::children(pid).into_iter().filter_map(own).sum::<Duration>();
        Some(own(pid)? + children)
    }

    /// Resident memory in bytes; `None` if it was not started here.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        usage::rss_bytes(self.pid()?)
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_or_a_command() {
        let server: Server = "x=127.0.0.1:11211".parse().unwrap();
        assert!(matches!(server.launch, Launch::Address(address) if address.port() == 11211));
        let server: Server = "y=memcached -p {port} -o a=b".parse().unwrap();
        assert!(matches!(server.launch, Launch::Command(words) if words.last().unwrap() == "a=b"));
        assert!("memcached".parse::<Server>().is_err());
        let server: Server = "z=redis-server --save \"\" --dir ''".parse().unwrap();
        assert_eq!(server.words(), ["redis-server", "--save", "", "--dir", ""]);
    }

    #[test]
    fn the_error_contains_the_output_of_a_failed_server() {
        let words = ["sh", "-c", "echo no such memory >&2; exit 3"].map(str::to_owned).to_vec();
        let server = Server { name: "x".into(), launch: Launch::Command(words) };
        let error = format!("{:#}", server.start(1, None).unwrap_err());
        assert!(error.contains("no such memory") && error.contains("x ended"), "{error}");
    }
}
