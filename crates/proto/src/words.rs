//! The words of a line, separated by spaces. Only spaces separate; a TAB is part of a word.

/// Walks the words of (the rest of) a line.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Words<'b> {
    rest: &'b [u8],
}

impl<'b> Words<'b> {
    /// The words of `line`, which has no line end.
    #[must_use]
    pub const fn new(line: &'b [u8]) -> Self {
        Self { rest: line }
    }

    /// The last word, and the words before it. `None` if there is none.
    #[must_use]
    pub fn split_last(self) -> Option<(Self, &'b [u8])> {
        let end = self.rest.iter().rposition(|byte| *byte != b' ')?;
        let (line, _) = self.rest.split_at_checked(end + 1)?;
        let start = line.iter().rposition(|byte| *byte == b' ').map_or(0, |space| space + 1);
        let (before, last) = line.split_at_checked(start)?;
        Some((Self::new(before), last))
    }

    /// The rest of the line, including its spaces.
    #[must_use]
    pub const fn line(self) -> &'b [u8] {
        self.rest
    }

    /// True if no word is left.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.rest.iter().all(|byte| *byte == b' ')
    }
}

impl<'b> Iterator for Words<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let start = self.rest.iter().position(|byte| *byte != b' ')?;
        let (_, words) = self.rest.split_at_checked(start)?;
        let end = words.iter().position(|byte| *byte == b' ').unwrap_or(words.len());
        let (word, rest) = words.split_at_checked(end)?;
        self.rest = rest;
        Some(word)
    }
}

/// The word at the start of `text` (empty if that is a space or a line end). `None`: its end is not
/// there.
///
/// A space, `\n` or `\r\n` ends a word; all other bytes belong to it, even a `\r` without `\n`.
#[inline(always)]
#[must_use]
pub fn first_word(text: &[u8]) -> Option<&[u8]> {
    let mut at = 0;
    loop {
        at += short::first_up_to(b' ', text.get(at..)?)?;
        match text.get(at..)? {
            [b' ' | b'\n', ..] | [b'\r', b'\n', ..] => return text.get(..at),
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the definition, with the end at every place of a word.
    #[test]
    fn a_word_ends_at_a_space_or_a_line_end() {
        for len in 0..40 {
            for end in [&b" x"[..], b"\n", b"\r\n", b"\r\nget a\r\n", b"  "] {
                for inner in [b'k', b'\t', b'\r', 0, 0x80, 0xff, b'!'] {
                    let mut text = vec![b'k'; len];
                    // Not last, where a `\r` would belong to the line's end.
                    let but_last = text.get_mut(..len.saturating_sub(1)).unwrap_or_default();
                    but_last.iter_mut().step_by(7).for_each(|byte| *byte = inner);
                    let word = text.clone();
                    text.extend_from_slice(end);
                    assert_eq!(first_word(&text), Some(&word[..]), "{}", text.escape_ascii());
                    assert_eq!(first_word(&word), None);
                }
            }
        }
        assert_eq!(first_word(b"k\r"), None);
    }
}
