//! A separate Debian, booted by `systemd-nspawn`: a clean root with its service manager and an
//! isolated network.

use crate::failure::Failure;
use crate::steps::program;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The time limit for booting the system.
const BOOT_MAX: Duration = Duration::from_secs(120);

/// Conditions are checked ten times per second, at most this many times.
const LOOKS: u32 = 300;

/// A running system; it ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Container {
    nspawn: Child,
    /// The process id of its first process on this machine.
    init: u32,
}

impl Container {
    /// Starts the system in this root.
    pub(super) fn boot(root: &Path) -> Result<Self, Failure> {
        let mut boot = program("systemd-nspawn", ["--quiet", "--boot", "--private-network"]);
        boot.args(["--register=no", "--keep-unit", "-D"]).arg(root);
        boot.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let nspawn = boot.spawn().map_err(|error| Failure::command("container", &boot, error))?;
        let mut container = Self { nspawn, init: 0 };
        let begin = Instant::now();
        while begin.elapsed() < BOOT_MAX {
            container.init = container.first_process().unwrap_or_default();
            let state = container.words(&["systemctl", "is-system-running"]);
            let state = state.map(|output| output.stdout).unwrap_or_default();
            if container.init != 0 && (state == b"running\n" || state == b"degraded\n") {
                return Ok(container);
            }
            thread::sleep(Duration::from_millis(200));
        }
        Err(Failure::Release(format!("{} did not boot", root.display())))
    }

    fn first_process(&self) -> Option<u32> {
        children(self.nspawn.id())
    }

    fn words(&self, words: &[&str]) -> std::io::Result<Output> {
        inside(self.init).args(words).stdin(Stdio::null()).output()
    }

    /// A program of this machine in the system's network.
    pub(super) fn in_network(&self, path: &Path) -> Command {
        let mut command = program("nsenter", ["--net", "--target", &self.init.to_string(), "--"]);
        command.arg(path);
        command
    }

    /// Runs a `bash` script to its end and returns its output.
    pub(super) fn run(&self, script: &str) -> Result<String, Failure> {
        println!("  # {script}");
        let output = self.words(&["bash", "-c", script]);
        let output =
            output.map_err(|error| Failure::command("container", &inside(self.init), error))?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            return Ok(out);
        }
        let err = String::from_utf8_lossy(&output.stderr);
        Err(Failure::Release(format!("{script}: {}\n{out}{err}", output.status)))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // A system that has ended needs no end. It outlives nspawn, and ends with its first
        // process.
        if self.init != 0 {
            let _ = program("kill", ["-KILL", &self.init.to_string()]).status();
        }
        let _ = self.nspawn.kill();
        let _ = self.nspawn.wait();
    }
}

/// The one child of a process.
fn children(process: u32) -> Option<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    list.split_whitespace().next()?.parse().ok()
}

/// A command in all namespaces of a process.
fn inside(process: u32) -> Command {
    program("nsenter", ["--all", "--target", &process.to_string(), "--"])
}

/// A conversation with a port, as a script of bash.
pub(super) fn ask(port: u16, lines: &str) -> String {
    format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '{lines}quit\\r\\n' >&3; timeout 10 cat <&3")
}

/// A script that waits for the success of another script.
pub(super) fn until(script: &str) -> String {
    format!("for i in $(seq {LOOKS}); do ({script}) && exit; sleep 0.1; done; exit 1")
}

pub(super) fn expect(what: &str, is: &str, right: &str) -> Result<(), Failure> {
    if is == right {
        return Ok(());
    }
    let differs = |one: &str, other: &str| {
        let known: Vec<_> = other.lines().collect();
        one.lines().filter(|line| !known.contains(line)).map(|line| format!("\n  {line}")).collect()
    };
    let (more, less): (String, String) = (differs(is, right), differs(right, is));
    Err(Failure::Release(format!("{what}: besides what is right:{more}\nmissing:{less}")))
}

/// A script that adds `text` to a unit.
pub(super) fn drop_in(unit: &str, name: &str, text: &str) -> String {
    format!(
        "mkdir -p /etc/systemd/system/{unit}.service.d \
         && cat >/etc/systemd/system/{unit}.service.d/{name}.conf <<'END'\n{text}END\n\
         systemctl daemon-reload"
    )
}
