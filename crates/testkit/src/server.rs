//! Real servers as child processes, each on a separate loopback port.
//!
//! `E2E_SERVER` chooses the server that a test runs against: `holdall` (the default) or
//! `memcached` (Debian's, the program to be replaced: a test that fails there too is wrong about
//! memcached). `HOLDALL_BIN` names the binary; without it, `release/holdall` and then
//! `debug/holdall` beside the test's own target folder. Where that one is static,
//! `HOLDALL_DYNAMIC_BIN` names one that libraries can be preloaded into. `MEMCACHED_BIN` names
//! another memcached than the one in the path. `MEMCACHED_ADDR` names a server that already runs;
//! tests that must restart or measure their server refuse it. `E2E_FLAGS` are given to every
//! holdall besides the test's own.
//!
//! Relaxed is enough for the counter of logs: only the number counts.

use crate::process::{self, free_port};
use crate::start_error::StartError;
use crate::wire::{End, Wire};
use processes::ChildGuard;
use std::env;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The programs that a test can run against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// This project's server.
    Holdall,
    /// Debian's memcached, found in the path, or the one that `MEMCACHED_BIN` names.
    Memcached,
}

impl Kind {
    /// The program under test, from the environment.
    #[must_use]
    pub fn under_test() -> Self {
        match env::var("E2E_SERVER").as_deref() {
            Ok("memcached") => Self::Memcached,
            Ok("holdall") | Err(_) => Self::Holdall,
            Ok(other) => panic!("E2E_SERVER is {other:?}: neither holdall nor memcached"),
        }
    }
}

/// The start of a server: its command line, its environment, and its wrapper programs.
#[derive(Debug, Clone)]
pub struct Launch {
    kind: Kind,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    under: Vec<String>,
    is_preloaded: bool,
    /// The port to connect to, if it is not the first one.
    plain_port: Option<u16>,
}

impl Launch {
    /// The server under test, without options.
    #[must_use]
    pub fn under_test() -> Self {
        Self::new(Kind::under_test())
    }

