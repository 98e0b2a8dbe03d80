//! The right to fill a key, which is given back when nothing comes of it.

use std::sync::Arc;

use crate::client::{Client, succeeded};
use crate::error::Error;
use crate::slot::Slot;
use upstream::{Command, OwnedReply, Request};

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

/// A request for a lease that was asked. If its caller gives up, the lease that comes or has come
/// is given back.
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
    /// Asks for a lease; a caller that gives up gives it back.
    pub(crate) async fn ask_lease(&self, request: Request<'_>) -> Result<OwnedReply, Error> {
        let pending = self.begin(vec![self.checked(request)?])?;
        let asked = AskedLease { client: self, key: request.key, slot: Arc::clone(&pending.0) };
        let reply = pending.await.pop();
        // It was taken out of the slot.
        drop(asked);
        succeeded(reply.ok_or(Error::Closed)?)
    }
}
