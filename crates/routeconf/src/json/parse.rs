//! Text to values.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{DEPTH_MAX, Node, Value};
use crate::source::{At, Diagnostic, Fallible, fail};

/// Parses a whole file. If a name occurs twice in an object, the last one wins, as in mcrouter,
/// with a warning.
pub(crate) fn parse(text: &str, file: u16, warnings: &mut Vec<Diagnostic>) -> Fallible<Node> {
    let mut parser = Parser { rest: text, at: At { file, line: 1, column: 1 }, warnings };
    let text = parser.rest.strip_prefix('\u{feff}');
    parser.rest = text.unwrap_or(parser.rest);
    parser.skip_blank()?;
    let node = parser.value(0)?;
    parser.skip_blank()?;
    if parser.rest.is_empty() {
        return Ok(node);
    }
    fail(parser.at, "something follows the end of the configuration")
}

struct Parser<'t, 'w> {
    rest: &'t str,
    at: At,
    warnings: &'w mut Vec<Diagnostic>,
}

impl Parser<'_, '_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Consumes the next character.
    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next()?;
        self.rest = chars.as_str();
        if next == '\n' {
            self.at.line = self.at.line.saturating_add(1);
            self.at.column = 1;
        } else {
            self.at.column = self.at.column.saturating_add(1);
        }
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let there = self.peek() == Some(wanted);
        if there {
            self.next();
        }
        there
    }

    /// Skips white space and comments.
    fn skip_blank(&mut self) -> Fallible<()> {
        loop {
            if self.rest.starts_with("//") {
                while self.peek().is_some_and(|c| c != '\n') {
                    self.next();
                }
            } else if self.rest.starts_with("/*") {
                let start = self.at;
                self.next();
                self.next();
                while !self.rest.starts_with("*/") {
                    if self.next().is_none() {
                        return fail(start, "this comment is not closed");
                    }
                }
                self.next();
                self.next();
            } else if self.peek().is_some_and(char::is_whitespace) {
                self.next();
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: u32) -> Fallible<Node> {
        let at = self.at;
        if depth > DEPTH_MAX {
            return fail(at, format!("more than {DEPTH_MAX} levels of lists and objects"));
        }
        let value = match self.peek() {
            None => return fail(at, "the file ends where a value is expected"),
            Some('{') => return self.object(depth),
            Some('[') => return self.array(depth),
            Some('"') => Value::String(self.string()?),
            Some('-' | '0'..='9') => self.number()?,
            Some('a'..='z' | 'A'..='Z' | '_') => self.word()?,
            Some(other) => return fail(at, format!("expected a value, not {other:?}")),
        };
        Ok(Node { value, at })
    }

    fn array(&mut self, depth: u32) -> Fallible<Node> {
        let at = self.at;
        self.next();
        let mut items = Vec::new();
        loop {
            self.skip_blank()?;
            if self.take(']') {
                return Node::array(items, at);
            }
            items.push(self.value(depth + 1)?);
            self.skip_blank()?;
            if !self.take(',') && self.peek() != Some(']') {
                return self.missing("',' or ']'", "list", at);
            }
        }
    }

    fn object(&mut self, depth: u32) -> Fallible<Node> {
        let at = self.at;
        self.next();
        let mut members = IndexMap::new();
        loop {
            self.skip_blank()?;
            if self.take('}') {
                return Node::object(members, at);
            }
            if self.peek() != Some('"') {
                return self.missing("a quoted name or '}'", "object", at);
            }
            let name_at = self.at;
            let name = self.string()?;
            self.skip_blank()?;
            if !self.take(':') {
                return self.missing("':'", "object", at);
            }
            self.skip_blank()?;
            let value = self.value(depth + 1)?;
            if members.insert(Arc::clone(&name), value).is_some() {
                let message = format!("'{name}' stands twice in this object; the last one counts");
                self.warnings.push(Diagnostic::warning(name_at, message));
            }
            self.skip_blank()?;
            if !self.take(',') && self.peek() != Some('}') {
                return self.missing("',' or '}'", "object", at);
            }
        }
    }

    fn missing<T>(&self, wanted: &str, what: &str, start: At) -> Fallible<T> {
        let found = match self.peek() {
            Some(found) => format!("{found:?}"),
            None => "the end of the file".to_owned(),
        };
        let (line, column) = (start.line, start.column);
        let what = format!("the {what} of line {line}, column {column}");
        fail(self.at, format!("expected {wanted} in {what}, not {found}"))
    }

    /// Reads from after the opening quote up to the closing one.
    fn string(&mut self) -> Fallible<Arc<str>> {
        let start = self.at;
        self.next();
        let mut text = String::new();
        loop {
            let at = self.at;
            match self.next() {
                None | Some('\n') => return fail(start, "this string is not closed on its line"),
                Some('"') => return Ok(text.into()),
                Some('\\') => text.push(self.escape(at)?),
                Some(other) => text.push(other),
            }
        }
    }

    fn escape(&mut self, at: At) -> Fallible<char> {
        Ok(match self.next() {
            Some(same @ ('"' | '\\' | '/')) => same,
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                let high = self.hex4(at)?;
                if !(0xd800..0xdc00).contains(&high) {
                    return char::from_u32(high).map_or_else(|| fail(at, HALF), Ok);
                }
                if !(self.take('\\') && self.take('u')) {
                    return fail(at, HALF);
                }
                let low = self.hex4(at)?;
                if !(0xdc00..0xe000).contains(&low) {
                    return fail(at, HALF);
                }
                let scalar = 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                return char::from_u32(scalar).map_or_else(|| fail(at, HALF), Ok);
            }
            _ => return fail(at, "an unknown escape in a string"),
        })
    }

    fn hex4(&mut self, at: At) -> Fallible<u32> {
        let mut number = 0;
        for _ in 0..4 {
            match self.next().and_then(|digit| digit.to_digit(16)) {
                Some(digit) => number = number << 4 | digit,
                None => return fail(at, "\\u needs four hexadecimal digits"),
            }
        }
        Ok(number)
    }

    fn number(&mut self) -> Fallible<Value> {
        let (start, at) = (self.rest, self.at);
        while self.peek().is_some_and(|c| matches!(c, '-' | '+' | '.' | 'e' | 'E' | '0'..='9')) {
            self.next();
        }
        let text = start.get(..start.len() - self.rest.len()).unwrap_or_default();
        let digits = text.strip_prefix('-').unwrap_or(text);
        let leading_zero = digits.len() > 1
            && digits.starts_with('0')
            && digits.as_bytes().get(1).is_some_and(u8::is_ascii_digit);
        if leading_zero {
            return fail(at, format!("the number {text} begins with a zero"));
        }
        if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return match text.parse() {
                Ok(number) => Ok(Value::Int(number)),
                Err(_) => fail(at, format!("{text} is not a number of 64 bits")),
            };
        }
        match text.parse::<f64>() {
            Ok(number)
                if number.is_finite() && digits.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                Ok(Value::Float(number))
            }
            _ => fail(at, format!("{text} is not a number")),
        }
    }

    fn word(&mut self) -> Fallible<Value> {
        let (start, at) = (self.rest, self.at);
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
            self.next();
        }
        match start.get(..start.len() - self.rest.len()).unwrap_or_default() {
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            "null" => Ok(Value::Null),
            other => fail(at, format!("'{other}' is not a value; strings need quotes")),
        }
    }
}

