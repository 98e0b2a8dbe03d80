//! The words of a line: what stands between spaces. Nothing but a space separates; a TAB is part of
//! a word.

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

    /// Whether no word is left.
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
