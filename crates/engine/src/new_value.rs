//! The attributes of a value to be stored.

/// A new value's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewValue {
    /// Client flags.
    pub flags: u32,
    /// The store's deadline: [`crate::Worker::deadline`].
    pub deadline: u32,
    /// Bytes of value.
    pub value_len: usize,
    /// The key came as base64 and is shown as base64.
    pub base64_key: bool,
    /// It gets a cas unique when it is stored, because the client chooses or receives it. Any other
    /// value gets one when a client asks for it.
    pub has_cas: bool,
}
