//! Messages of text and descriptors between two processes.
//!
//! A signal interrupts a call that waits with a time limit, even if its handler sets `SA_RESTART`
//! (`signal(7)`). It means nothing about the other side, so every call is repeated.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};
use rustix::process::{Pid, Uid};

use super::DESCRIPTORS_MAX;

/// The longest message, in bytes: a description of each descriptor, most of them a few bytes.
const MESSAGE_BYTES: usize = 64 << 10;

/// The minimum time limit of a call.
const TIME_MIN: Duration = Duration::from_millis(1);

/// One side of a conversation. It preserves message boundaries.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) text: String,
    pub(super) descriptors: Vec<OwnedFd>,
    /// The process that sent it, according to the kernel; only at the side that accepted.
    pub(super) sender: Option<Pid>,
}

/// Opens a socket that accepts conversations.
///
/// # Errors
///
/// The system's refusal, or a path that is too long.
pub(super) fn open(path: &Path) -> io::Result<OwnedFd> {
    let socket = new_socket()?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, 4)?;
    Ok(socket)
}

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socket_with(family, kind, SocketFlags::CLOEXEC, None)?)
}

impl Channel {
    pub(super) fn connect(path: &Path) -> io::Result<Self> {
        let socket = new_socket()?;
        let address = SocketAddrUnix::new(path)?;
        retry_on_intr(|| connect(&socket, &address))?;
        Ok(Self { socket })
    }

    /// Waits for the next conversation.
    pub(super) fn accept(listener: &OwnedFd) -> io::Result<Self> {
        let socket = retry_on_intr(|| accept_with(listener, SocketFlags::CLOEXEC))?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket })
    }

    /// True if the other side belongs to `user` or to root. For a listening side, its user at the
    /// start of listening counts.
    pub(super) fn is_with(&self, user: Uid) -> bool {
        sockopt::socket_peercred(&self.socket).is_ok_and(|peer| is_trusted(peer.uid, user))
    }

    pub(super) fn send(&self, text: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let text = [IoSlice::new(text.as_bytes())];
        retry_on_intr(|| sendmsg(&self.socket, &text, &mut ancillary, SendFlags::NOSIGNAL))?;
        Ok(())
    }

    /// Returns the next message, or `None` if the other side is gone.
    ///
    /// # Errors
    ///
    /// The socket's, including [`io::ErrorKind::WouldBlock`] if nothing came for this long.
    pub(super) fn receive(&self, patience: Duration) -> io::Result<Option<Message>> {
        let until = Instant::now() + patience;
        let mut space = vec![
            MaybeUninit::uninit();
            rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1))
        ];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut into = [IoSliceMut::new(&mut bytes)];
        let len = loop {
            // Zero would mean no limit.
            let left = until.saturating_duration_since(Instant::now()).max(TIME_MIN);
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(left))?;
            let flags = RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.socket, &mut into, &mut ancillary, flags) {
                Err(Errno::INTR) => {}
                received => break received?.bytes,
            }
        };
        if len == 0 {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
        let mut message = Message { text, descriptors: Vec::new(), sender: None };
        for part in ancillary.drain() {
            match part {
                RecvAncillaryMessage::ScmRights(descriptors) => {
                    message.descriptors.extend(descriptors);
                }
                RecvAncillaryMessage::ScmCredentials(sender) => message.sender = Some(sender.pid),
                _ => {}
            }
        }
        Ok(Some(message))
    }

    /// Waits until the other side is gone; `false` if it stays for this long. The kernel closes the
    /// socket of an ending process after freeing its memory.
    pub(super) fn is_left(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            match self.receive(until.saturating_duration_since(Instant::now())) {
                Ok(None) => return true,
                // It left unread data.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return true,
                // It had sent something before.
                Ok(Some(_)) => {}
                Err(_) => return false,
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// True if a process of `user` may trust a process of `peer`: the same user, who could do the same
/// anyway, or root.
fn is_trusted(peer: Uid, user: Uid) -> bool {
    peer.is_root() || peer == user
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, getuid};

    use super::*;

    #[test]
    fn only_the_same_user_and_root_are_trusted() {
        let (us, others) = (Uid::from_raw(1000), Uid::from_raw(1001));
        assert!(is_trusted(us, us) && is_trusted(Uid::ROOT, us));
        assert!(!is_trusted(others, us) && !is_trusted(us, Uid::ROOT));
    }

    /// A process that pretends to be another one does not get that one killed.
    #[test]
    fn the_kernel_identifies_the_sender_of_a_message() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = open(&path).unwrap();
        let client = Channel::connect(&path).unwrap();
        let server = Channel::accept(&listener).unwrap();
        assert!(client.is_with(getuid()) && server.is_with(getuid()));
        client.send("ready 1", &[listener.as_fd()]).unwrap();
        let message = server.receive(Duration::from_secs(10)).unwrap().unwrap();
        assert_eq!(message.sender, Some(getpid()));
        assert_eq!((message.text.as_str(), message.descriptors.len()), ("ready 1", 1));
    }
}