const HALF: &str = "\\u names half a character";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Fallible<Node> {
        parse(text, 0, &mut Vec::new())
    }

    /// Place and message.
    fn refusal(text: &str) -> String {
        let error = read(text).unwrap_err();
        format!("{}:{} {}", error.at.line, error.at.column, error.message)
    }

    #[test]
    fn comments_and_trailing_commas_are_ignored() {
        let text = "/* a\n b */ { // c\n \"x\" : [1, -2.5, true,], \"y\": {}, }\n// end";
        let node = read(text).unwrap();
        let list = node.get("x").unwrap();
        assert_eq!((list.at.line, list.at.column), (3, 8));
        let values: Vec<_> =
            list.as_array().unwrap().iter().map(|item| item.value.clone()).collect();
        assert_eq!(values, [Value::Int(1), Value::Float(-2.5), Value::Bool(true)]);
        assert_eq!(read("\"http://x/*y*/\"").unwrap().as_str(), Some("http://x/*y*/"));
        assert_eq!(read("\"\\u00e4\\ud83d\\ude00\\n\"").unwrap().as_str(), Some("ä😀\n"));
    }

    #[test]
    fn errors_contain_their_position() {
        for (text, error) in [
            ("", "1:1 the file ends where a value is expected"),
            ("{\n \"a\" 1}", "2:6 expected ':' in the object of line 1, column 1, not '1'"),
            (
                "{\"a\": 1 \"b\": 2}",
                "1:9 expected ',' or '}' in the object of line 1, column 1, not '\"'",
            ),
            ("[1 2]", "1:4 expected ',' or ']' in the list of line 1, column 1, not '2'"),
            ("[", "1:2 the file ends where a value is expected"),
            (
                "{",
                "1:2 expected a quoted name or '}' in the object of line 1, column 1, not the end of the file",
            ),
            (
                "{a: 1}",
                "1:2 expected a quoted name or '}' in the object of line 1, column 1, not 'a'",
            ),
            ("\"a\n\"", "1:1 this string is not closed on its line"),
            ("/* a", "1:1 this comment is not closed"),
            ("{} {}", "1:4 something follows the end of the configuration"),
            ("yes", "1:1 'yes' is not a value; strings need quotes"),
            ("99999999999999999999", "1:1 99999999999999999999 is not a number of 64 bits"),
            ("1e999", "1:1 1e999 is not a number"),
            ("-", "1:1 - is not a number of 64 bits"),
            ("012", "1:1 the number 012 begins with a zero"),
            ("\"\\x\"", "1:2 an unknown escape in a string"),
            ("\"\\ud800x\"", "1:2 \\u names half a character"),
            ("\"ä\" ä", "1:5 something follows the end of the configuration"),
        ] {
            assert_eq!(refusal(text), error, "{text}");
        }
    }

    #[test]
    fn the_nesting_depth_is_bounded() {
        assert!(read(&format!("{}{}", "[".repeat(100), "]".repeat(100))).is_ok());
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(refusal(&deep).contains("levels"), "and the stack is left whole");
    }

    #[test]
    fn the_last_duplicate_name_wins_with_a_warning() {
        let mut warnings = Vec::new();
        let node = parse("{\"a\": 1,\n \"a\": 2}", 0, &mut warnings).unwrap();
        assert_eq!(node.get("a").map(|node| node.value.clone()), Some(Value::Int(2)));
        assert_eq!((warnings[0].at.line, warnings[0].at.column), (2, 2));
    }
}