    /// A server of this kind.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            args: Vec::new(),
            envs: Vec::new(),
            under: Vec::new(),
            is_preloaded: false,
            plain_port: None,
        }
    }

    /// Adds memcached options, which both programs understand.
    #[must_use]
    pub fn args(mut self, args: &[&str]) -> Self {
        self.args.extend(args.iter().map(ToString::to_string));
        self
    }

    /// Sets a variable of the server's environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.envs.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Loads a library into the server before all others, to replace functions of the system.
    #[must_use]
    pub fn preload(mut self, library: &str) -> Self {
        self.is_preloaded = true;
        self.env("LD_PRELOAD", library)
    }

    /// Runs the server under another program, which must replace itself by the server (`prlimit`)
    /// or detach (`strace -D`), so that the child's pid is the server's.
    #[must_use]
    pub fn under(mut self, command: &[&str]) -> Self {
        self.under.extend(command.iter().map(ToString::to_string));
        self
    }

    /// Connects to this port, where the arguments make it listen without TLS.
    #[must_use]
    pub const fn plain_port(mut self, port: u16) -> Self {
        self.plain_port = Some(port);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// If it does not answer within 20 seconds; the message contains its output.
    #[must_use]
    pub fn start(self) -> Server {
        let mut last = String::new();
        for _ in 0..5 {
            let port = free_port();
            match self.start_on(port) {
                Ok(server) => return server,
                Err(error) => last = error.to_string(),
            }
            if !last.to_ascii_lowercase().contains("in use") {
                break;
            }
        }
        panic!("{:?} {:?} did not start:\n{last}", self.kind, self.args);
    }

    fn start_on(&self, port: u16) -> Result<Server, StartError> {
        let addr = self.addr(port);
        let is_binary = self.args.iter().any(|arg| arg == "-S");
        self.start_until(port, |_| if is_binary { answers_packets(addr) } else { answers(addr) })
    }

    /// The address to connect to, of a server on this port.
    fn addr(&self, port: u16) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.plain_port.unwrap_or(port)))
    }

    /// Starts a server that takes over from `running`, and waits until it serves.
    ///
    /// # Errors
    ///
    /// With its log, if it ends instead, or does not take over within 20 seconds.
    pub fn succeed(self, running: &Server) -> Result<Server, StartError> {
        let is_serving =
            |log: &Path| fs::read_to_string(log).is_ok_and(|text| text.contains("listening on"));
        self.args(&["--takeover"]).start_until(running.port, is_serving)
    }

    fn start_until(&self, port: u16, is_up: impl Fn(&Path) -> bool) -> Result<Server, StartError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let log_name = format!("testkit-{}-{port}-{turn}.log", std::process::id());
        let log_path = env::temp_dir().join(log_name);
        let log = File::create(&log_path)?;
        let child =
            self.command(port).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let mut child = ChildGuard::from(child);
        let addr = self.addr(port);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let ended = child.try_wait()?;
            if ended.is_none() && is_up(&log_path) {
                let launch = Some(self.clone());
                return Ok(Server { child: Some(child), addr, port, log_path, launch });
            }
            if ended.is_some() || Instant::now() > deadline {
                child.kill();
                let log = fs::read_to_string(&log_path).unwrap_or_default();
                let _ = fs::remove_file(&log_path);
                return Err(match ended {
                    Some(status) => StartError::Ended { status, log },
                    None => StartError::NotServing { log },
                });
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn command(&self, port: u16) -> Command {
        let mut words: Vec<String> = self.under.clone();
        match self.kind {
            Kind::Holdall => {
                let program = if self.is_preloaded { dynamic_path() } else { holdall_path() };
                words.extend([program.display().to_string(), "serve".into()]);
            }
            // memcached refuses to run as root without a user's name.
            Kind::Memcached => {
                let program = env::var("MEMCACHED_BIN").unwrap_or_else(|_| "memcached".into());
                words.extend([program, "-u".into(), "root".into()]);
            }
        }
        words.extend(["-p".into(), port.to_string(), "-l".into(), "127.0.0.1".into()]);
        words.extend(self.args.iter().cloned());
        if self.kind == Kind::Holdall
            && let Ok(more) = env::var("E2E_FLAGS")
        {
            words.extend(more.split_whitespace().map(str::to_owned));
        }
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.envs.iter().cloned());
        command
    }
}

/// A running server, ended when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// None if the server ran before the test.
    child: Option<ChildGuard>,
    addr: SocketAddr,
    /// The argument of `-p`.
    port: u16,
    log_path: PathBuf,
    /// None if the server ran before the test.
    launch: Option<Launch>,
}

impl Server {
    /// The server under test with these options, or the one at `MEMCACHED_ADDR`.
    #[must_use]
    pub fn under_test(args: &[&str]) -> Self {
        if let Ok(text) = env::var("MEMCACHED_ADDR") {
            let addr: SocketAddr = text.parse().expect("MEMCACHED_ADDR is an address and a port");
            let port = addr.port();
            return Self { child: None, addr, port, log_path: PathBuf::new(), launch: None };
        }
        Launch::under_test().args(args).start()
    }

    /// Debian's memcached with these options.
    #[must_use]
    pub fn memcached(args: &[&str]) -> Self {
        Launch::new(Kind::Memcached).args(args).start()
    }

    /// This project's server with these options.
    #[must_use]
    pub fn holdall(args: &[&str]) -> Self {
        Launch::new(Kind::Holdall).args(args).start()
    }

