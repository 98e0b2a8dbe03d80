//! Words of a Rust file or a page, with their lines, and whether they are code.

/// A word: letters, digits and underscores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    /// Counted from 1.
    pub(super) line: usize,
    /// False in comments, strings and pages.
    pub(super) is_code: bool,
}

/// The words of a page.
pub(super) fn page_words(text: &str) -> Vec<Token<'_>> {
    let mut words = Vec::new();
    for (at, line) in text.lines().enumerate() {
        push(&mut words, line, at + 1, false);
    }
    words
}

/// The words of a Rust file. Escape sequences in strings are not words.
pub(super) fn source_words(text: &str) -> Vec<Token<'_>> {
    let mut words = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while !rest.is_empty() {
        let (piece, is_code) = piece(rest);
        for (at, part) in piece.split('\n').enumerate() {
            push(&mut words, part, line + at, is_code);
        }
        line += piece.matches('\n').count();
        rest = &rest[piece.len()..];
    }
    words
}

/// The text with blanks instead of comments, strings and characters. Lines keep their places.
pub(super) fn code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let (piece, is_code) = piece(rest);
        if is_code {
            kept.push_str(piece);
        } else {
            kept.extend(piece.chars().map(|sign| if sign == '\n' { '\n' } else { ' ' }));
        }
        rest = &rest[piece.len()..];
    }
    kept
}

/// The first comment, string, character, escape or run of code, and whether it is code.
fn piece(text: &str) -> (&str, bool) {
    let upto = |end: Option<usize>| &text[..end.unwrap_or(text.len())];
    if text.starts_with("//") {
        return (upto(text.find('\n')), false);
    }
    if text.starts_with("/*") {
        return (upto(text.find("*/").map(|at| at + 2)), false);
    }
    if let Some(hashes) = raw_string(text) {
        let close = format!("\"{}", "#".repeat(hashes));
        let start = hashes + 2;
        let end = text[start..].find(&close).map(|at| start + at + close.len());
        return (upto(end), false);
    }
    if text.starts_with('"') {
        return (upto(string_end(text)), false);
    }
    if let Some(inside) = text.strip_prefix('\'') {
        // A character, or the start of a lifetime.
        let mut signs = inside.char_indices();
        let first = signs.next().map_or(' ', |(_, sign)| sign);
        let second = signs.next();
        if first == '\\' {
            let end = inside[1..].char_indices().skip(1).find(|(_, sign)| *sign == '\'');
            return (upto(end.map(|(at, _)| at + 3)), false);
        }
        if let Some((at, '\'')) = second {
            return (upto(Some(at + 2)), false);
        }
        return ("'", true);
    }
    // A whole word at a time, so that the `r` of a name starts no raw string.
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let end = if text.starts_with(is_word) {
        text.find(|sign| !is_word(sign))
    } else {
        text.find(|sign| is_word(sign) || matches!(sign, '/' | '"' | '\'')).map(|at| at.max(1))
    };
    (upto(end), true)
}

/// The number of `#` of a raw string that starts here.
fn raw_string(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('r')?;
    let hashes = inside.len() - inside.trim_start_matches('#').len();
    inside[hashes..].starts_with('"').then_some(hashes)
}

/// The place after the closing quote of the string that starts here.
fn string_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    for (at, sign) in text.char_indices().skip(1) {
        match sign {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn push<'a>(words: &mut Vec<Token<'a>>, part: &'a str, line: usize, is_code: bool) {
    let mut start = 0;
    for word in part.split(|sign: char| !sign.is_alphanumeric() && sign != '_') {
        // The letter after a backslash belongs to the escape, as in `\n`.
        let is_escape = !is_code && part[..start].ends_with('\\');
        start += word.len() + part[start + word.len()..].chars().next().map_or(0, char::len_utf8);
        let skipped = word.chars().next().map_or(0, char::len_utf8);
        let text = if is_escape { &word[skipped..] } else { word };
        if !text.is_empty() {
            words.push(Token { text, line, is_code });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<(&str, usize, bool)> {
        source_words(text).iter().map(|word| (word.text, word.line, word.is_code)).collect()
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "let a = \"b \\\"c\\\" d\\nq\"; // e\n/* f\n g */ h('i', '\\'', 'j')\n";
        assert_eq!(
            words(text),
            [
                ("let", 1, true),
                ("a", 1, true),
                ("b", 1, false),
                ("c", 1, false),
                ("d", 1, false),
                ("q", 1, false),
                ("e", 1, false),
                ("f", 2, false),
                ("g", 3, false),
                ("h", 3, true),
                ("i", 3, false),
                ("j", 3, false),
            ]
        );
    }

    #[test]
    fn lifetimes_and_raw_strings_are_delimited_correctly() {
        let text = "fn a<'b>(var: &'b str) { r#\"c \" d\"#; br\"e\"; x / y }\n";
        let code: Vec<&str> =
            source_words(text).iter().filter(|word| word.is_code).map(|word| word.text).collect();
        assert_eq!(code, ["fn", "a", "b", "var", "b", "str", "br", "x", "y"]);
    }

    #[test]
    fn only_code_is_kept_in_its_lines() {
        let text = "a /* b\n */ c \"d\" 'e' // f\ng";
        let kept = code(text);
        assert_eq!(kept.lines().count(), 3);
        assert_eq!(kept.split_whitespace().collect::<Vec<_>>(), ["a", "c", "g"]);
    }

    #[test]
    fn page_words_have_line_numbers() {
        let text = "# A b\n\n    c_d\n";
        let found = page_words(text);
        assert_eq!(found.last(), Some(&Token { text: "c_d", line: 3, is_code: false }));
        assert_eq!(found.len(), 3);
    }
}
