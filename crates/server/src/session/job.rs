//! A storage request of any protocol.

use std::os::fd::RawFd;

use engine::{Condition, Key, Mode, NewValue, Stored};

/// A storage request of any protocol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'k> {
    pub(crate) key: Key<'k>,
    pub(crate) new: NewValue,
    pub(crate) condition: Condition,
    /// `\r\n` follows the value.
    pub(crate) is_text: bool,
    /// A value above the item size limit deletes the present item, because the client meant to
    /// overwrite it.
    pub(crate) drops_old_if_too_large: bool,
    /// The connection's descriptor, for watchers.
    pub(crate) fd: RawFd,
}

/// The end of a storage request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Finished {
    /// The value did not end at its announced length.
    BadEnd,
    /// It was judged.
    Judged(Stored),
}

/// Bytes of `\r\n`.
pub(super) const END_BYTES: usize = 2;

impl Job<'_> {
    /// Append or prepend.
    pub(super) fn is_concat(&self) -> bool {
        matches!(self.condition.mode, Mode::Append | Mode::Prepend)
    }

    /// Bytes that follow the value.
    pub(super) const fn end_bytes(&self) -> usize {
        if self.is_text { END_BYTES } else { 0 }
    }

    /// The command's name, for watchers.
    pub(crate) fn command(&self) -> &'static str {
        match self.condition.mode {
            Mode::Set if self.condition.compare.is_some() => "cas",
            Mode::Set if self.condition.lease.is_some() => "lease-set",
            Mode::Add => "add",
            Mode::Append => "append",
            Mode::Prepend => "prepend",
            Mode::Replace => "replace",
            Mode::Set => "set",
        }
    }

    /// Bytes that follow the request.
    pub(super) fn data_bytes(&self) -> usize {
        self.new.value_len + self.end_bytes()
    }
}
