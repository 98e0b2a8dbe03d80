//! One line of statistics, for text and binary replies.

/// Receives a name and a value: a text line, or a binary packet.
pub(crate) type Sink<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// Writes one number.
pub(super) fn number(sink: Sink<'_>, name: &str, value: u64) {
    sink(name.as_bytes(), itoa::Buffer::new().format(value).as_bytes());
}
