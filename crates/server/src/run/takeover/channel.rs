//! Messages of text and descriptors between two processes.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
    connect, listen, recvmsg, sendmsg, socket_with,
};

use super::DESCRIPTORS_MAX;

/// Longest message, in bytes: a description of each descriptor, most of them a few bytes.
const MESSAGE_BYTES: usize = 64 << 10;

/// One side of a conversation. Messages keep their bounds.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

/// A message and its descriptors.
pub(super) type Message = (String, Vec<OwnedFd>);

/// A socket at which conversations begin.
///
/// # Errors
///
/// The system's refusal; a path that is too long.
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
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(Self { socket })
    }

    /// Waits for the next conversation.
    pub(super) fn accept(listener: &OwnedFd) -> io::Result<Self> {
        Ok(Self { socket: accept_with(listener, SocketFlags::CLOEXEC)? })
    }

    /// Whether the other side may take this server's place: the same user, or root.
    pub(super) fn is_from_our_own(&self) -> bool {
        sockopt::socket_peercred(&self.socket)
            .is_ok_and(|peer| peer.uid.is_root() || peer.uid == rustix::process::geteuid())
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
        sendmsg(&self.socket, &text, &mut ancillary, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// The next message. `None`: the other side is gone, or says nothing for so long.
    pub(super) fn receive(&self, patience: Duration) -> io::Result<Option<Message>> {
        sockopt::set_socket_timeout(&self.socket, Timeout::Recv, Some(patience))?;
        let mut space =
            vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; MESSAGE_BYTES];
        let mut into = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let len = recvmsg(&self.socket, &mut into, &mut ancillary, flags)?.bytes;
        if len == 0 {
            return Ok(None);
        }
        let descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => descriptors.collect(),
            _ => Vec::new(),
        });
        Ok(Some((String::from_utf8_lossy(&bytes[..len]).into_owned(), descriptors.collect())))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
