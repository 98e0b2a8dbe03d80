//! The lines of get, gets, gat, gats and lease-get, which may have any length and are therefore
//! read key by key.

use memchr::memchr;

use super::first_word;
use crate::{Error, KEY_BYTES_MAX};

/// A retrieval line whose command words have been consumed; its keys are still in the input.
///
/// Call [`GetLine::next_key`] until it returns `End` or `Bad`. Such a line needs no other state
/// between reads.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct GetLine {
    /// The new expiry time of every item found: `gat` and `gats` only.
    pub exptime: Option<i64>,
    /// True if each VALUE line ends in the cas unique: `gets` and `gats`.
    pub with_cas: bool,
    /// True if a missing key is answered with a token to fill it: lease-get.
    pub with_lease: bool,
    /// True if the answer describes the item without its value: mcrouter's metaget, which
    /// [`GetLine::metaget`] reads.
    pub with_info: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// No key yet: a line that ends now is malformed.
    NoKey,
    /// At least one key.
    SomeKey,
    /// The line is refused: its rest is skipped.
    Refused(Error),
}

/// The next part of a retrieval line, each with the number of used bytes of the input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyToken<'b> {
    /// A key of 1 to 250 bytes.
    Key {
        /// The key.
        key: &'b [u8],
        /// Bytes used, including spaces before the key.
        consumed: usize,
    },
    /// The line has ended, and had a key: `END` is due.
    End {
        /// Bytes used: to the end of the line.
        consumed: usize,
    },
    /// The line has ended, and was refused: the error's line is due in place of `END`. Values found
    /// before a key that is too long have been answered.
    Bad {
        /// The fault.
        error: Error,
        /// Bytes used: to the end of the line.
        consumed: usize,
    },
    /// The next key is incomplete: consume these bytes (possibly none) and call again with more.
    Incomplete {
        /// Bytes used: spaces, or the rest of a refused line.
        consumed: usize,
    },
}

impl GetLine {
    pub(super) const fn new(exptime: Option<i64>, with_cas: bool) -> Self {
        Self { exptime, with_cas, with_lease: false, with_info: false, state: State::NoKey }
    }

    pub(super) const fn lease() -> Self {
        Self {
            exptime: None,
            with_cas: false,
            with_lease: true,
            with_info: false,
            state: State::NoKey,
        }
    }

    /// Reads the command word of mcrouter's `metaget`, unknown to servers; also returns its bytes.
    #[inline]
    #[must_use]
    pub fn metaget(input: &[u8]) -> Option<(Self, usize)> {
        const METAGET: &[u8] = b"metaget ";
        let line = Self { with_info: true, ..Self::new(None, false) };
        input.starts_with(METAGET).then_some((line, METAGET.len()))
    }

    /// A plain `get` line with a key that the caller has already taken from a known position.
    #[must_use]
    pub const fn after_key() -> Self {
        Self {
            exptime: None,
            with_cas: false,
            with_lease: false,
            with_info: false,
            state: State::SomeKey,
        }
    }

    /// Takes a key that the caller has found by other means, between spaces. False: the line and
    /// its key are refused.
    #[inline]
    pub fn take_key(&mut self) -> bool {
        if matches!(self.state, State::Refused(_)) {
            return false;
        }
        self.state = State::SomeKey;
        true
    }

    /// A line that is refused for its exptime: all its keys are skipped.
    pub(super) const fn refused(error: Error, with_cas: bool) -> Self {
        Self {
            exptime: None,
            with_cas,
            with_lease: false,
            with_info: false,
            state: State::Refused(error),
        }
    }

    /// Refuses the line at a key that was taken and is not permitted: its rest is skipped, and then
    /// `error` is due.
    pub fn refuse_rest(&mut self, error: Error) {
        self.state = State::Refused(error);
    }

    /// Takes the next key from `input`, which starts where the last call stopped consuming.
    #[inline]
    pub fn next_key<'b>(&mut self, input: &'b [u8]) -> KeyToken<'b> {
        if matches!(self.state, State::Refused(_)) {
            return self.end_of_refused(input);
        }
        let spaces = input.iter().take_while(|byte| **byte == b' ').count();
        let word = input.get(spaces..).unwrap_or_default();
        match word {
            [b'\n', ..] => return self.end(input, spaces + 1),
            [b'\r', b'\n', ..] => return self.end(input, spaces + 2),
            _ => {}
        }
        let window = word.get(..SCAN_BYTES).unwrap_or(word);
        let key = match first_word(window) {
            Some(key) => key,
            // The byte after the longest key may be the `\r` of the line's end.
            None if word.len() <= KEY_BYTES_MAX => {
                return KeyToken::Incomplete { consumed: spaces };
            }
            None if word.len() == KEY_BYTES_MAX + 1 && word.ends_with(b"\r") => {
                return KeyToken::Incomplete { consumed: spaces };
            }
            None => return self.refuse(input),
        };
        if key.len() > KEY_BYTES_MAX {
            return self.refuse(input);
        }
        self.state = State::SomeKey;
        KeyToken::Key { key, consumed: spaces + key.len() }
    }

    fn refuse<'b>(&mut self, input: &'b [u8]) -> KeyToken<'b> {
        self.state = State::Refused(Error::Format);
        self.end_of_refused(input)
    }

    fn end<'b>(&mut self, input: &'b [u8], consumed: usize) -> KeyToken<'b> {
        match self.state {
            State::SomeKey => KeyToken::End { consumed },
            State::NoKey | State::Refused(_) => self.refuse(input),
        }
    }

    fn end_of_refused<'b>(self, input: &'b [u8]) -> KeyToken<'b> {
        let error = match self.state {
            State::Refused(error) => error,
            State::NoKey | State::SomeKey => Error::Format,
        };
        match memchr(b'\n', input) {
            Some(newline) => KeyToken::Bad { error, consumed: newline + 1 },
            None => KeyToken::Incomplete { consumed: input.len() },
        }
    }
}

/// The maximum distance to the end of a key: the longest key, a `\r`, and the `\n`.
const SCAN_BYTES: usize = KEY_BYTES_MAX + 2;
