//! Rules of prose: the width of comments and pages, and the first word of a file's header.

/// Columns that a line with a comment may have.
const COLUMNS_MAX: usize = 100;

/// What a header does not begin with: it says what the file is.
const QUESTIONS: [&str; 10] =
    ["How", "What", "When", "Where", "Whether", "Which", "Who", "Whom", "Whose", "Why"];

/// Lines with a comment that are too wide.
pub(super) fn columns(name: &str, text: &str) -> Vec<String> {
    let has_comment = |line: &str| line.trim_start().starts_with("//") || line.contains(" // ");
    text.lines()
        .enumerate()
        .filter(|(_, line)| has_comment(line) && line.chars().count() > COLUMNS_MAX)
        .map(|(at, line)| format!("{name}:{}: {} columns", at + 1, line.chars().count()))
        .collect()
}

/// Lines of a page's prose that are too wide. Code blocks, tables and lines without a space, which
/// cannot be wrapped, may be wider.
pub(super) fn page_columns(name: &str, text: &str) -> Vec<String> {
    let mut is_code = false;
    let mut breaches = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let columns = line.chars().count();
        is_code ^= line.trim_start().starts_with("```");
        let is_free = is_code || line.starts_with("    ") || line.starts_with('|');
        if columns > COLUMNS_MAX && !is_free && line.trim().contains(' ') {
            breaches.push(format!("{name}:{}: {columns} columns", at + 1));
        }
    }
    breaches
}

/// A `//!` header that begins with a question word.
pub(super) fn header(name: &str, text: &str) -> Option<String> {
    let first = text.strip_prefix("//! ")?.split_whitespace().next()?;
    let word = first.trim_matches(|sign: char| !sign.is_alphanumeric());
    QUESTIONS
        .contains(&word)
        .then(|| format!("{name}:1: the header begins with `{word}`; say what the file is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_found_and_wide_code_is_not() {
        let wide = "x".repeat(98);
        let text = format!("/// {wide}\nlet a = \"{wide}{wide}\";\nlet b; // {wide}\n// {}\n", "x");
        let breaches = columns("a.rs", &text);
        assert_eq!(breaches, ["a.rs:1: 102 columns", "a.rs:3: 108 columns"]);
        assert!(columns("a.rs", &format!("// {}é\n", "x".repeat(96))).is_empty());
    }

    #[test]
    fn wide_prose_is_found_and_a_wide_block_is_not() {
        let wide = "word ".repeat(21);
        let free = format!("```\n{wide}\n```\n| {wide} |\n    {wide}\n{}\n", "x".repeat(101));
        assert!(page_columns("a.md", &free).is_empty());
        assert_eq!(page_columns("a.md", &format!("{free}{wide}")), ["a.md:7: 105 columns"]);
    }

    #[test]
    fn a_header_is_no_question() {
        assert!(header("a.rs", "//! What stands here.\n").is_some());
        assert!(header("a.rs", "//! Who, and more.\n").is_some());
        assert!(header("a.rs", "//! Whatever is sent: parsed.\n").is_none());
        assert!(header("a.rs", "//! The parser. What it reads.\n").is_none());
        assert!(header("a.rs", "fn main() {}\n").is_none());
    }
}
