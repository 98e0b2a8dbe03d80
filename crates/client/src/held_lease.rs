//! The right to fill a key, which is given back when nothing comes of it.

use crate::client::Client;
use upstream::{Command, Request};

/// The holder of a token. Dropped before it [is spent](Self::spent), by a loader's error or panic
/// or because the caller gives up, it gives the token back.
#[derive(Debug)]
pub(crate) struct HeldLease<'c> {
    client: &'c Client,
    key: &'c [u8],
    token: u64,
}

impl<'c> HeldLease<'c> {
    pub(crate) const fn new(client: &'c Client, key: &'c [u8], token: u64) -> Self {
        Self { client, key, token }
    }

    pub(crate) const fn token(&self) -> u64 {
        self.token
    }

    /// The server has used the token up, or refused it.
    pub(crate) fn spent(self) {
        std::mem::forget(self);
    }
}

impl Drop for HeldLease<'_> {
    fn drop(&mut self) {
        let (exptime, number) = (-1, self.token);
        let request = Request { exptime, number, ..Request::new(Command::LeaseSet, self.key) };
        // If it does not arrive, the lease ends by its own time.
        let _ = self.client.tell(request);
    }
}
