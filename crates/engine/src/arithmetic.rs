//! incr and decr: a new item with the next number.
//!
//! The reservation has room for the number as seen; the number is computed again and written under
//! the key's lock. So two increments start over only if a number gets longer between look and lock.

use proto::number::parse_u64;
use sampling::Command;
use store::{Applied, Change, Draft, DraftError, Item, Liveness};

use crate::key::Key;
use crate::new_value::NewValue;
use crate::stats::{ClassCounter, Counter};
use crate::worker::{Worker, live};

/// Up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To no less than 0.
    Decr,
    /// Modulo 2^64.
    Incr,
}

impl Direction {
    /// Down if `decrement`, else up.
    #[must_use]
    pub const fn of(decrement: bool) -> Self {
        if decrement { Self::Decr } else { Self::Incr }
    }
}

/// The item to create if there is none.
#[derive(Clone, Copy, Debug)]
pub struct Vivify {
    /// Its number.
    pub initial: u64,
    /// The store's deadline.
    pub deadline: u32,
    /// The key came as base64.
    pub base64_key: bool,
}

/// `incr`, `decr`, and meta's `ma`.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    /// Up or down.
    pub direction: Direction,
    /// The difference.
    pub delta: u64,
    /// The cas unique that the item must have; 0 is none, as in the binary protocol.
    pub compare: Option<u64>,
    /// The new cas unique, else the store's next.
    pub cas: Option<u64>,
    /// The new cas unique will be shown.
    pub shows_cas: bool,
    /// A new deadline for an existing item (meta `T`), else it keeps its own.
    pub deadline: Option<u32>,
    /// The item to create on a miss.
    pub vivify: Option<Vivify>,
}

/// The outcome of an increment or decrement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The new number.
    Done {
        /// The number.
        number: u64,
        /// The new cas unique as clients see it; 0 if it has none.
        cas: u64,
        /// The item's deadline before a new one was given.
        deadline_before: u32,
        /// The item was created.
        is_created: bool,
    },
    /// The item has another cas unique.
    Exists,
    /// The value is not a number.
    NonNumeric,
    /// There is no item, and none should be created.
    NotFound,
    /// The new item got no memory.
    Refused(DraftError),
}

/// An item's number and the attributes that its successor keeps.
struct Seen {
    new: NewValue,
    number: u64,
    deadline_before: u32,
    class: u8,
}

impl Worker {
    /// `incr`, `decr` and `ma`. No section may be open.
    pub fn arithmetic(&self, key: Key<'_>, how: &Arithmetic) -> Counted {
        loop {
            let seen = match self.look_at_number(key, how) {
                Ok(seen) => seen,
                Err(ended) => return ended,
            };
            let attempt = match (seen, how.vivify) {
                (Some(seen), _) => self.link_number(key, how, &seen),
                (None, Some(vivify)) => self.create_number(key, how, vivify),
                (None, None) => {
                    self.count(how.misses());
                    self.note_named(Command::Arithmetic, &key);
                    return Counted::NotFound;
                }
            };
            match attempt {
                Ok(Some(counted)) => return counted,
                Ok(None) => {}
                Err(error) => {
                    self.refused(error);
                    return Counted::Refused(error);
                }
            }
        }
    }

    /// The key's number; `Ok(None)` is a miss.
    fn look_at_number(&self, key: Key<'_>, how: &Arithmetic) -> Result<Option<Seen>, Counted> {
        let section = self.section();
        let Some(found) = section.find_from(key.hint, key.hash, key.bytes) else { return Ok(None) };
        if found.liveness() != Liveness::Live {
            self.unlink_dead(&section, key);
            return Ok(None);
        }
        self.next_number(&found, how).map(Some)
    }

    /// The number that follows `item` by `how`.
    fn next_number(&self, item: &Item<'_>, how: &Arithmetic) -> Result<Seen, Counted> {
        let is_other =
            how.compare.is_some_and(|unique| unique != 0 && !self.cas_matches(item, unique));
        if is_other {
            return Err(Counted::Exists);
        }
        let present = item.inline_value().and_then(parse_stored).ok_or(Counted::NonNumeric)?;
        let number = match how.direction {
            Direction::Decr => present.saturating_sub(how.delta),
            Direction::Incr => present.wrapping_add(how.delta),
        };
        let new = NewValue {
            flags: item.flags(),
            deadline: how.deadline.unwrap_or_else(|| item.deadline()),
            // A shorter number is padded with spaces to the old length, as memcached does.
            value_len: digits(number).max(item.value_len()),
            base64_key: item.is_base64_key(),
            has_cas: how.has_cas(),
        };
        Ok(Seen { new, number, deadline_before: item.deadline(), class: item.class() })
    }

    /// Replaces the item with its successor; `None` if the successor's shape has changed since it
    /// was seen.
    fn link_number(
        &self,
        key: Key<'_>,
        how: &Arithmetic,
        seen: &Seen,
    ) -> Result<Option<Counted>, DraftError> {
        let mut draft = Some(self.reserve(key, &seen.new)?);
        let section = self.section();
        let mut result = Ok(None);
        let applied = section.update_from(key.hint, key.hash, key.bytes, |present| {
            let Some(item) = live(present) else { return self.remove_found(present) };
            let next = match self.next_number(item, how) {
                Ok(next) => next,
                Err(ended) => {
                    result = Ok(Some(ended));
                    return Change::Keep;
                }
            };
            if next.new != seen.new {
                return Change::Keep;
            }
            let Some(mut draft) = draft.take() else { return Change::Keep };
            if let Err(error) = push_padded(&mut draft, next.number) {
                result = Err(error);
                return Change::Keep;
            }
            // An invalidated item stays so, and one reader renews it.
            draft.copy_marks(item);
            result = Ok(Some(Counted::Done {
                number: next.number,
                cas: 0,
                deadline_before: next.deadline_before,
                is_created: false,
            }));
            Change::Put { draft, cas: how.cas }
        });
        match applied {
            Applied::Stored { cas } => {
                self.count_class(seen.class, how.hits());
                self.note_stored(Command::Arithmetic, &key, &seen.new);
                Ok(result?.map(|counted| counted.with_cas(self.shown_cas(cas))))
            }
            Applied::Refused(error) => Err(error),
            Applied::Kept | Applied::Removed => result,
        }
    }

