//! Values that are collected before they are judged.

use std::sync::Arc;

use store::{DraftError, Store};

/// A value to append, as far as it has come. Its memory counts as a connection's buffer (`-m`).
#[derive(Debug)]
pub(super) struct Collected {
    bytes: Vec<u8>,
    store: Arc<Store>,
}

impl Collected {
    pub(super) fn new(store: &Arc<Store>) -> Self {
        Self { bytes: Vec::new(), store: Arc::clone(store) }
    }

    /// What has come.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes `part`. What the system does not give is out of memory, not the end of the server.
    pub(super) fn push(&mut self, part: &[u8]) -> Result<(), DraftError> {
        let was = self.bytes.capacity();
        self.bytes.try_reserve(part.len()).map_err(|_| DraftError::OutOfMemory)?;
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
