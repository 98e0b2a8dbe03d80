//! Children: each one dies with this process, runs without privileges, writes to a separate log,
//! and can be killed, held and restarted.
//!
//! Between fork and exec, little is safe, so a child first runs this program
//! (`holdall demo child`), which asks the kernel to be killed when its parent ends, and then
//! becomes the actual program ([`become_child`]).

use std::ffi::OsString;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use processes::{ChildGuard, free_port};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::net::TcpStream;

use crate::folder::Folder;
use crate::message::eprint_error;

/// The word after `holdall demo` with which a child starts.
pub(crate) const CHILD: &str = "child";

/// The time within which a program must accept connections.
const START_MAX: Duration = Duration::from_secs(180);

/// Becomes the program in the arguments: the parent's process id, the program, its arguments.
pub(crate) fn become_child(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent =
        arguments.next().and_then(|word| word.to_str()?.parse().ok()).and_then(Pid::from_raw);
    let Some(program) = arguments.next() else { return ExitCode::from(usage::EXIT_USAGE) };
    let is_tied = set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
    // A parent that ended earlier can no longer send the signal.
    if !is_tied || parent.is_none() || getppid() != parent {
        return ExitCode::FAILURE;
    }
    let error = Command::new(&program).args(arguments).exec();
    eprint_error(&format!("{}: {error}", program.to_string_lossy()));
    ExitCode::from(127)
}

/// A command that becomes a child as described above. Call it on a thread that lives as long as the
/// child: the kernel's "parent" is a thread.
pub(crate) fn command(folder: &Folder, program: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(["demo", CHILD, &std::process::id().to_string(), program]);
    // Ctrl-C in the terminal is only for this process.
    command.stdin(Stdio::null()).process_group(0).current_dir(folder.path());
    command.env("TMPDIR", folder.path());
    if let Some(user) = folder.user() {
        command.uid(user.uid).gid(user.gid);
    }
    command
}

/// Runs a program to its end.
pub(crate) fn done(command: &mut Command, what: &str) -> Result<()> {
    let output = command.output().with_context(|| what.to_owned())?;
    if !output.status.success() {
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        bail!("{what} failed: {}\n{}", said(&output.stdout), said(&output.stderr));
    }
    Ok(())
}

/// `127.0.0.1` and this port.
pub(crate) fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A listening program, with the data to restart it.
#[derive(Debug)]
pub(crate) struct Process {
    /// For people.
    pub(crate) name: String,
    /// Its listening address.
    pub(crate) address: SocketAddr,
    folder: Folder,
    words: Vec<String>,
    log: PathBuf,
    /// The signal that ends it: a database needs more time than SIGKILL gives.
    ending: Signal,
    child: Option<ChildGuard>,
}

impl Process {
    /// Starts `words` and waits until it accepts connections at `address`.
    pub(crate) async fn start(
        folder: &Folder,
        name: &str,
        words: Vec<String>,
        address: SocketAddr,
        ending: Signal,
    ) -> Result<Self> {
        let mut process = Self::prepared(folder, name, words, address);
        process.ending = ending;
        process.restart().await?;
        Ok(process)
    }

    /// One that has not been started yet.
    pub(crate) fn prepared(
        folder: &Folder,
        name: &str,
        words: Vec<String>,
        address: SocketAddr,
    ) -> Self {
        let log = folder.path().join(format!("{}.log", name.replace('/', "-")));
        let (name, folder, ending) = (name.to_owned(), folder.clone(), Signal::KILL);
        Self { name, address, folder, words, log, ending, child: None }
    }

    /// One of this program's own commands, with a port chosen here; in `words`, `{port}` stands for
    /// it.
    pub(crate) async fn holdall(folder: &Folder, name: &str, words: &[&str]) -> Result<Self> {
        let mut last = None;
        // Another program may take the port in between.
        for _ in 0..5 {
            let port = free_port()?;
            let words = ["/proc/self/exe"].iter().chain(words);
            let words = words.map(|word| word.replace("{port}", &port.to_string())).collect();
            match Self::start(folder, name, words, local(port), Signal::KILL).await {
                Ok(process) => return Ok(process),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("{name}: no free port")))
    }

    /// Starts it (again), and waits until it accepts connections.
    pub(crate) async fn restart(&mut self) -> Result<()> {
        self.spawn(&[])?;
        self.accepts().await
    }

    /// Starts it with additional arguments, only this time.
    pub(crate) fn spawn(&mut self, more: &[&str]) -> Result<()> {
        self.kill();
        let log = File::options().create(true).append(true).open(&self.log)?;
        let Some((program, words)) = self.words.split_first() else { bail!("no program") };
        let mut command = command(&self.folder, program);
        command.args(words).args(more).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().with_context(|| self.name.clone())?.into());
        Ok(())
    }

    /// Waits until it accepts connections.
    pub(crate) async fn accepts(&mut self) -> Result<()> {
        let end = Instant::now() + START_MAX;
        loop {
            if TcpStream::connect(self.address).await.is_ok() && self.is_running() {
                return Ok(());
            }
            if !self.is_running() || Instant::now() > end {
                bail!("{} does not start:\n{}", self.name, self.last_words());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// True until it ends; a stopped process counts as running.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.as_mut().is_some_and(ChildGuard::is_running)
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            // If it has ended, it needs no signal.
            let _ = child.signal(signal);
        }
    }

    /// Holds it: it does not answer, and its connections stay.
    pub(crate) fn hold(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it continue.
    pub(crate) fn release(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, and waits up to two seconds for that.
    pub(crate) fn stop(&mut self, how: Signal) {
        self.release();
        self.signal(how);
        let end = Instant::now() + Duration::from_secs(2);
        while self.is_running() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.kill();
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.child = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ending == Signal::KILL {
            self.kill();
        } else {
            self.stop(self.ending);
        }
    }
}
