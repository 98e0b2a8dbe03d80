//! Values that are collected before they are judged.

use std::sync::Arc;

use store::{DraftError, Store};

/// The received part of a value to append. Its memory counts as a connection's buffer (`-m`).
#[derive(Debug)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    /// The maximum number of bytes to receive.
    most: usize,
    store: Arc<Store>,
}

impl Collected {
    /// A place for at most this number of bytes; it takes no more memory than that.
    pub(super) fn new(store: &Arc<Store>, most: usize) -> Self {
        Self { bytes: Vec::new(), most, store: Arc::clone(store) }
    }

    /// The received bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes `part`. A failed allocation is reported as out of memory and does not end the server.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), DraftError> {
        let was = self.bytes.capacity();
        let (len, need) = (self.bytes.len(), self.bytes.len() + part.len());
        if need > was {
            let room = (2 * was).min(self.most).max(need);
            self.bytes.try_reserve_exact(room - len).map_err(|_| DraftError::OutOfMemory)?;
        }
        self.store.charge_buffers(signed(self.bytes.capacity() - was));
        self.bytes.extend_from_slice(part);
        Ok(())
    }
}

impl Drop for Collected {
    fn drop(&mut self) {
        self.store.charge_buffers(-signed(self.bytes.capacity()));
    }
}

fn signed(bytes: usize) -> i64 {
    // No allocation is larger than `isize::MAX`.
    bytes.cast_signed() as i64
}
