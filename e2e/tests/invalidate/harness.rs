//! A running invalidator, and what tests ask about caches.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::process::free_port;
use testkit::server::holdall_path;
use testkit::{Kind, Launch, Server, Wire};

/// A cache server with everything that leases need.
pub(crate) fn cache() -> Server {
    Launch::new(Kind::Holdall).args(&["-o", "lease_interval=0"]).start()
}

/// An invalidator's files and its process.
pub(crate) struct Invalidator {
    folder: PathBuf,
    child: Option<Child>,
    pub(crate) status: SocketAddr,
}

impl Invalidator {
    /// Writes a configuration: the source's lines, the keys' lines, and clusters of one address
    /// each.
    pub(crate) fn new(source: &str, keys: &str, clusters: &[SocketAddr], more: &str) -> Self {
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

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(holdall_path());
        command.args(["invalidate", word, "-c"]).arg(self.folder.join("invalidate.toml"));
        command.stdin(Stdio::null());
        command
    }

    /// Starts it; answers when it reads the log.
    pub(crate) fn start(&mut self, more: &[&str]) {
        self.spawn(more);
        self.until("source_connected", |value| value == 1);
    }

    /// Starts it and does not wait.
    pub(crate) fn spawn(&mut self, more: &[&str]) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        self.child = Some(self.command("run").args(more).stderr(log).spawn().unwrap());
    }

    /// Runs it to its end, which must be a failure; answers what it said.
    pub(crate) fn refusal(&mut self, word: &str, more: &[&str]) -> String {
        let output = self.command(word).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "it did not fail: {said}");
        said
    }

    /// Waits for it to end by itself, with a failure.
    pub(crate) fn ended(&mut self) -> String {
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

    /// True while the process that was started has not ended.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Runs another command to its end; answers what it printed.
    pub(crate) fn run(&self, word: &str, more: &[&str]) -> String {
        let output = self.command(word).args(more).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{word} {more:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// CPU time that it has used.
    pub(crate) fn cpu(&self) -> Duration {
        let pid = self.child.as_ref().unwrap().id();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let words = stat.rsplit_once(')').unwrap().1.split_whitespace();
        let ticks: u64 = words.skip(11).take(2).map(|word| word.parse::<u64>().unwrap()).sum();
        // Linux counts a hundred a second in this file, whatever its own clock does.
        Duration::from_millis(ticks * 10)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint")
    }

    /// A number of its stats; none while it does not answer.
    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let mut wire = Wire::try_connect(self.status).ok()?;
        wire.try_send(b"stats\r\nquit\r\n").ok()?;
        let (text, _) = wire.read_to_end(Duration::from_secs(5));
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")))?;
        line.trim().parse().ok()
    }

    /// Waits until a number is as wanted.
    #[track_caller]
    pub(crate) fn until(&self, name: &str, is_wanted: impl Fn(u64) -> bool) {
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
            eprintln!("the invalidator said:\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Stores a value under each key.
pub(crate) fn fill(server: &Server, keys: &[&str]) {
    let mut wire = server.connect();
    for key in keys {
        wire.expect(format!("set {key} 0 0 1\r\nx\r\n").as_bytes(), b"STORED\r\n");
    }
}

/// The keys that are not there.
pub(crate) fn absent(server: &Server, keys: &[&str]) -> Vec<String> {
    let mut wire = server.connect();
    let is_absent = |key: &&&str| {
        wire.send(format!("mg {key}\r\n").as_bytes());
        wire.line() == "EN"
    };
    keys.iter().filter(is_absent).map(ToString::to_string).collect()
}

/// Waits until exactly these of the keys are gone, and are still the ones a moment later.
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

/// A process on a port that can be killed and started again.
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

    /// Stands still for so long.
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
