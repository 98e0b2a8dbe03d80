//! Key limits, and the small buffer for a decoded base64 key.

/// The longest key, in bytes, on the wire: for a base64 key this limits the encoded text.
pub const KEY_BYTES_MAX: usize = 250;

/// Room for one decoded key. The caller owns it, so that a request can borrow its key from here or
/// from the input.
#[derive(Clone)]
pub struct KeyBuf {
    pub(crate) bytes: [u8; KEY_BYTES_MAX],
}

impl KeyBuf {
    /// An empty buffer.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; KEY_BYTES_MAX] }
    }
}

impl Default for KeyBuf {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyBuf")
    }
}
