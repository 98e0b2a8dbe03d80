//! A listening socket that the parent program left open, named by its descriptor's number.
//!
//! The number does not prove that no other code owns the descriptor, so it is not taken. Instead,
//! the process requests a copy from the kernel by sending the descriptor to itself.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use socket2::SockRef;

/// Returns a copy of the listening TCP socket with this number, ready to serve, and its address.
///
/// # Errors
///
/// There is none: the number has no descriptor, or not a TCP socket's, or it does not listen.
pub fn inherited_listener(number: RawFd) -> io::Result<(SocketAddr, OwnedFd)> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what);
    let copy = copy(number)?;
    let socket = SockRef::from(&copy);
    if !socket.is_listener().map_err(|_| invalid("it is no socket"))? {
        return Err(invalid("it does not listen"));
    }
    let address = socket.local_addr()?.as_socket().ok_or_else(|| invalid("it is not of TCP"))?;
    socket.set_tcp_nodelay(true)?;
    socket.set_keepalive(true)?;
    socket.set_nonblocking(true)?;
    Ok((address, copy))
}

fn copy(number: RawFd) -> io::Result<OwnedFd> {
    let (from, to) = UnixDatagram::pair()?;
    let (bytes, number) = ([IoSlice::new(b"x")], [number]);
    let message = [ControlMessage::ScmRights(&number)];
    sendmsg::<()>(from.as_raw_fd(), &bytes, &message, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&to, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let copies = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut copies) => copies.next(),
        _ => None,
    });
    copies.last().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn an_inherited_listener_works_and_other_fds_are_refused() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let bound = listener.local_addr().unwrap();
        let (address, copy) = inherited_listener(listener.as_raw_fd()).unwrap();
        assert_eq!(address, bound);
        let client = TcpStream::connect(bound).unwrap();
        let copy = TcpListener::from(copy);
        copy.set_nonblocking(false).unwrap();
        assert_eq!(copy.accept().unwrap().1, client.local_addr().unwrap());
        // The number itself stays unchanged.
        drop(copy);
        TcpStream::connect(bound).unwrap();

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (one, _other) = UnixDatagram::pair().unwrap();
        let file = std::fs::File::open("/dev/null").unwrap();
        let path = std::env::temp_dir().join(format!("net-handed-{}", std::process::id()));
        let unix = UnixListener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let numbers =
            [udp.as_raw_fd(), one.as_raw_fd(), file.as_raw_fd(), unix.as_raw_fd(), 999_999, -1];
        for number in numbers {
            assert!(inherited_listener(number).is_err(), "{number}");
        }
    }
}
