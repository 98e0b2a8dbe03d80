//! One UDP socket of a worker: many datagrams received by one system call, and many replies sent by
//! another.
//!
//! ```text
//!     recvmmsg -> requests[0..32] -> the service, one by one -> replies in a row -> sendmmsg
//! ```
//!
//! A reply of several datagrams is one message of the batch if the kernel splits it
//! (`UDP_SEGMENT`): the service's datagrams are [`DATAGRAM_BYTES`] apart.
//!
//! # The libraries
//!
//! `recvmmsg` is nix's, which keeps the headers between calls; `sendmmsg` is rustix's, which
//! returns how many messages were taken (nix finds this only by reading addresses that sending
//! leaves unset). quinn-udp was rejected: it sends to one peer at a time, but replies go to as many
//! peers as there are requests.
//!
//! Source: *Scaling Memcache at Facebook*, section 6.1 (a UDP port for each thread); recvmmsg(2),
//! sendmmsg(2), udp(7).

use std::array;
use std::io::{IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::socket::{
    MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike, recvmmsg, setsockopt, sockopt,
};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

use crate::peer::{ListenAddress, Peer};

/// Bytes of each datagram of a reply except its last: the payload of an Ethernet packet, as in
/// memcached.
pub const DATAGRAM_BYTES: usize = 1400;

/// The maximum number of datagrams received, and messages sent, by one system call.
const BATCH: usize = 32;

/// The maximum bytes of a request's datagram, including the frame: UDP's own limit.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// Replies are sent when they reach this many bytes together, even if requests of the batch are
/// left.
const SEND_AT_BYTES: usize = 128 * 1024;

/// Larger scratch for replies is freed, in bytes.
const REPLIES_KEPT: usize = 4 * SEND_AT_BYTES;

/// Datagrams of a reply that the kernel splits from one message. No more fit into the length of an
/// IP packet.
const SEGMENTS_MAX: usize = 45;

/// One socket, and the buffers for the kernel.
pub(crate) struct DatagramSocket {
    /// This worker's own copy: each datagram's peer counts a reference to it.
    address: Arc<ListenAddress>,
    socket: UdpSocket,
    headers: Headers,
    /// Datagrams in one message: more than one while the kernel splits.
    segments: usize,
}

/// The kernel's headers for one family of addresses, kept between calls.
enum Headers {
    V4(MultiHeaders<SockaddrIn>),
    V6(MultiHeaders<SockaddrIn6>),
}

/// Memory for one batch; a worker's sockets share it. Pages that no datagram has filled are not
/// resident.
pub(crate) struct Datagrams {
    requests: Vec<u8>,
    /// Length and sender of each.
    arrived: Vec<(usize, SocketAddr)>,
    replies: Vec<u8>,
    messages: Vec<Message>,
}

/// Part of the replies that leaves as one message.
struct Message {
    bytes: Range<usize>,
    to: SocketAddrAny,
}

impl Datagrams {
    pub(crate) fn new() -> Self {
        Self {
            requests: vec![0; BATCH * REQUEST_BYTES_MAX],
            arrived: Vec::with_capacity(BATCH),
            replies: Vec::new(),
            messages: Vec::with_capacity(BATCH),
        }
    }

    /// The `index`th datagram received, its sender, and the buffer to append its reply to.
    pub(crate) fn request(&mut self, index: usize) -> Option<(&[u8], SocketAddr, &mut Vec<u8>)> {
        let (len, from) = *self.arrived.get(index)?;
        let datagram = self.requests.get(index * REQUEST_BYTES_MAX..)?.get(..len)?;
        Some((datagram, from, &mut self.replies))
    }

    /// Bytes of the replies so far.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.replies.len()
    }

    /// True if the replies should be sent before there are more.
    pub(crate) fn is_full(&self) -> bool {
        self.replies.len() >= SEND_AT_BYTES || self.messages.len() >= BATCH
    }
}

impl DatagramSocket {
    pub(crate) fn new(address: &ListenAddress, socket: UdpSocket) -> Self {
        let headers = match address {
            ListenAddress::Udp(SocketAddr::V6(_), _) => {
                Headers::V6(MultiHeaders::preallocate(BATCH, None))
            }
            _ => Headers::V4(MultiHeaders::preallocate(BATCH, None)),
        };
        let mut made =
            Self { address: Arc::new(address.clone()), socket, headers, segments: SEGMENTS_MAX };
        // Kernels before 4.18 do not know it.
        if made.set_segment_bytes(DATAGRAM_BYTES).is_err() {
            made.segments = 1;
        }
        made
    }

    /// The port of the listener.
    pub(crate) fn port(&self) -> Option<u16> {
        match &*self.address {
            ListenAddress::Udp(address, _) => Some(address.port()),
            _ => None,
        }
    }

