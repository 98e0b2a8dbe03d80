//! Reasons for orderings of atomics: a file that uses `Relaxed` explains once why that is enough,
//! and each stronger ordering has a comment next to it that names its partner.
//!
//! A program can only check that a comment of the file contains the word `Relaxed`, and that within
//! a few lines above a stronger ordering a comment contains the ordering's name or a form of the
//! verb "to pair". Tests are excluded.

use super::lexer::{Token, source_words};

/// Maximum distance in lines from a strong ordering up to the end of its comment.
const LINES_ABOVE_MAX: usize = 8;

const STRONG: [&str; 4] = ["AcqRel", "Acquire", "Release", "SeqCst"];

/// Words that name a partner in comments.
const PAIRS: [&str; 5] = ["pair", "paired", "pairs", "partner", "partners"];

/// Orderings in a source file without their reasons.
pub(super) fn source(name: &str, text: &str) -> Vec<String> {
    if !name.contains("/src/") || is_test(name) {
        return Vec::new();
    }
    let words = source_words(text);
    let uses = uses(text, &words);
    let comments: Vec<&Token<'_>> = words.iter().filter(|word| !word.is_code).collect();
    let mut breaches = Vec::new();
    if let Some(first) = uses.iter().find(|word| word.text == "Relaxed")
        && comments.iter().all(|word| word.text != "Relaxed")
    {
        breaches.push(format!("{name}:{}: no comment says why Relaxed is enough", first.line));
    }
    let mut seen = 0;
    for word in uses.iter().filter(|word| STRONG.contains(&word.text)) {
        let is_argued = comments.iter().any(|comment| {
            let above = word.line.checked_sub(comment.line);
            let is_pair = PAIRS.iter().any(|pair| comment.text.eq_ignore_ascii_case(pair));
            above.is_some_and(|above| above <= LINES_ABOVE_MAX)
                && (comment.text == word.text || is_pair)
        });
        if !is_argued && word.line != seen {
            breaches.push(format!("{name}:{}: {} without its partner", word.line, word.text));
        }
        seen = word.line;
    }
    breaches
}

/// Orderings in use before the tests: words after `Ordering`, or imported ones.
fn uses<'a>(text: &str, words: &[Token<'a>]) -> Vec<Token<'a>> {
    let end = text.lines().position(|line| line == "#[cfg(test)]").unwrap_or(usize::MAX);
    let imports: Vec<&str> =
        text.lines().filter(|line| line.trim_start().starts_with("use ")).collect();
    let is_import = |line: usize| {
        text.lines().nth(line - 1).is_some_and(|line| line.trim_start().starts_with("use "))
    };
    let is_ordering = |place: usize, word: &Token<'_>| {
        let before = place.checked_sub(1).and_then(|before| words.get(before));
        before.is_some_and(|before| before.text == "Ordering")
            || imports.iter().any(|line| line.contains("Ordering::") && line.contains(word.text))
    };
    let names = |word: &Token<'_>| word.text == "Relaxed" || STRONG.contains(&word.text);
    words
        .iter()
        .enumerate()
        .filter(|(_, word)| word.is_code && word.line <= end && names(word))
        .filter(|(place, word)| is_ordering(*place, word) && !is_import(word.line))
        .map(|(_, word)| *word)
        .collect()
}

/// Whether a file contains only tests, by its name.
fn is_test(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or_default();
    name.contains("/tests/")
        || name.contains("/simulation/")
        || file == "tests.rs"
        || file.ends_with("_tests.rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "crates/a/src/b.rs";

    #[test]
    fn relaxed_needs_one_explanation_per_file() {
        let text =
            "use std::sync::atomic::Ordering::Relaxed;\na.load(Relaxed);\nb.load(Relaxed);\n";
        assert_eq!(
            source(NAME, text),
            ["crates/a/src/b.rs:2: no comment says why Relaxed is enough"]
        );
        let argued = format!("{text}// Relaxed: a late number does no harm.\n");
        assert!(source(NAME, &argued).is_empty());
        assert!(source(NAME, "use std::sync::atomic::Ordering::Relaxed;\n").is_empty());
    }

    #[test]
    fn a_strong_ordering_must_name_its_partner() {
        let text = "a.store(1, Ordering::Release);\n";
        assert_eq!(source(NAME, text), ["crates/a/src/b.rs:1: Release without its partner"]);
        assert!(source(NAME, &format!("// Pairs.\n// It pairs with `load`.\n{text}")).is_empty());
        assert!(
            source(NAME, &format!("// Release: `load` sees what came before.\n{text}")).is_empty()
        );
        assert!(source(NAME, "a.store(1, Ordering::Release); // Release for `load`.\n").is_empty());
        assert!(source(NAME, &format!("// Partner: the load of `b`.\n{text}")).is_empty());
        let far = format!("// Release.\n{}{text}", "b();\n".repeat(LINES_ABOVE_MAX));
        assert_eq!(source(NAME, &far).len(), 1);
        assert_eq!(source(NAME, &format!("// Acquire.\n{text}")).len(), 1);
        let one_line = "a.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);\n";
        assert_eq!(source(NAME, one_line).len(), 1);
    }

    #[test]
    fn tests_are_exempt() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { c.load(Ordering::SeqCst); } }\n";
        assert!(source(NAME, text).is_empty());
        let used = "c.load(Ordering::Relaxed);\n";
        assert!(source("crates/a/src/b_tests.rs", used).is_empty());
        assert!(source("crates/a/tests/b.rs", used).is_empty());
        assert_eq!(source("crates/a/src/tests_of.rs", used).len(), 1);
    }

    #[test]
    fn other_items_with_ordering_names_are_ignored() {
        assert!(source(NAME, "match a { Action::Release => {} }\n").is_empty());
    }
}