    /// The kind of this program.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.launch.as_ref().map_or_else(Kind::under_test, |launch| launch.kind)
    }

    /// Its listening address.
    #[must_use]
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Its process.
    ///
    /// # Panics
    ///
    /// If the server already ran (`MEMCACHED_ADDR`).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("this test needs a server of its own, not MEMCACHED_ADDR").id()
    }

    /// A new connection to it.
    #[must_use]
    pub fn connect(&self) -> Wire {
        Wire::connect(self.addr)
    }

    /// Current resident memory in bytes.
    #[must_use]
    pub fn rss_bytes(&self) -> u64 {
        process::rss_bytes(self.pid())
    }

    /// Peak resident memory so far, in bytes.
    #[must_use]
    pub fn peak_rss_bytes(&self) -> u64 {
        process::peak_rss_bytes(self.pid())
    }

    /// Processor time used so far.
    #[must_use]
    pub fn cpu_time(&self) -> Duration {
        process::cpu_time(self.pid())
    }

    /// One number of `stats`; panics if there is none of that name.
    #[must_use]
    pub fn stat(&self, name: &str) -> u64 {
        let stats = self.stats("");
        let found = stats.iter().find(|(key, _)| key == name);
        let (_, value) = found.unwrap_or_else(|| panic!("no stat {name}"));
        value.parse().unwrap_or_else(|_| panic!("stat {name} is {value:?}, not a number"))
    }

    /// The names and values of `stats <group>`; the empty group is the general one.
    #[must_use]
    pub fn stats(&self, group: &str) -> Vec<(String, String)> {
        let mut wire = self.connect();
        wire.send(format!("stats {group}").trim_end().as_bytes());
        wire.send(b"\r\n");
        let mut stats = Vec::new();
        loop {
            let line = wire.line();
            if line == "END" {
                return stats;
            }
            let mut words = line.splitn(3, ' ');
            assert_eq!(words.next(), Some("STAT"), "in stats {group}: {line:?}");
            let name = words.next().unwrap_or_default().to_owned();
            stats.push((name, words.next().unwrap_or_default().to_owned()));
        }
    }

    /// Panics unless the process lives and a new connection stores and fetches within five seconds.
    #[track_caller]
    pub fn assert_alive(&mut self, after: &str) {
        if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().unwrap()) {
            panic!("server ended with {status} after {after}:\n{}", self.log());
        }
        let mut wire = Wire::try_connect(self.addr)
            .unwrap_or_else(|error| panic!("no connection after {after}: {error}\n{}", self.log()));
        let want: &[u8] = b"STORED\r\nVALUE probe 0 2\r\nok\r\nEND\r\n";
        let count = |wire: &mut Wire| {
            wire.try_send(b"stats\r\n").unwrap();
            let (stats, _) = wire.read_until_or_end(b"END\r\n", Duration::from_secs(5));
            let stats = String::from_utf8_lossy(&stats).into_owned();
            let value = stats.lines().find_map(|line| line.strip_prefix("STAT cmd_flush "));
            value.and_then(|value| value.parse::<u64>().ok())
        };
        let mut flushes = count(&mut wire);
        loop {
            wire.try_send(b"set probe 0 0 2\r\nok\r\nget probe\r\n").unwrap();
            let (reply, end) = wire.read_until_or_end(b"END\r\n", Duration::from_secs(5));
            if reply == want {
                return;
            }
            // A client may have flushed the new item; nothing else excuses a miss.
            let before = std::mem::replace(&mut flushes, count(&mut wire));
            assert!(
                reply == b"STORED\r\nEND\r\n" && flushes > before,
                "no service after {after}: {} ({end:?})\n{}",
                crate::wire::show(&reply),
                self.log()
            );
        }
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let child = self.child.as_ref().expect("this test needs a server of its own");
        child.signal(signal).expect("one's own child");
    }

    /// Waits for the process to end; returns whether it succeeded, and its output.
    pub fn wait(&mut self) -> (bool, String) {
        let child = self.child.as_mut().expect("this test needs a server of its own");
        let status = child.wait().expect("one's own child");
        (status.success(), fs::read_to_string(&self.log_path).unwrap_or_default())
    }

    /// Ends the process at once, as a crash does.
    pub fn kill(&mut self) {
        self.signal(rustix::process::Signal::KILL);
        self.wait();
    }

    /// Starts it again after [`Self::kill`], with the same options and port, and waits until it
    /// answers.
    ///
    /// # Errors
    ///
    /// With its log, if it ends instead, or does not answer within 20 seconds.
    pub fn restart(&mut self) -> Result<(), StartError> {
        let launch = self.launch.clone().expect("this test needs a server of its own");
        *self = launch.start_on(self.port)?;
        Ok(())
    }

    /// The file of its output since its start.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log_path
    }

    /// Ends the process in order; returns its output.
    ///
    /// # Panics
    ///
    /// If its exit status reports an error.
    pub fn end(&mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let (is_well, log) = self.wait();
        assert!(is_well, "it did not end well:\n{log}");
        log
    }

    /// True while the process lives.
    pub fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_none_or(ChildGuard::is_running)
    }

    /// The end of the server's output.
    #[must_use]
    pub fn log(&self) -> String {
        let log = fs::read(&self.log_path).unwrap_or_default();
        let tail = log.len().saturating_sub(4000);
        String::from_utf8_lossy(&log[tail..]).into_owned()
    }

    /// Waits until the log's end contains `text`: a separate thread writes a running server's
    /// lines.
    ///
    /// # Panics
    ///
    /// If it does not within ten seconds.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} is not in the log:\n{}", self.log());
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill();
            if thread::panicking() {
                eprintln_log(&self.log_path);
            }
            let _ = fs::remove_file(&self.log_path);
        }
    }
}

