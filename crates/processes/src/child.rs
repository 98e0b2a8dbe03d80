//! A child that ends with its guard, and the wait for its start.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);

/// A child process that is killed, and waited for, when this is dropped.
#[derive(Debug)]
pub struct ChildGuard(Child);

impl From<Child> for ChildGuard {
    fn from(child: Child) -> Self {
        Self(child)
    }
}

impl ChildGuard {
    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// The exit status; none while the process runs. A stopped process counts as running.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// True while the process runs, also while a signal has stopped it.
    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.0.wait()
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Fails when the process has ended and was waited for.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        kill_process(Pid::from_child(&self.0), signal).map_err(io::Error::from)
    }

    /// Kills the process and waits for its end. It has no effect on one that has ended.
    pub fn kill(&mut self) {
        // Both fail only for a process that has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The reason why a child does not accept connections.
#[derive(Debug)]
pub enum StartError {
    /// It ended with this status.
    Ended(ExitStatus),
    /// It does not accept at this address in time.
    Silent(SocketAddr),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended(status) => write!(f, "it ended: {status}"),
            Self::Silent(address) => write!(f, "it does not accept on {address}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Waits until all of these addresses accept connections. `child` is `None` for a server that was
/// started elsewhere.
///
/// # Errors
///
/// Fails when the child ends before that, or `within` passes.
pub fn wait_until_accepts(
    addresses: &[SocketAddr],
    mut child: Option<&mut ChildGuard>,
    within: Duration,
) -> Result<(), StartError> {
    let end = Instant::now() + within;
    let mut missing = addresses.to_vec();
    loop {
        missing.retain(|address| TcpStream::connect(address).is_err());
        let Some(&next) = missing.first() else { return Ok(()) };
        if let Some(status) = child.as_mut().and_then(|child| child.try_wait().ok()?) {
            return Err(StartError::Ended(status));
        }
        if Instant::now() > end {
            return Err(StartError::Silent(next));
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

    use std::net::{Ipv4Addr, TcpListener};
    use std::path::Path;
    use std::process::Command;

    use super::*;

    fn sleeper() -> ChildGuard {
        Command::new("sleep").arg("1000").spawn().unwrap().into()
    }

    #[test]
    fn a_child_ends_with_its_guard() {
        let mut child = sleeper();
        let folder = format!("/proc/{}", child.id());
        assert!(child.is_running() && Path::new(&folder).exists());
        drop(child);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn a_stopped_child_is_running_and_a_killed_one_is_not() {
        let mut child = sleeper();
        child.signal(Signal::STOP).unwrap();
        assert!(child.is_running());
        child.kill();
        assert!(!child.is_running());
        child.kill();
    }

    #[test]
    fn waiting_for_a_start_detects_ports_exits_and_timeouts() {
        let listeners = [0, 1].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
        wait_until_accepts(&addresses, None, Duration::ZERO).unwrap();
        // Not a listener's address after its drop: a child that another test has forked and that
        // has not called exec yet holds the listener open.
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let mut child: ChildGuard = Command::new("false").spawn().unwrap().into();
        let ended = wait_until_accepts(&[nobody], Some(&mut child), Duration::from_secs(60));
        assert!(matches!(ended, Err(StartError::Ended(status)) if !status.success()));
        let silent = wait_until_accepts(&[nobody], Some(&mut sleeper()), Duration::ZERO);
        assert!(matches!(silent, Err(StartError::Silent(address)) if address == nobody));
    }
}