    /// Links the initial number; `None` if the key has got an item in the meantime.
    fn create_number(
        &self,
        key: Key<'_>,
        how: &Arithmetic,
        vivify: Vivify,
    ) -> Result<Option<Counted>, DraftError> {
        let value_len = digits(vivify.initial);
        let new = NewValue {
            flags: 0,
            deadline: vivify.deadline,
            value_len,
            base64_key: vivify.base64_key,
            has_cas: how.has_cas(),
        };
        let mut draft = self.reserve(key, &new)?;
        push_padded(&mut draft, vivify.initial)?;
        let mut draft = Some(draft);
        let section = self.section();
        let applied = section.update_from(key.hint, key.hash, key.bytes, |present| {
            match draft.take_if(|_| live(present).is_none()) {
                Some(draft) => {
                    self.void_lease(key);
                    Change::Put { draft, cas: how.cas }
                }
                None => Change::Keep,
            }
        });
        match applied {
            Applied::Stored { cas } => {
                self.note_stored(Command::Arithmetic, &key, &new);
                Ok(Some(Counted::Done {
                    number: vivify.initial,
                    cas: self.shown_cas(cas),
                    deadline_before: vivify.deadline,
                    is_created: true,
                }))
            }
            Applied::Refused(error) => Err(error),
            Applied::Kept | Applied::Removed => Ok(None),
        }
    }
}

impl Arithmetic {
    /// `true` if the new item gets a cas unique when it is stored.
    fn has_cas(&self) -> bool {
        self.cas.is_some() || self.shows_cas
    }

    fn hits(&self) -> ClassCounter {
        match self.direction {
            Direction::Decr => ClassCounter::DecrHits,
            Direction::Incr => ClassCounter::IncrHits,
        }
    }

    fn misses(&self) -> Counter {
        match self.direction {
            Direction::Decr => Counter::DecrMisses,
            Direction::Incr => Counter::IncrMisses,
        }
    }
}

impl Counted {
    fn with_cas(mut self, shown: u64) -> Self {
        if let Self::Done { cas, .. } = &mut self {
            *cas = shown;
        }
        self
    }
}

/// Reads a stored value as a counter, by `strtoull`'s rules as memcached applies them.
///
/// White space and one `+` may come first; the number ends at the end of the value or at white
/// space, and what follows that is ignored (so a value padded with spaces counts). `None` for
/// anything else: empty, negative, fractional, hexadecimal, or over 2^64-1.
fn parse_stored(value: &[u8]) -> Option<u64> {
    let start = value.iter().position(|byte| !is_space(*byte))?;
    let unpadded = value.get(start..)?;
    let number = unpadded.strip_prefix(b"+").unwrap_or(unpadded);
    let end = number.iter().position(|byte| is_space(*byte)).unwrap_or(number.len());
    number.get(..end).and_then(parse_u64)
}

/// `isspace` of the C locale: `u8::is_ascii_whitespace` excludes the vertical tab.
const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Decimal digits of `number`.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Fills the draft: `number` in decimal, then spaces.
fn push_padded(draft: &mut Draft, number: u64) -> Result<(), DraftError> {
    const SPACES: [u8; 64] = [b' '; 64];
    draft.push(itoa::Buffer::new().format(number).as_bytes())?;
    while draft.remaining() > 0 {
        draft.push(&SPACES[..draft.remaining().min(SPACES.len())])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_counts_the_decimal_digits() {
        for number in [0, 1, 9, 10, 99, 100, u64::MAX / 10, u64::MAX] {
            assert_eq!(digits(number), number.to_string().len());
        }
    }

    #[test]
    fn stored_numbers_may_be_padded_and_signed_plus() {
        let counters: [(&[u8], u64); 13] = [
            (b"0", 0),
            (b"99 ", 99),
            (b"5 6", 5),
            (b" 7", 7),
            (b"+8", 8),
            (b" \t+9\r\n", 9),
            (b"18446744073709551615", u64::MAX),
            (b"10\x0b", 10),
            (b"\x0b11", 11),
            (b"00000000000000000012", 12),
            (b"000000000000000000000000000013", 13),
            (b"                         13                        ", 13),
            (b"+18446744073709551615", u64::MAX),
        ];
        for (value, number) in counters {
            assert_eq!(parse_stored(value), Some(number), "{}", value.escape_ascii());
        }
        let others: [&[u8]; 10] = [
            b"",
            b" ",
            b"+",
            b"-1",
            b"1.5",
            b"0x10",
            b"5x",
            b"+ 5",
            b"++5",
            b"18446744073709551616",
        ];
        for value in others {
            assert_eq!(parse_stored(value), None, "{}", value.escape_ascii());
        }
    }

    #[test]
    fn only_digits_and_white_space_may_follow_a_digit() {
        for byte in 0..=u8::MAX {
            let want = match byte {
                b'0'..=b'9' => Some(40 + u64::from(byte - b'0')),
                b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r' => Some(4),
                _ => None,
            };
            assert_eq!(parse_stored(&[b'4', byte]), want, "{byte:#x}");
        }
    }
}
