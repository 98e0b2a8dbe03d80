//! Rules for prose: the width of comments and pages, and the first word of headers and of the
//! comments of public items.

/// Maximum number of columns of a line with a comment.
const COLUMNS_MAX: usize = 100;

/// Words with which no header starts, nor the comment of a public item: the subject comes first.
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

/// A `//!` header and comments of public items that start with a question word.
pub(super) fn questions(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    if let Some(word) = text.lines().next().and_then(|line| question(line, "//!")) {
        breaches.push(format!("{name}:1: the header begins with `{word}`; say what the file is"));
    }
    let lines: Vec<&str> = text.lines().collect();
    let (mut open, mut is_comment) = (None, false);
    for (at, line) in lines.iter().enumerate() {
        let is_first = !std::mem::replace(&mut is_comment, line.trim_start().starts_with("///"));
        if is_first && is_comment {
            let is_public = open.is_some() || item(&lines[at..]).starts_with("pub ");
            if let Some(word) = question(line, "///").filter(|_| is_public) {
                breaches.push(format!(
                    "{name}:{}: the comment begins with `{word}`; begin with the subject",
                    at + 1
                ));
            }
        }
        // The contents of an enum or a trait are as public as itself.
        let (code, indent) = (line.trim_start(), line.len() - line.trim_start().len());
        let opens = code.starts_with("pub enum ") || code.starts_with("pub trait ");
        if open.is_none() && opens && code.ends_with('{') {
            open = Some(indent);
        } else if open == Some(indent) && code.starts_with('}') {
            open = None;
        }
    }
    breaches
}

/// The question word at the start of a comment's line.
fn question<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let first = line.trim_start().strip_prefix(mark)?.split_whitespace().next()?;
    let word = first.trim_matches(|sign: char| !sign.is_alphanumeric());
    QUESTIONS.contains(&word).then_some(word)
}

/// The first line of the item to which the comment at the start of `lines` belongs.
fn item<'a>(lines: &[&'a str]) -> &'a str {
    let mut open = 0;
    for line in lines.iter().map(|line| line.trim_start()) {
        let is_attribute = open > 0 || line.starts_with("#[");
        if is_attribute {
            open = (open + line.matches('[').count()).saturating_sub(line.matches(']').count());
        } else if !line.starts_with("//") {
            return line;
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_comments_are_reported_but_not_wide_code() {
        let wide = "x".repeat(98);
        let text = format!("/// {wide}\nlet a = \"{wide}{wide}\";\nlet b; // {wide}\n// {}\n", "x");
        let breaches = columns("a.rs", &text);
        assert_eq!(breaches, ["a.rs:1: 102 columns", "a.rs:3: 108 columns"]);
        assert!(columns("a.rs", &format!("// {}é\n", "x".repeat(96))).is_empty());
    }

    #[test]
    fn wide_prose_is_reported_but_not_wide_blocks() {
        let wide = "word ".repeat(21);
        let free = format!("```\n{wide}\n```\n| {wide} |\n    {wide}\n{}\n", "x".repeat(101));
        assert!(page_columns("a.md", &free).is_empty());
        assert_eq!(page_columns("a.md", &format!("{free}{wide}")), ["a.md:7: 105 columns"]);
    }

    #[test]
    fn a_header_must_not_be_a_question() {
        assert_eq!(questions("a.rs", "//! What stands here.\n").len(), 1);
        assert_eq!(questions("a.rs", "//! Who, and more.\n").len(), 1);
        assert!(questions("a.rs", "//! Whatever is sent: parsed.\n").is_empty());
        assert!(questions("a.rs", "//! The parser.\n//! What it reads.\n").is_empty());
        assert!(questions("a.rs", "fn main() {}\n").is_empty());
    }

    #[test]
    fn a_public_items_comment_must_not_be_a_question() {
        let asks = |text: &str| questions("a.rs", text).len() == 1;
        assert!(asks("/// Whether it is.\npub fn a() {}\n"));
        assert!(asks("/// Why.\n#[error(\"a\")]\n#[allow(\n    b\n)]\npub struct A;\n"));
        assert!(asks("pub struct A {\n    /// When.\n    pub at: u64,\n}\n"));
        assert!(asks("pub enum A {\n    /// One.\n    B,\n    /// What.\n    C,\n}\n"));
        assert!(asks("pub trait A {\n    /// Who.\n    fn b();\n}\n"));
        let private = "/// Whether it is.\nfn a() {}\n/// Why.\npub(crate) fn b() {}\n";
        assert!(!asks(private));
        assert!(!asks(&format!("pub enum A {{\n    B,\n}}\n{private}")));
        assert!(!asks("/// The time.\n/// When it is.\npub fn a() {}\n"));
    }
}
