//! Messages from other threads to a worker: a queue, and an eventfd that ends the worker's wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::event::{EventfdFlags, eventfd};

use crate::conn_id::Token;
use crate::peer::Peer;
use crate::tls::Tls;

/// Queue capacity that is kept. The memory for a crowd may be needed elsewhere when the crowd has
/// gone.
pub(crate) const MESSAGES_KEPT: usize = 64;

/// One message to a worker.
#[derive(Debug)]
pub(crate) enum Message {
    /// An accepted connection.
    Accepted(OwnedFd, Peer),
    /// A connection over the limit. It takes the place of one whose client has not logged in, of
    /// this worker or of this many others; without one, it is refused.
    Extra(OwnedFd, Peer, usize),
    /// A connection from another worker, without pending work.
    Moved(OwnedFd, Peer, Option<Box<Tls>>),
    /// Finish the received requests, then close; at the deadline close anyway.
    Drain(Instant),
    /// Close everything now.
    Stop,
    /// Serve this connection although no input came.
    Wake(Token),
}

/// A worker's queue.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    eventfd: EventFd,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { messages: Mutex::new(Vec::new()), eventfd: EventFd::new()? })
    }

    /// Posts a message that may be lost; false when there is no memory for it, and it is.
    pub(crate) fn try_post(&self, message: Message) -> bool {
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = messages.try_reserve(1).is_ok();
        if has_room {
            messages.push(message);
        }
        drop(messages);
        self.eventfd.notify();
        has_room
    }

    pub(crate) fn post(&self, message: Message) {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        self.eventfd.notify();
    }

    /// Ends the worker's wait without a message.
    pub(crate) fn wake(&self) {
        self.eventfd.notify();
    }

    /// Moves all posted messages into `into`, and lets the eventfd ring again.
    pub(crate) fn take(&self, into: &mut Vec<Message>) {
        self.eventfd.drain();
        let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        into.append(&mut messages);
        messages.shrink_to(MESSAGES_KEPT);
    }

    pub(crate) fn eventfd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// An eventfd that is written at most once until it is drained.
#[derive(Debug)]
pub(crate) struct EventFd {
    fd: OwnedFd,
    is_notified: AtomicBool,
}

impl EventFd {
    pub(crate) fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { fd, is_notified: AtomicBool::new(false) })
    }

    /// Ends the wait of a thread that polls this.
    pub(crate) fn notify(&self) {
        // Release pairs with the Acquire in `drain`: it sees what was posted before.
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            // The counter holds at most one, so the write cannot fail because it is full.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Called before the queue is read: a notification after this call is a new one.
    pub(crate) fn drain(&self) {
        let mut count = [0u8; 8];
        let _ = rustix::io::read(&self.fd, &mut count);
        // Acquire pairs with the Release of the calls of `notify` that this one answers. Release
        // pairs with the Acquire of the next `notify`, which finds false: its write comes after the
        // read above, so the read does not lose it.
        self.is_notified.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes a worker serve one connection again, from any thread; see [`crate::Output::waker`].
#[derive(Clone, Debug)]
pub struct Waker {
    mailbox: Arc<Mailbox>,
    token: Token,
}

impl Waker {
    pub(crate) fn new(mailbox: Arc<Mailbox>, token: Token) -> Self {
        Self { mailbox, token }
    }

    /// Requests one more call of [`crate::Service::serve`]. Does nothing when the connection has
    /// ended.
    pub fn wake(&self) {
        self.mailbox.post(Message::Wake(self.token));
    }
}
