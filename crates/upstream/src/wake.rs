//! Wakes a loop that waits in a poller, from another thread.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A descriptor that is readable from [`Self::wake`] until [`Self::clear`].
#[derive(Debug)]
pub struct Wake(OwnedFd);

impl Wake {
    /// Creates one that is not readable.
    ///
    /// # Errors
    ///
    /// If no descriptor is available.
    pub fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes it readable.
    pub fn wake(&self) {
        // It fails only after 2^64 - 1 writes, and then it is readable.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        // An error means that it is already unreadable.
        let _ = rustix::io::read(&self.0, &mut [0_u8; 8][..]);
    }

    /// The descriptor to poll for input.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