    /// The sender of a datagram on this socket.
    pub(crate) fn peer(&self, remote: SocketAddr) -> Peer {
        let fd = self.socket.as_raw_fd();
        Peer { remote: Some(remote), listener: Arc::clone(&self.address), fd }
    }

    /// Receives the waiting datagrams, up to a batch; returns their number, zero if there are none.
    pub(crate) fn receive(&mut self, into: &mut Datagrams) -> usize {
        let Datagrams { requests, arrived, .. } = into;
        arrived.clear();
        match &mut self.headers {
            Headers::V4(headers) => receive(&self.socket, headers, requests, arrived),
            Headers::V6(headers) => receive(&self.socket, headers, requests, arrived),
        }
        arrived.len()
    }

    /// Addresses the replies from byte `start` on to `to`.
    pub(crate) fn reply(&self, batch: &mut Datagrams, start: usize, to: SocketAddr) {
        let end = batch.replies.len();
        let mut from = start;
        while from < end {
            let to_byte = end.min(from + self.segments * DATAGRAM_BYTES);
            batch.messages.push(Message { bytes: from..to_byte, to: to.into() });
            from = to_byte;
        }
    }

    /// Sends the replies; returns the number of system calls. A full socket or an unreachable peer
    /// loses a reply, as any datagram may be lost.
    pub(crate) fn send(&mut self, batch: &mut Datagrams) -> u64 {
        let (mut sent, mut calls) = (0, 0);
        while sent < batch.messages.len() {
            calls += 1;
            match send(&self.socket, &batch.replies, &batch.messages[sent..]) {
                Ok(taken) if taken > 0 => sent += taken,
                // The path cannot take such datagrams whole, or the device cannot checksum them:
                // split them here.
                Err(Errno::INVAL | Errno::IO | Errno::MSGSIZE) if self.segments > 1 => {
                    self.stop_segmentation(batch, sent);
                    sent = 0;
                }
                Err(Errno::AGAIN) => break,
                _ => sent += 1,
            }
        }
        batch.messages.clear();
        batch.replies.clear();
        batch.replies.shrink_to(REPLIES_KEPT);
        calls
    }

    /// Makes each message one datagram from now on, including the unsent ones of `batch`.
    #[cold]
    fn stop_segmentation(&mut self, batch: &mut Datagrams, sent: usize) {
        // Zero switches it off, which cannot fail if switching it on did not.
        let _ = self.set_segment_bytes(0);
        self.segments = 1;
        let whole: Vec<Message> = batch.messages.drain(..).skip(sent).collect();
        for Message { bytes, to } in whole {
            for from in bytes.clone().step_by(DATAGRAM_BYTES) {
                let bytes = from..bytes.end.min(from + DATAGRAM_BYTES);
                batch.messages.push(Message { bytes, to: to.clone() });
            }
        }
    }

    fn set_segment_bytes(&self, bytes: usize) -> nix::Result<()> {
        let bytes = i32::try_from(bytes).unwrap_or(0);
        setsockopt(&self.socket, sockopt::UdpGsoSegment, &bytes)
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn receive<S>(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<S>,
    requests: &mut [u8],
    arrived: &mut Vec<(usize, SocketAddr)>,
) where
    S: SockaddrLike + Copy + Into<SocketAddr>,
{
    let mut slots = requests.chunks_exact_mut(REQUEST_BYTES_MAX);
    let mut slices: [_; BATCH] =
        array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
    let flags = MsgFlags::MSG_DONTWAIT;
    // Nothing there, or an error of an earlier reply's peer: the next call returns datagrams again.
    let Ok(results) = recvmmsg(socket.as_raw_fd(), headers, &mut slices, flags, None) else {
        return;
    };
    for result in results {
        // The kernel names the sender of every datagram of the internet protocols.
        if let Some(from) = result.address {
            arrived.push((result.bytes, from.into()));
        }
    }
}

/// Sends a batch of `messages`, which are in `replies`; returns the number taken.
fn send(socket: &UdpSocket, replies: &[u8], messages: &[Message]) -> rustix::io::Result<usize> {
    let count = messages.len().min(BATCH);
    let Some(last) = messages.get(count.wrapping_sub(1)) else { return Ok(0) };
    let bytes =
        |index: usize| messages.get(index).and_then(|message| replies.get(message.bytes.clone()));
    let slices: [_; BATCH] =
        array::from_fn(|index| [IoSlice::new(bytes(index).unwrap_or_default())]);
    let mut controls: [_; BATCH] = array::from_fn(|_| SendAncillaryBuffer::default());
    let mut index = 0;
    let mut headers = controls.each_mut().map(|control| {
        let to = &messages.get(index).unwrap_or(last).to;
        let header = MMsgHdr::new_with_addr(to, &slices[index], control);
        index += 1;
        header
    });
    sendmmsg(socket, &mut headers[..count], SendFlags::DONTWAIT)
}

const _: () = assert!(SEGMENTS_MAX * DATAGRAM_BYTES + 100 < REQUEST_BYTES_MAX);
