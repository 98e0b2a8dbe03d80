//! Banned words: the words that the glossary's table refuses in code and pages.

use super::lexer::{Token, page_words, source_words};

/// The heading above the table in `docs/glossary.md`.
const HEADING: &str = "## Banned words";

/// The places in which a word is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Code, comments, strings, pages, file names.
    Everywhere,
    /// Identifiers and file names.
    Names,
    /// The whole name of a file or folder, without its extension.
    Files,
}

/// A row of the table.
#[derive(Debug)]
pub(super) struct Banned {
    /// One word, or several in sequence. With a capital letter it is compared in that spelling; a
    /// `0` stands for any digit.
    words: Vec<String>,
    scope: Scope,
    say: String,
}

/// The table of the glossary. Adds a breach for an invalid row and for a missing table.
pub(super) fn banned(glossary: &str, breaches: &mut Vec<String>) -> Vec<Banned> {
    let table = glossary.split_once(HEADING).map_or("", |(_, table)| table);
    let mut found = Vec::new();
    for line in table.lines().filter(|line| line.starts_with('|')).skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let scope = match cells.get(1) {
            Some(&"everywhere") => Some(Scope::Everywhere),
            Some(&"names") => Some(Scope::Names),
            Some(&"files") => Some(Scope::Files),
            _ => None,
        };
        let (Some(scope), [word, _, say]) = (scope, &cells[..]) else {
            breaches.push(format!("docs/glossary.md: cannot read the row `{line}`"));
            continue;
        };
        let words = word.split(' ').map(str::to_owned).collect();
        found.push(Banned { words, scope, say: (*say).to_owned() });
    }
    if found.is_empty() {
        breaches.push(format!("docs/glossary.md: no table below `{HEADING}`"));
    }
    found
}

/// Banned words in a Rust file and in its path.
pub(super) fn source(name: &str, text: &str, banned: &[Banned]) -> Vec<String> {
    let mut breaches = path(name, banned);
    breaches.extend(tokens(name, &source_words(text), banned));
    breaches
}

/// Banned words in a page.
pub(super) fn page(name: &str, text: &str, banned: &[Banned]) -> Vec<String> {
    tokens(name, &page_words(text), banned)
}

fn path(name: &str, banned: &[Banned]) -> Vec<String> {
    let mut breaches = Vec::new();
    for stem in name.split('/').map(|part| part.split_once('.').map_or(part, |(stem, _)| stem)) {
        for row in banned {
            let is_refused = match row.scope {
                Scope::Files => row.words == [stem],
                Scope::Everywhere | Scope::Names => has_part(stem, &row.words),
            };
            if is_refused {
                breaches.push(format!("{name}:0: the name `{stem}`: say {}", row.say));
            }
        }
    }
    breaches
}

fn tokens(name: &str, tokens: &[Token<'_>], banned: &[Banned]) -> Vec<String> {
    let mut breaches = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        for row in banned {
            let applies = match row.scope {
                Scope::Everywhere => true,
                Scope::Names => token.is_code,
                Scope::Files => false,
            };
            let is_found = if let [_] = row.words[..] {
                has_part(token.text, &row.words)
            } else {
                let span = tokens.get(place..place + row.words.len()).unwrap_or(&[]);
                !span.is_empty()
                    && span.iter().zip(&row.words).all(|(token, word)| is_like(token.text, word))
            };
            if applies && is_found {
                let (line, word, say) = (token.line, row.words.join(" "), &row.say);
                breaches.push(format!("{name}:{line}: `{word}` in `{}`: say {say}", token.text));
            }
        }
    }
    breaches
}

/// Whether a part of the name is the word or its plural. Parts end at underscores and before
/// capital letters.
fn has_part(name: &str, words: &[String]) -> bool {
    let [word] = words else { return false };
    if name.len() < word.len() {
        return false;
    }
    let is_word = |part: &str| {
        is_like(part, word) || part.strip_suffix('s').is_some_and(|part| is_like(part, word))
    };
    let mut start = 0;
    let is_end =
        |(sign, next): (char, char)| sign == '_' || (!sign.is_uppercase() && next.is_uppercase());
    let ends = name
        .char_indices()
        .zip(name.chars().skip(1))
        .filter(|((_, sign), next)| is_end((*sign, *next)))
        .map(|((at, sign), _)| at + sign.len_utf8());
    for end in ends.chain([name.len()]) {
        if is_word(name[start..end].trim_matches('_')) {
            return true;
        }
        start = end;
    }
    false
}

fn is_like(text: &str, word: &str) -> bool {
    let has_case = word.contains(char::is_uppercase);
    text.chars().count() == word.chars().count()
        && text.chars().zip(word.chars()).all(|(own, wanted)| match wanted {
            '0' => own.is_ascii_digit(),
            wanted if has_case => own == wanted,
            wanted => own.to_ascii_lowercase() == wanted,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GLOSSARY: &str = "# Glossary\n\n| word | meaning |\n| --- | --- |\n| gizmo | x |\n\n\
        ## Banned words\n\n| word | where | say |\n| --- | --- | --- |\n\
        | gizmo | everywhere | tool |\n| Blob | names | value |\n| stuff | files | things |\n\
        | very much | everywhere | - |\n| paper 000 | everywhere | its title |\n";

    fn table() -> Vec<Banned> {
        let mut breaches = Vec::new();
        let table = banned(GLOSSARY, &mut breaches);
        assert!(breaches.is_empty(), "{breaches:?}");
        table
    }

    #[test]
    fn a_missing_table_and_a_bad_row_are_breaches() {
        let mut breaches = Vec::new();
        banned("# Glossary\n", &mut breaches);
        assert_eq!(breaches.len(), 1);
        banned(&GLOSSARY.replace("| names |", "| there |"), &mut breaches);
        assert_eq!(breaches.len(), 2);
    }

    #[test]
    fn words_are_found_in_code_comments_strings_and_names() {
        let text =
            "//! Has a gizmo.\nstruct OldGizmo { max_gizmos: u8 }\nconst A: &str = \"Gizmo\";\n";
        let breaches = source("a.rs", text, &table());
        assert_eq!(breaches.len(), 4, "{breaches:?}");
        assert_eq!(breaches[1], "a.rs:2: `gizmo` in `OldGizmo`: say tool");
        assert!(source("a.rs", "// gizmology, paper 7, VERY little much\n", &table()).is_empty());
    }

    #[test]
    fn names_are_refused_only_in_code_and_in_their_spelling() {
        let text = "// A Blob.\nstruct BlobStore; let blob = \"Blob\"; fn a(b: Blobby) {}\n";
        let breaches = source("a.rs", text, &table());
        assert_eq!(breaches, ["a.rs:2: `Blob` in `BlobStore`: say value"]);
    }

    #[test]
    fn file_names_are_matched_as_a_whole() {
        assert_eq!(source("crates/a/src/stuff/mod.rs", "", &table()).len(), 1);
        assert_eq!(source("crates/a/src/old_gizmo.rs", "", &table()).len(), 1);
        assert!(source("crates/a/src/old_stuff.rs", "let stuff = 1;", &table()).is_empty());
    }

    #[test]
    fn phrases_are_found_across_line_breaks() {
        let text = "/// It is very\n/// much so; see paper 123.\n";
        assert_eq!(source("a.rs", text, &table()).len(), 2);
        assert_eq!(page("a.md", "Very much.\n\nPaper 001, gizmo.\n", &table()).len(), 3);
    }
}
