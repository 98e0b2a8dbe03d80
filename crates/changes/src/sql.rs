//! Splits a statement of MariaDB or MySQL into tokens, as the server reads it.
//!
//! A comment that the server executes (`/*! .. */`, `/*M! .. */`) is a part of the statement:
//! before writing its log, the server removes the mark of those that it did not execute.

use std::borrow::Cow;

/// A piece of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token<'t> {
    /// A word, a number or a name without quotes.
    Word(&'t str),
    /// The text inside backticks or double quotes: a name, or in some modes a string.
    Name(Cow<'t, str>),
    /// A string in single quotes.
    Text,
    /// Any other character.
    Sign(char),
    /// The text of a comment that the server does not execute.
    Comment(&'t str),
}

/// The tokens of a statement, in order.
#[derive(Debug, Clone)]
pub struct Tokens<'t> {
    rest: &'t str,
    /// False in sessions of the mode `NO_BACKSLASH_ESCAPES`.
    escapes: bool,
    /// True inside a comment that the server executes.
    is_executed: bool,
}

impl<'t> Tokens<'t> {
    /// `escapes` is true if a backslash in a string escapes the next character.
    pub const fn new(statement: &'t str, escapes: bool) -> Self {
        Self { rest: statement, escapes, is_executed: false }
    }

    /// Takes `len` bytes. A cut inside a character takes the whole character.
    fn take(&mut self, len: usize) -> &'t str {
        let end = (len..=self.rest.len()).find(|at| self.rest.is_char_boundary(*at));
        let (taken, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        taken
    }

    fn quoted(&mut self, quote: u8) -> Token<'t> {
        let len = quoted(self.rest.as_bytes(), quote, self.escapes);
        let piece = self.take(len);
        if quote == b'\'' {
            return Token::Text;
        }
        let end = if piece.len() > 1 && piece.as_bytes().ends_with(&[quote]) { 1 } else { 0 };
        let inside = &piece[1..piece.len() - end];
        let (once, twice) = (char::from(quote).to_string(), [quote, quote]);
        let twice = std::str::from_utf8(&twice).unwrap_or_default();
        Token::Name(match inside.contains(twice) {
            true => Cow::Owned(inside.replace(twice, &once)),
            false => Cow::Borrowed(inside),
        })
    }
}

impl<'t> Iterator for Tokens<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        loop {
            let bytes = self.rest.as_bytes();
            match bytes {
                [] => return None,
                [byte, ..] if is_space(*byte) => _ = self.take(1),
                [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => {
                    let mark = if bytes[2] == b'M' { 4 } else { 3 };
                    let version = bytes[mark..].iter().take_while(|byte| byte.is_ascii_digit());
                    let version = version.take(6).count();
                    self.take(mark + version);
                    self.is_executed = true;
                }
                [b'*', b'/', ..] if self.is_executed => {
                    self.take(2);
                    self.is_executed = false;
                }
                [b'/', b'*', ..] => {
                    let len = self.rest[2..].find("*/").unwrap_or(self.rest.len() - 2);
                    let comment = &self.take(len + 4)[2..];
                    return Some(Token::Comment(comment.get(..len).unwrap_or(comment)));
                }
                [b'-', b'-'] | [b'-', b'-', 0..=b' ', ..] | [b'#', ..] => {
                    let len = self.rest.find('\n').unwrap_or(self.rest.len());
                    self.take(len);
                }
                [quote @ (b'\'' | b'"' | b'`'), ..] => return Some(self.quoted(*quote)),
                [byte, ..] if is_word(*byte) => {
                    let len = bytes.iter().take_while(|byte| is_word(**byte)).count();
                    return Some(Token::Word(self.take(len)));
                }
                _ => return self.take(1).chars().next().map(Token::Sign),
            }
        }
    }
}

const fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

/// The length of a quoted token in bytes, including the quotes.
fn quoted(rest: &[u8], quote: u8, escapes: bool) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' if escapes && quote != b'`' => at += 2,
            byte if byte == quote => {
                // A doubled quote is a literal quote.
                if rest.get(at + 1) != Some(&quote) {
                    return at + 1;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_tokenized_as_by_the_server() {
        let name = |text: &'static str| Token::Name(Cow::Borrowed(text));
        let all: Vec<_> =
            Tokens::new("a.`b``c` /* x */ 'it\\'s' \"d\" -- e\n=ü # f", true).collect();
        let expected = [
            Token::Word("a"),
            Token::Sign('.'),
            name("b`c"),
            Token::Comment(" x "),
            Token::Text,
            name("d"),
            Token::Sign('='),
            Token::Word("ü"),
        ];
        assert_eq!(all, expected);
        let executed: Vec<_> =
            Tokens::new("DROP /*!40005 TEMPORARY */ /*M!100 x*/", true).collect();
        let words = ["DROP", "TEMPORARY", "x"].map(Token::Word);
        assert_eq!(executed, words);
        assert_eq!(Tokens::new("2*/* k */3", true).nth(2), Some(Token::Comment(" k ")));
    }

    #[test]
    fn backslash_escapes_follow_the_session_mode() {
        let count = |escapes| Tokens::new(r"'C:\' /* k */", escapes).count();
        assert_eq!((count(true), count(false)), (1, 2));
    }

    #[test]
    fn malformed_statements_are_tokenized_without_a_panic() {
        for text in ["'", "\"", "`", "/*", "/*!", "/*M!9", "*/", "--", "-", "'\\", "'ü\\ü", "/* ü"]
        {
            for escapes in [true, false] {
                assert!(Tokens::new(text, escapes).count() <= 4, "{text}");
            }
        }
    }
}
