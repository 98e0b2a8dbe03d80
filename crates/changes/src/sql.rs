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

/// The first bytes of characters of several bytes in Big5, GBK and GB 18030, and in Shift-JIS,
/// where the bytes between are whole characters.
const LEADS: [fn(u8) -> bool; 2] =
    [|byte| matches!(byte, 0x81..=0xfe), |byte| matches!(byte, 0x81..=0x9f | 0xe0..=0xfc)];

/// The texts that a statement may also be if it may not be UTF-8, besides the text with each byte
/// as one character. They have the second byte of a character as a character that is not ASCII; see
/// [`byte`].
///
/// In the character sets `big5`, `gbk`, `gb18030`, `sjis` and `cp932`, such a byte can be that of a
/// backslash or a backtick. The log does not always show the character set of the session. There
/// are no texts if the statement has no such byte.
#[must_use]
pub fn wide_texts(statement: &[u8]) -> Vec<String> {
    let has_rest =
        statement.windows(2).any(|pair| LEADS[0](pair[0]) && matches!(pair[1], b'\\' | b'`'));
    if !has_rest {
        return Vec::new();
    }
    LEADS.map(|is_lead| wide_text(statement, is_lead)).into()
}

fn wide_text(statement: &[u8], is_lead: fn(u8) -> bool) -> String {
    let mut is_after_lead = false;
    let letter = |byte: &u8| {
        let is_rest = is_after_lead && *byte >= 0x40;
        is_after_lead = !is_rest && is_lead(*byte);
        let letter = char::from(*byte);
        if is_rest { char::from_u32(REST + u32::from(*byte)).unwrap_or(letter) } else { letter }
    };
    statement.iter().map(letter).collect()
}

/// The character of a second byte is this much above it.
const REST: u32 = 0x100;

/// The byte of a character in a text that has one for each byte.
#[must_use]
pub const fn byte(letter: char) -> u8 {
    let [.., byte] = (letter as u32).to_be_bytes();
    byte
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
    fn second_bytes_of_characters_are_no_signs() {
        assert_eq!(wide_texts(b"'\xe9t\xe9' \\"), [""; 0], "no byte has two meanings");
        let texts = wide_texts(b"\x95\x95\\\x95\\\xb1`\x81\x30");
        let expected = [
            "\u{95}\u{195}\\\u{95}\u{15c}\u{b1}\u{160}\u{81}0",
            "\u{95}\u{195}\\\u{95}\u{15c}\u{b1}`\u{81}0",
        ];
        assert_eq!(texts, expected);
        assert_eq!(
            texts[0].chars().map(byte).collect::<Vec<_>>(),
            b"\x95\x95\\\x95\\\xb1`\x81\x30"
        );
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
