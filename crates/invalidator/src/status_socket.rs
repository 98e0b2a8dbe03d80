//! The socket of the status port when systemd listens: it outlives this process and passes to its
//! successor.
//!
//! Sources: sd_listen_fds(3); `LISTEN_FDS_FIRST_FD` is a variable of the library listenfd.

use std::io;
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::OnceLock;

use listenfd::ListenFd;
use socket2::SockRef;
use tokio::net::{TcpListener, lookup_host};

use crate::message::{Failure, log};

/// The socket that systemd passed to this process or its predecessor.
static PASSED: OnceLock<std::net::TcpListener> = OnceLock::new();

/// Takes the socket that systemd passed, if any. It changes the environment, so it must run before
/// there are threads.
///
/// # Errors
///
/// When there are several sockets, or it is not a TCP socket.
pub(crate) fn take_passed() -> Result<(), Failure> {
    let mut passed = ListenFd::from_env();
    let listener = match passed.len() {
        0 => return Ok(()),
        1 => passed.take_tcp_listener(0).ok().flatten(),
        _ => None,
    };
    let listener =
        listener.ok_or("systemd passed other sockets than one of TCP, for the status port")?;
    // The environment names it once.
    let _ = PASSED.set(listener);
    Ok(())
}

/// Listens at the address of the status port, if there is one, on systemd's socket if that is bound
/// to it.
///
/// # Errors
///
/// When the address cannot be used.
pub(crate) async fn listen(address: Option<&str>) -> io::Result<Option<TcpListener>> {
    if let Some(passed) = PASSED.get() {
        let bound = passed.local_addr()?;
        if let Some(address) = address
            && lookup_host(address).await?.any(|wanted| wanted == bound)
        {
            let copy = passed.try_clone()?;
            copy.set_nonblocking(true)?;
            return TcpListener::from_std(copy).map(Some);
        }
        log(&format!(
            "warning: nobody answers at systemd's socket {bound}: it is not that of 'status'"
        ));
    }
    match address {
        Some(address) => TcpListener::bind(address).await.map(Some),
        None => Ok(None),
    }
}

/// Fails if a new process could not listen at an address. It accepts the ports of this process,
/// whose addresses are `own`, because they become free.
///
/// # Errors
///
/// When the address cannot be used.
pub(crate) async fn can_listen(address: &str, own: &[Option<String>]) -> io::Result<()> {
    let port = |address: &str| address.rsplit_once(':').map(|(_, port)| port.to_owned());
    let passed = PASSED.get().map(std::net::TcpListener::local_addr).transpose()?;
    let passed = passed.map(|passed| passed.to_string());
    if own.iter().chain([&passed]).flatten().any(|own| port(own) == port(address)) {
        return Ok(());
    }
    TcpListener::bind(address).await.map(drop)
}

/// Passes the socket to the successor of this process as this process received it.
///
/// # Errors
///
/// When the system refuses to keep it open.
pub(crate) fn pass_on(command: &mut Command) -> io::Result<()> {
    let Some(passed) = PASSED.get() else { return Ok(()) };
    SockRef::from(passed).set_cloexec(false)?;
    command.env("LISTEN_FDS", "1");
    command.env("LISTEN_FDS_FIRST_FD", passed.as_raw_fd().to_string());
    // To others, it is the same process.
    command.env("LISTEN_PID", std::process::id().to_string());
    Ok(())
}
