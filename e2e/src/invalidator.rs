//! A running `holdall invalidate` with its own configuration, checkpoint and log.
//!
//! Relaxed is enough for the counter of folders: it orders nothing.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use processes::{ChildGuard, usage};
use rustix::process::Signal;
use testkit::Wire;
use testkit::database::Mysqld;
use testkit::process::free_port;
use testkit::server::holdall_path;

/// An invalidator's files and its process.
#[derive(Debug)]
pub struct Invalidator {
    folder: PathBuf,
    child: Option<ChildGuard>,
    /// The address of its statistics.
    pub status: SocketAddr,
}

impl Invalidator {
    /// Writes a configuration: the lines of the source and of the keys, and clusters with one
    /// address each.
    #[must_use]
    pub fn new(source: &str, keys: &str, clusters: &[SocketAddr], more: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("holdall-invalidate-{}-{turn}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let status = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut text = format!(
            "checkpoint = \"{}\"\nstatus = \"{status}\"\n",
            folder.join("checkpoint").display()
        );
        text += &format!("[source]\n{source}\n[keys]\n{keys}\n{more}\n");
        for (at, address) in clusters.iter().enumerate() {
            text += &format!("[[cluster]]\nname = \"c{at}\"\nrouters = [\"{address}\"]\n");
        }
        fs::write(folder.join("invalidate.toml"), text).unwrap();
        Self { folder, child: None, status }
    }

    /// Appends lines to the configuration.
    pub fn configure(&self, lines: &str) {
        let path = self.folder.join("invalidate.toml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(path, text + lines).unwrap();
    }

    /// The text of the configuration.
    #[must_use]
    pub fn configuration(&self) -> String {
        fs::read_to_string(self.folder.join("invalidate.toml")).unwrap()
    }

    /// Replaces the configuration.
    pub fn set_configuration(&self, text: &str) {
        fs::write(self.folder.join("invalidate.toml"), text).unwrap();
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(holdall_path());
        command.args(["invalidate", word, "--config"]).arg(self.folder.join("invalidate.toml"));
        command.stdin(Stdio::null());
        command
    }

    /// Starts it, and returns when it reads the log.
    pub fn start(&mut self, more: &[&str]) {
        self.spawn(more);
        self.until("source_connected", |value| value == 1);
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self, more: &[&str]) {
        let log = File::options().create(true).append(true).open(self.log_path()).unwrap();
        self.child = Some(self.command("run").args(more).stderr(log).spawn().unwrap().into());
    }

    /// Runs it until it ends, which must be with a failure. Returns its output.
    pub fn refusal(&mut self, word: &str, more: &[&str]) -> String {
        let output = self.command(word).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "it did not fail: {said}");
        said
    }

    /// Runs another command with `--json`. Returns the printed document and whether the command
    /// succeeded.
    #[must_use]
    pub fn json(&self, word: &str) -> (String, bool) {
        let output = self.command(word).arg("--json").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said, "", "{word}: all is in the document");
        (String::from_utf8(output.stdout).unwrap(), output.status.success())
    }

    /// Waits until it ends by itself, with a failure.
    pub fn ended(&mut self) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        let status = loop {
            if let Some(status) = self.child.as_mut().unwrap().try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        };
        assert!(!status.success(), "it ended well");
        self.log()
    }

    /// True until the started process has ended.
    pub fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(ChildGuard::is_running)
    }

    /// Kills it, like a crash.
    pub fn kill(&mut self) {
        self.child = None;
    }

    /// Sends the process a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.as_ref().expect("it was started").signal(signal).expect("one's own child");
    }

    /// Its process id; none after a kill.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(ChildGuard::id)
    }

    /// Runs another command. Returns its output.
    pub fn run(&self, word: &str, more: &[&str]) -> String {
        let output = self.command(word).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{word} {more:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The CPU time that it has used.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        usage::cpu_time(self.pid().unwrap()).unwrap()
    }

    /// Its whole output.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The file of its output.
    #[must_use]
    pub fn log_path(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// The file of its checkpoint.
    #[must_use]
    pub fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    /// A number of its stats; none while it does not reply.
    #[must_use]
    pub fn stat(&self, name: &str) -> Option<u64> {
        let mut wire = Wire::try_connect(self.status).ok()?;
        wire.try_send(b"stats\r\nquit\r\n").ok()?;
        let (text, _) = wire.read_to_end(Duration::from_secs(5));
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")))?;
        line.trim().parse().ok()
    }

    /// The reply of its status port to an HTTP path; empty while there is none.
    #[must_use]
    pub fn page(&self, path: &str) -> String {
        let Ok(mut wire) = Wire::try_connect(self.status) else { return String::new() };
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        if wire.try_send(request.as_bytes()).is_err() {
            return String::new();
        }
        let (text, _) = wire.read_to_end(Duration::from_secs(5));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Waits until `is_wanted` accepts the number.
    #[track_caller]
    pub fn until(&self, name: &str, is_wanted: impl Fn(u64) -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !self.stat(name).is_some_and(&is_wanted) {
            assert!(Instant::now() < end, "{name} stays {:?}:\n{}", self.stat(name), self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Invalidator {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprint_log(&self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[allow(clippy::print_stderr, reason = "a failing test shows what its invalidator said")]
fn eprint_log(log: &str) {
    eprintln!("the invalidator said:\n{log}");
}

/// The source lines of a configuration: servers of MariaDB or MySQL, the first one in use.
#[must_use]
pub fn mysqld_source(databases: &[&Mysqld], more: &str) -> String {
    let servers: Vec<_> =
        databases.iter().map(|database| format!("\"{}\"", database.addr())).collect();
    let servers = servers.join(", ");
    format!(
        "kind = \"{}\"\nservers = [{servers}]\nuser = \"holdall\"\npassword = \"secret\"\nserver_id = 4001\n{more}",
        databases[0].brand().name()
    )
}
