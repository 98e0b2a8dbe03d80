//! The right to fill a key, which is returned if it is not used.

use std::sync::Arc;

use crate::client::{Client, succeeded};
use crate::error::Error;
use crate::slot::Slot;
use upstream::{Command, OwnedReply, Request};

/// The holder of a token. If it is dropped before it [is spent](Self::spent), by a loader's error
/// or panic or because the caller gives up, it returns the token.
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

    /// Marks the token as used up or refused by the server.
    pub(crate) fn spent(self) {
        std::mem::forget(self);
    }
}

impl Drop for HeldLease<'_> {
    fn drop(&mut self) {
        let (exptime, number) = (-1, self.token);
        let request = Request { exptime, number, ..Request::new(Command::LeaseSet, self.key) };
        // If it does not arrive, the lease expires.
        let _ = self.client.tell(request);
    }
}

/// A sent request for a lease. If its caller gives up, the lease is returned, even if it comes
/// later.
struct AskedLease<'c> {
    client: &'c Client,
    key: &'c [u8],
    slot: Arc<Slot>,
}

impl Drop for AskedLease<'_> {
    fn drop(&mut self) {
        if let Some(token) = self.slot.abandon() {
            drop(HeldLease::new(self.client, self.key, token));
        }
    }
}

impl Client {
    /// Requests a lease; a caller that gives up returns it.
    pub(crate) async fn ask_lease(&self, request: Request<'_>) -> Result<OwnedReply, Error> {
        let pending = self.begin(vec![self.checked(request)?])?;
        let asked = AskedLease { client: self, key: request.key, slot: Arc::clone(&pending.0) };
        let reply = pending.await.pop();
        // The slot no longer has it.
        drop(asked);
        succeeded(reply.ok_or(Error::Closed)?)
    }
}
