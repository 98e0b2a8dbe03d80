//! Servers as processes: started on a free port and one core, asked for their CPU time and memory,
//! ended.

use std::fmt;
use std::fs;
use std::io::{Read, Seek};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::Path;
use std::process::{self, Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A server to measure: one to start, or one that runs.
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
    /// One that runs already: its CPU time and memory are not known.
    Address(SocketAddr),
    /// Words of a command, in which `{port}` and `{memory}` (in MB) are replaced, and `{port+1}`
    /// and so on, where the server has several ports.
    Command(Vec<String>),
}

/// The name of the server that looks nothing up.
pub const DO_NOTHING: &str = "do-nothing";

/// The name of the server that the others are compared with.
pub const MEMCACHED: &str = "memcached";

/// memcached, holdall and do-nothing, the last two from `folder`; one worker each. The first two
/// answer UDP as well if `with_udp`.
#[must_use]
pub fn usual(folder: &Path, with_udp: bool) -> Vec<Server> {
    let own = |name: &str| folder.join(name).display().to_string();
    let command = |words: String| Launch::Command(words.split(' ').map(str::to_owned).collect());
    let common = "-l 127.0.0.1 -p {port} -m {memory} -t 1 -c 1024 -u root";
    let udp = if with_udp { "{port}" } else { "0" };
    vec![
        Server { name: MEMCACHED.into(), launch: command(format!("memcached -U {udp} {common}")) },
        Server {
            name: "holdall".into(),
            launch: command(format!("{} serve -U {udp} {common}", own("holdall"))),
        },
        Server {
            name: DO_NOTHING.into(),
            launch: command(format!("{} {{port}}", own(DO_NOTHING))),
        },
    ]
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

/// The words of a command, which white space separates; `""` and `''` are empty words. No other
/// quoting is known.
pub fn words(command: &str) -> Vec<String> {
    let word = |word: &str| if [r#""""#, "''"].contains(&word) { "" } else { word }.to_owned();
    command.split_whitespace().map(word).collect()
}

/// A server that answers; ended when dropped if it was started here.
#[derive(Debug)]
pub struct Running {
    /// Its name in the report.
    pub name: String,
    /// The address that it listens at.
    pub address: SocketAddr,
    /// Its other addresses, if it has several ports.
    pub others: Vec<SocketAddr>,
    child: Option<Child>,
}

impl Server {
    /// Its command, word by word; none for one that runs already.
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

    /// Starts it with `memory_mb` MB on `core` and waits until it accepts.
    ///
    /// # Errors
    ///
    /// When the command cannot be run, ends, or does not accept within ten seconds.
    pub fn start(&self, memory_mb: u32, core: Option<usize>) -> Result<Running> {
        // What a server prints is of interest when it does not start.
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
                (here(port), Some(child))
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
        let end = Instant::now() + Duration::from_secs(10);
        let mut missing: Vec<SocketAddr> = self.addresses();
        loop {
            missing.retain(|address| TcpStream::connect(address).is_err());
            if missing.is_empty() {
                return Ok(());
            }
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok()?) {
                bail!("{} ended: {status}", self.name);
            }
            if Instant::now() > end {
                bail!("{} does not accept on {}", self.name, self.address);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Everywhere that it listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        std::iter::once(self.address).chain(self.others.iter().copied()).collect()
    }

    /// Its process; `None` when it was not started here.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// CPU time that all its threads, and those of its children, have used, user and system; `None`
    /// when it was not started here.
    #[must_use]
    pub fn cpu(&self) -> Option<Duration> {
        let own = |pid| cpu_by_schedstat(pid).or_else(|| cpu_by_stat(pid));
        let pid = self.pid()?;
        let children = children(pid).into_iter().filter_map(own).sum::<Duration>();
        Some(own(pid)? + children)
    }

    /// Resident memory in bytes; `None` when it was not started here.
    #[must_use]
    pub fn resident_bytes(&self) -> Option<u64> {
        let pid = self.pid()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.address)
    }
}

/// The processes that this one started and that run.
fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Nanoseconds on a core, summed over the threads, where the kernel keeps them.
fn cpu_by_schedstat(pid: u32) -> Option<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let line = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanos += line.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

/// utime and stime of `/proc/PID/stat`, in clock ticks.
fn cpu_by_stat(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// A port that was free a moment ago, another one at each call. It lies below those that the kernel
/// hands out by itself (from 32768 on): what one server is to listen on must not become a client's
/// port, or another server's, meanwhile.
///
/// # Errors
///
/// When none is free.
pub fn free_port() -> Result<u16> {
    const PORTS: Range<u16> = 15_000..31_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let begin = process::id().wrapping_mul(139);
    for _ in PORTS {
        let turn = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(13));
        let port = PORTS.start + u16::try_from(turn % u32::from(PORTS.end - PORTS.start))?;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port from {} to {} is free", PORTS.start, PORTS.end)
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
    fn what_a_server_that_does_not_start_printed_is_said() {
        let words = ["sh", "-c", "echo no such memory >&2; exit 3"].map(str::to_owned).to_vec();
        let server = Server { name: "x".into(), launch: Launch::Command(words) };
        let error = format!("{:#}", server.start(1, None).unwrap_err());
        assert!(error.contains("no such memory") && error.contains("x ended"), "{error}");
    }

    #[test]
    fn both_clocks_of_a_process_agree() {
        // A process of one thread: of threads that have ended, the one clock tells and the other
        // does not.
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; read end";
        let mut child = Command::new("sh")
            .args(["-c", count])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let by_stat = cpu_by_stat(child.id()).unwrap();
        let by_schedstat = cpu_by_schedstat(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(by_stat >= Duration::from_millis(20), "{by_stat:?}");
        if let Some(by_schedstat) = by_schedstat {
            let apart = by_schedstat.abs_diff(by_stat);
            assert!(apart < Duration::from_millis(60), "{by_stat:?} and {by_schedstat:?}");
        }
    }
}
