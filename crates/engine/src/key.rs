//! A key as the engine takes it.

use store::SlotHint;

/// A key with its hash, which is computed once per request.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    /// The key, 1 to 250 bytes.
    pub bytes: &'k [u8],
    /// [`store::Store::hash`] of it.
    pub hash: u64,
    /// The slot in which its item was seen ahead of the request, if it was looked up.
    pub hint: SlotHint,
}
