//! Requests to caches, and processes that tests kill.

use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use e2e::invalidator::Invalidator;
use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch, Server};

/// A cache server with all settings that leases need.
pub(crate) fn cache() -> Server {
    Launch::new(Kind::Holdall).args(&["-o", "lease_interval=0"]).start()
}

/// Stores a value under each key.
pub(crate) fn fill(server: &Server, keys: &[&str]) {
    let mut wire = server.connect();
    for key in keys {
        wire.expect(format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
}

/// The keys that the server does not have.
pub(crate) fn absent(server: &Server, keys: &[&str]) -> Vec<String> {
    let mut wire = server.connect();
    let is_absent = |key: &&&str| {
        wire.send(format!("mg {key}\r\n").as_bytes());
        wire.line() == "EN"
    };
    keys.iter().filter(is_absent).map(ToString::to_string).collect()
}

/// Waits until exactly these keys are gone, and checks the same a moment later.
#[track_caller]
pub(crate) fn until_absent(
    server: &Server,
    keys: &[&str],
    gone: &[&str],
    invalidator: &Invalidator,
) {
    let end = Instant::now() + Duration::from_secs(30);
    while absent(server, keys) != gone {
        assert!(
            Instant::now() < end,
            "gone: {:?}, wanted: {gone:?}\n{}",
            absent(server, keys),
            invalidator.log()
        );
        thread::sleep(Duration::from_millis(20));
    }
    thread::sleep(Duration::from_millis(200));
    assert_eq!(absent(server, keys), gone, "{}", invalidator.log());
}

/// A process with a port, which can be killed and restarted.
pub(crate) struct Process {
    args: Vec<String>,
    pub(crate) address: SocketAddr,
    child: Child,
}

impl Process {
    pub(crate) fn start(args: &[&str]) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut all: Vec<String> = args.iter().map(ToString::to_string).collect();
        all.extend(["-p".to_owned(), address.port().to_string()]);
        let child = spawn(&all);
        let process = Self { args: all, address, child };
        process.wait();
        process
    }

    fn wait(&self) {
        let end = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(self.address).is_err() {
            assert!(Instant::now() < end, "{:?} does not accept", self.args);
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Stops the process for this long.
    pub(crate) fn stand_still(&self, pause: Duration) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let signal = |signal| rustix::process::kill_process(pid, signal).unwrap();
        signal(rustix::process::Signal::STOP);
        thread::sleep(pause);
        signal(rustix::process::Signal::CONT);
    }

    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.args);
        self.wait();
    }

    pub(crate) fn kill_and_restart(&mut self, pause: Duration) {
        self.kill();
        thread::sleep(pause);
        self.restart();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(args: &[String]) -> Child {
    Command::new(holdall_path())
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}
