//! Names of key prefixes, numbered, and limited in number.
//!
//! A client that makes up keys must not fill the memory: when all numbers are in use, a new prefix
//! counts among the others. [`Prefixes::keep`] frees numbers that no sampled key uses any more.

use narrow::to_u16;
use std::collections::BTreeMap;

/// A prefix's number.
pub type PrefixId = u16;

/// The number of keys without a prefix, and of those whose prefix has no number.
pub const OTHERS: PrefixId = 0;

/// Numbers, that of the others included.
const PREFIXES_MAX: usize = 256;

/// Longest prefix that is counted separately, in bytes.
pub(crate) const PREFIX_BYTES_MAX: usize = 40;

/// The names.
#[derive(Debug)]
pub struct Prefixes {
    names: Vec<Option<Box<[u8]>>>,
    numbers: BTreeMap<Box<[u8]>, PrefixId>,
}

impl Default for Prefixes {
    fn default() -> Self {
        Self { names: vec![None], numbers: BTreeMap::new() }
    }
}

impl Prefixes {
    /// Maximum memory, in bytes.
    pub const BYTES: usize = PREFIXES_MAX * (2 * PREFIX_BYTES_MAX + 64);

    /// The number of `name`; a new one if any is left.
    pub fn number(&mut self, name: &[u8]) -> PrefixId {
        if name.is_empty() || name.len() > PREFIX_BYTES_MAX {
            return OTHERS;
        }
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let free = self.names.iter().skip(1).position(Option::is_none).map(|index| index + 1);
        let number = match free {
            Some(number) => number,
            None if self.names.len() < PREFIXES_MAX => {
                self.names.push(None);
                self.names.len() - 1
            }
            None => return OTHERS,
        };
        self.names[number] = Some(name.into());
        // Below `PREFIXES_MAX`.
        let number = to_u16(number);
        self.numbers.insert(name.into(), number);
        number
    }

    /// The name of a number; empty for the others.
    #[must_use]
    pub fn name(&self, number: PrefixId) -> &[u8] {
        self.names.get(usize::from(number)).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Frees the numbers for which `is_used` returns `false`.
    pub fn keep(&mut self, is_used: impl Fn(PrefixId) -> bool) {
        let names = &mut self.names;
        self.numbers.retain(|_, number| {
            let keeps = is_used(*number);
            if !keeps {
                names[usize::from(*number)] = None;
            }
            keeps
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_reused() {
        let mut prefixes = Prefixes::default();
        let user = prefixes.number(b"user");
        assert_eq!((prefixes.number(b"user"), prefixes.name(user)), (user, &b"user"[..]));
        for number in 0..2 * PREFIXES_MAX {
            prefixes.number(number.to_string().as_bytes());
        }
        assert_eq!(prefixes.number(b"late"), OTHERS);
        prefixes.keep(|number| number == user);
        assert_ne!(prefixes.number(b"late"), OTHERS);
        assert_eq!(prefixes.number(b"user"), user);
        assert_eq!(prefixes.number(&[b'x'; PREFIX_BYTES_MAX + 1]), OTHERS);
    }
}