#[allow(clippy::print_stderr, reason = "a failing test shows what its server printed")]
fn eprintln_log(path: &Path) {
    let log = fs::read(path).unwrap_or_default();
    let tail = log.len().saturating_sub(2000);
    eprintln!("--- the server printed:\n{}---", String::from_utf8_lossy(&log[tail..]));
}

fn answers(addr: SocketAddr) -> bool {
    let Ok(mut wire) = Wire::try_connect(addr) else { return false };
    if wire.try_send(b"version\r\n").is_err() {
        return false;
    }
    // A server that requires a login first answers with an error line, so it is up. The same
    // applies to one that closes at once: it uses only the binary protocol.
    let end = wire.read_until_or_end(b"\r\n", Duration::from_secs(2)).1;
    matches!(end, End::Found | End::Closed)
}

/// True if a server that uses only the binary protocol, perhaps after a login, answers the packet
/// of version.
fn answers_packets(addr: SocketAddr) -> bool {
    const VERSION: [u8; 24] = {
        let mut packet = [0; 24];
        (packet[0], packet[1]) = (0x80, 0x0b);
        packet
    };
    let Ok(mut wire) = Wire::try_connect(addr) else { return false };
    if wire.try_send(&VERSION).is_err() {
        return false;
    }
    let end = wire.read_until_or_end(&[0x81], Duration::from_secs(2)).1;
    matches!(end, End::Found | End::Closed)
}

/// The binary under test: `HOLDALL_BIN`, or the one built with this test.
#[must_use]
pub fn holdall_path() -> PathBuf {
    if let Some(path) = env::var_os("HOLDALL_BIN") {
        return PathBuf::from(path);
    }
    let own = env::current_exe().expect("a test knows its own path");
    own.ancestors()
        .flat_map(|folder| ["release/holdall", "debug/holdall"].map(|name| folder.join(name)))
        .find(|path| path.is_file())
        .unwrap_or_else(|| {
            panic!("no holdall beside {}: run `cargo build --release -p holdall`", own.display())
        })
}

/// The binary that libraries can be preloaded into.
fn dynamic_path() -> PathBuf {
    env::var_os("HOLDALL_DYNAMIC_BIN").map_or_else(holdall_path, PathBuf::from)
}
