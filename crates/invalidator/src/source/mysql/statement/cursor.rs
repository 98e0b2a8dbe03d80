//! A position in a statement's tokens, and the readers there.

use changes::sql::Token;

/// Reads tokens one after another; a token that does not fit stays.
pub(super) struct Cursor<'c> {
    tokens: &'c [Token<'c>],
    at: usize,
    /// The database of tables named without one.
    schema: &'c str,
}

impl<'c> Cursor<'c> {
    pub(super) const fn new(tokens: &'c [Token<'c>], schema: &'c str) -> Self {
        Self { tokens, at: 0, schema }
    }

    /// The unread tokens.
    pub(super) fn rest(&self) -> &'c [Token<'c>] {
        &self.tokens[self.at.min(self.tokens.len())..]
    }

    /// True if only the end of a statement follows.
    pub(super) fn is_at_end(&self) -> bool {
        matches!(self.rest(), [] | [Token::Sign(';'), ..])
    }

    pub(super) const fn step(&mut self) {
        self.at += 1;
    }

    /// The next token if it is a word, in upper case.
    pub(super) fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.rest().first() else { return None };
        self.at += 1;
        Some(word.to_ascii_uppercase())
    }

    /// If the next token is this word, skips it and returns true.
    pub(super) fn skip(&mut self, word: &str) -> bool {
        let is_there = self.rest().first().is_some_and(|token| super::is_word(token, word));
        self.at += usize::from(is_there);
        is_there
    }

    /// If the next token is this sign, skips it and returns true.
    pub(super) fn skip_sign(&mut self, sign: char) -> bool {
        let is_there = self.rest().first() == Some(&Token::Sign(sign));
        self.at += usize::from(is_there);
        is_there
    }

    /// MariaDB's `WAIT n` and `NOWAIT` after a table's name.
    pub(super) fn skip_wait(&mut self) {
        if self.skip("WAIT") {
            self.step();
        }
        self.skip("NOWAIT");
    }

    /// A name. None for one that is not UTF-8, because it cannot be compared.
    pub(super) fn name(&mut self) -> Option<String> {
        let name = match self.rest().first()? {
            Token::Word(word) => (*word).to_owned(),
            Token::Name(name) => name.clone().into_owned(),
            _ => return None,
        };
        if name.is_empty() || name.contains('\u{fffd}') {
            return None;
        }
        self.at += 1;
        Some(name)
    }

    /// A table's name, as `schema.name`.
    pub(super) fn table(&mut self) -> Option<String> {
        let first = self.name()?;
        if !self.skip_sign('.') {
            return Some(format!("{}.{first}", self.schema));
        }
        Some(format!("{first}.{}", self.name()?))
    }

    /// True if any of these words follows outside of parentheses.
    pub(super) fn has_outside(&self, words: &[&str]) -> bool {
        let mut depth = 0_usize;
        self.rest().iter().any(|token| {
            match token {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && words.iter().any(|word| super::is_word(token, word))
        })
    }

    /// The parts of the rest that commas outside of parentheses separate.
    pub(super) fn parts(&self) -> Vec<Self> {
        let mut depth = 0_usize;
        let is_border = |token: &Token<'_>| {
            match token {
                Token::Sign('(') => depth += 1,
                Token::Sign(')') => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth == 0 && matches!(token, Token::Sign(',' | ';'))
        };
        let parts = self.rest().split(is_border).filter(|part| !part.is_empty());
        parts.map(|part| Cursor::new(part, self.schema)).collect()
    }
}
