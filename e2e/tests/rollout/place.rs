//! Restarted processes, and the addresses for their clients and operators.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use e2e::folder::Folder;
use processes::ChildGuard;
use rustix::process::Signal;
use testkit::eventually;
use testkit::process::free_port;
use testkit::server::holdall_path;

/// Maximum wait for anything that should happen at once.
pub(super) const SOON: Duration = Duration::from_secs(30);

/// An empty folder that every user may write to.
pub(super) fn folder(name: &str) -> Folder {
    let folder = Folder::new(&format!("rollout-{name}"));
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// The addresses of one process: for clients, and for operators.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) clients: SocketAddr,
    pub(super) operators: SocketAddr,
}

impl Place {
    pub(super) fn new() -> Self {
        Self { clients: local(), operators: local() }
    }

    /// A place whose clients connect to this listener.
    pub(super) fn of(listener: &TcpListener) -> Self {
        Self { clients: listener.local_addr().unwrap(), operators: local() }
    }

    pub(super) fn is_ready(&self) -> bool {
        status(self.operators, "/readyz") == Some(200)
    }
}

/// An unused address on loopback.
pub(super) fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// The status of a page; `None` if no process answers.
pub(super) fn status(address: SocketAddr, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

/// A process, killed when dropped.
pub(super) struct Process(ChildGuard);

impl Process {
    pub(super) fn spawn(mut command: Command) -> Self {
        Self(command.spawn().unwrap().into())
    }

    /// Starts it and waits until it is ready.
    pub(super) fn start(folder: &Folder, command: Command, place: &Place) -> Self {
        let mut process = Self::spawn(command);
        eventually("readiness", || {
            assert!(process.is_running(), "it ended: {}", log(folder));
            place.is_ready()
        });
        process
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.0.is_running()
    }

    /// Ends it with one SIGTERM.
    pub(super) fn end(self) {
        self.0.signal(Signal::TERM).unwrap();
        self.ended();
    }

    /// Waits for a successful exit.
    pub(super) fn ended(mut self) {
        eventually("the end", || !self.0.is_running());
        assert!(self.0.wait().unwrap().success());
    }
}

/// The program under test; its output is appended to the file `log` of the folder.
pub(super) fn holdall(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = Command::new(holdall_path());
    let log = File::options().create(true).append(true).open(folder.path().join("log"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.unwrap());
    command
}

/// Starts a program with up to three sockets, as systemd does by socket activation.
pub(super) fn with_sockets(folder: &Folder, command: &Command, sockets: Vec<OwnedFd>) -> Command {
    let mut shell = Command::new("sh");
    // They arrive as the standard streams, and move to the descriptors that systemd uses.
    let moves = &["3<&0", "4<&1", "5<&2"][..sockets.len()];
    let activate = format!(
        "exec {} 0</dev/null 1>/dev/null 2>>\"$LOG\"; \
         LISTEN_FDS={} LISTEN_PID=$$ exec \"$0\" \"$@\"",
        moves.join(" "),
        moves.len()
    );
    shell.arg("-c").arg(activate).arg(command.get_program()).args(command.get_args());
    shell.env("LOG", folder.path().join("log"));
    let mut sockets = sockets.into_iter().map(Stdio::from);
    let mut next = || sockets.next().unwrap_or_else(Stdio::null);
    shell.stdin(next()).stdout(next()).stderr(next());
    shell
}

/// The last output of the program under test.
pub(super) fn log(folder: &Folder) -> String {
    let text = fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    text.lines().rev().take(20).collect::<Vec<_>>().join("\n")
}
