//! Sockets that systemd opened for this process: socket activation.
//!
//! Source: sd_listen_fds(3).

use std::io;
use std::os::fd::OwnedFd;

use listenfd::ListenFd;
use socket2::SockRef;

use crate::socket_handover::Inherited;

/// Takes the sockets that `LISTEN_FDS` counts, if they are for this process; none otherwise. Call
/// it once, since the second call finds none.
///
/// # Errors
///
/// Fails when one of them is neither a listening TCP or unix socket nor a UDP socket.
pub fn activated() -> io::Result<Inherited> {
    let mut passed = ListenFd::from_env();
    let mut inherited = Inherited::default();
    for number in 0..passed.len() {
        let socket = take(&mut passed, number).ok_or_else(|| {
            io::Error::other(format!(
                "socket {number} of systemd is no listening TCP or unix socket and no UDP socket"
            ))
        })?;
        SockRef::from(&socket).set_nonblocking(true)?;
        inherited.add_bound(socket).map_err(|_| {
            io::Error::other(format!(
                "socket {number} of systemd has neither an IP address nor a path; a name that \
                 begins with @ cannot be served"
            ))
        })?;
    }
    Ok(inherited)
}

fn take(passed: &mut ListenFd, number: usize) -> Option<OwnedFd> {
    if let Ok(Some(listener)) = passed.take_tcp_listener(number) {
        let socket = SockRef::from(&listener);
        // As for the server's own sockets: Linux passes these on to accepted ones.
        socket.set_tcp_nodelay(true).and_then(|()| socket.set_keepalive(true)).ok()?;
        return Some(listener.into());
    }
    if let Ok(Some(listener)) = passed.take_unix_listener(number) {
        return Some(listener.into());
    }
    passed.take_udp_socket(number).ok().flatten().map(OwnedFd::from)
}
