//! The built program, run as an operator runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod http;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tempfile::TempDir;
use testkit::eventually;

/// Maximum wait for anything that should happen at once.
pub const SOON: Duration = Duration::from_secs(10);

/// An empty directory that every user may write to, removed at the end.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        let mode = fs::Permissions::from_mode(0o777);
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), mode).unwrap();
        Self(folder)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }
}

/// `holdall` with these arguments, its streams captured.
pub fn holdall(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdall"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The same program under the name `memcached`.
pub fn memcached(arguments: &[&str]) -> Command {
    let mut command = holdall(arguments);
    command.arg0("/usr/bin/memcached");
    command
}

/// Runs to the end.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A server on ports of the system's choice, killed when dropped.
pub struct Running {
    child: Child,
    ports: PathBuf,
    log: PathBuf,
    scratch: Scratch,
}

impl Running {
    /// Starts `command` and waits until its ports are known. Its log goes to a file.
    pub fn start(mut command: Command) -> Self {
        let scratch = Scratch::new();
        let (ports, log) = (scratch.path("ports"), scratch.path("log"));
        command.env("MEMCACHED_PORT_FILENAME", &ports).stderr(fs::File::create(&log).unwrap());
        let child = command.spawn().unwrap();
        let mut running = Self { child, ports, log, scratch };
        eventually("the port file", || {
            if let Some(status) = running.child.try_wait().unwrap() {
                panic!("ended with {status}: {}", running.log());
            }
            running.ports.exists()
        });
        running
    }

    /// `holdall serve` with an ephemeral port and these arguments.
    pub fn serve(arguments: &[&str]) -> Self {
        let all = [&["serve", "-p", "-1", "-v"], arguments].concat();
        Self::start(holdall(&all))
    }

    /// The first port of this kind, such as `TCP INET`.
    pub fn port(&self, kind: &str) -> u16 {
        let text = fs::read_to_string(&self.ports).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(kind)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {kind} in {text:?}")).parse().unwrap()
    }

    pub fn connect(&self) -> testkit::Wire {
        testkit::Wire::connect(([127, 0, 0, 1], self.port("TCP INET")).into())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for an end with another cause.
    pub fn wait(&mut self) -> ExitStatus {
        eventually("the server's end", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap()
    }

    /// Ends it by SIGTERM, which must succeed.
    pub fn end(mut self) -> String {
        self.signal(Signal::TERM);
        let status = self.wait();
        assert!(status.success(), "{status}: {}", self.log());
        self.log()
    }

    /// A line of `/proc/PID/FILE` that starts with `name`, without it.
    pub fn proc_line(&self, file: &str, name: &str) -> String {
        proc_line(self.pid(), file, name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

pub fn proc_line(pid: u32, file: &str, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("no {name} in {file}")).trim().to_owned()
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}
