//! The paths in a Rust file: its imports, and paths in its code that start with `crate`, `self` or
//! `super`. Excludes code only for tests.

use super::lexer;

/// A path as it is written in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    /// The name that an import gives to it; `*` for a glob. `None` outside imports.
    pub(super) alias: Option<String>,
    /// The modules in the file that contain it.
    pub(super) inside: Vec<String>,
    /// Counted from 1.
    pub(super) line: usize,
}

/// The contribution of one file to the module graph.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Imports {
    pub(super) named: Vec<Named>,
    /// Modules only for tests: `#[cfg(test)] mod name;`.
    pub(super) tests: Vec<String>,
}

/// A word or a sign of code, and its line.
type Token<'a> = (&'a str, usize);

/// Reads one file.
pub(super) fn read(text: &str) -> Imports {
    let code = lexer::code(text);
    let tokens = tokens(&code);
    let mut found = Imports::default();
    let (mut at, mut depth) = (0, 0_usize);
    let mut inside: Vec<(String, usize)> = Vec::new();
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            let end = at + item(&tokens[at..]);
            if let Some(name) = module_declared(&tokens[at..end]) {
                found.tests.push(name.to_owned());
            }
            at = end;
            continue;
        }
        match tokens[at].0 {
            "{" => depth += 1,
            "}" => {
                depth = depth.saturating_sub(1);
                inside.retain(|(_, opened)| *opened <= depth);
            }
            "mod" if text_at(&tokens, at + 2) == "{" => {
                inside.push((tokens[at + 1].0.to_owned(), depth + 1));
            }
            _ => {}
        }
        let modules = || inside.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        if tokens[at].0 == "use" {
            at += 1;
            import(&tokens, &mut at, &[], &modules(), &mut found.named);
        } else if begins_path(&tokens, at) {
            let line = tokens[at].1;
            let path = segments(&tokens, &mut at);
            found.named.push(Named { path, alias: None, inside: modules(), line });
        } else {
            at += 1;
        }
    }
    found
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    for (at, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let end = if is_word(first) {
                rest.find(|sign| !is_word(sign)).unwrap_or(rest.len())
            } else if rest.starts_with("::") {
                2
            } else {
                first.len_utf8()
            };
            found.push((&rest[..end], at + 1));
            rest = rest[end..].trim_start();
        }
    }
    found
}

fn text_at<'a>(tokens: &[Token<'a>], at: usize) -> &'a str {
    tokens.get(at).map_or("", |(text, _)| text)
}

/// True for `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    let begins = |wanted: &[&str]| {
        wanted.iter().enumerate().all(|(at, wanted)| text_at(tokens, at) == *wanted)
    };
    begins(&["#", "[", "cfg", "(", "test"]) || begins(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// The first words of items that do not end at a comma.
const ITEMS: [&str; 9] =
    ["const", "enum", "fn", "impl", "let", "static", "struct", "trait", "type"];

/// The number of tokens of the item, field or variant that starts here with an attribute.
fn item(tokens: &[Token<'_>]) -> usize {
    let (mut depth, mut is_import, mut is_item) = (0_usize, false, false);
    for (at, (text, _)) in tokens.iter().enumerate() {
        match *text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                // A closing bracket around the item, as after a struct's last field.
                let Some(less) = depth.checked_sub(1) else { return at };
                depth = less;
                if depth == 0 && *text == "}" && !is_import {
                    return at + 1;
                }
            }
            "use" if depth == 0 => (is_import, is_item) = (true, true),
            ";" if depth == 0 => return at + 1,
            "," if depth == 0 && !is_item => return at + 1,
            word => is_item |= ITEMS.contains(&word),
        }
    }
    tokens.len()
}

fn module_declared<'a>(item: &[Token<'a>]) -> Option<&'a str> {
    let [.., ("mod", _), (name, _), (";", _)] = item else { return None };
    Some(name)
}

/// Whether a path from the crate, this module or its parent starts here. A path in `pub(in ..)` is
/// only a visibility.
fn begins_path(tokens: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map_or("", |at| tokens[at].0);
    matches!(tokens[at].0, "crate" | "self" | "super")
        && text_at(tokens, at + 1) == "::"
        && !matches!(before, "in" | "::")
}

/// The words joined by `::`. Ends after the last one; a `::` may follow.
fn segments(tokens: &[Token<'_>], at: &mut usize) -> Vec<String> {
    let is_word = |text: &str| text.starts_with(|sign: char| sign.is_alphabetic() || sign == '_');
    let mut path = Vec::new();
    while is_word(text_at(tokens, *at)) {
        path.push(tokens[*at].0.to_owned());
        *at += 1;
        if text_at(tokens, *at) != "::" || !is_word(text_at(tokens, *at + 1)) {
            break;
        }
        *at += 1;
    }
    path
}

/// One tree of an import: a path, and the contents of its braces.
fn import(
    tokens: &[Token<'_>],
    at: &mut usize,
    prefix: &[String],
    inside: &[String],
    named: &mut Vec<Named>,
) {
    let line = tokens.get(*at).map_or(0, |(_, line)| *line);
    let is_external = prefix.is_empty() && text_at(tokens, *at) == "::";
    *at += usize::from(is_external);
    let mut path = prefix.to_vec();
    path.extend(segments(tokens, at));
    *at += usize::from(text_at(tokens, *at) == "::");
    let alias = match text_at(tokens, *at) {
        "{" => {
            *at += 1;
            while *at < tokens.len() && text_at(tokens, *at) != "}" {
                import(tokens, at, &path, inside, named);
                *at += usize::from(text_at(tokens, *at) == ",");
            }
            *at += 1;
            return;
        }
        "*" => {
            *at += 1;
            "*".to_owned()
        }
        "as" => {
            *at += 2;
            text_at(tokens, *at - 1).to_owned()
        }
        _ => path.last().cloned().unwrap_or_default(),
    };
    // `a::{self}` names `a`.
    let alias = if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
        if alias == "self" { path.last().cloned().unwrap_or_default() } else { alias }
    } else {
        alias
    };
    if path.is_empty() {
        // Not an import: a bound such as `use<'a>`.
        return;
    }
    if !is_external {
        named.push(Named { path, alias: Some(alias), inside: inside.to_vec(), line });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths with their lines and the names from imports.
    fn paths(text: &str) -> Vec<(String, usize, Option<String>)> {
        read(text).named.into_iter().map(|n| (n.path.join("::"), n.line, n.alias)).collect()
    }

    #[test]
    fn import_trees_are_parsed() {
        let text = "use crate::{a::B,\n c::{self, D as E, f::*}};\nuse super::G;\nuse ::h::I;\n";
        let name = |name: &str| Some(name.to_owned());
        assert_eq!(
            paths(text),
            [
                ("crate::a::B".to_owned(), 1, name("B")),
                ("crate::c".to_owned(), 2, name("c")),
                ("crate::c::D".to_owned(), 2, name("E")),
                ("crate::c::f".to_owned(), 2, name("*")),
                ("super::G".to_owned(), 3, name("G")),
            ]
        );
    }

    #[test]
    fn paths_in_comments_and_visibilities_are_ignored() {
        let text = "//! crate::a\npub(in crate::b) fn f(self) -> crate::c::D<super::E> {\n\
            self.g(\"crate::h\"); $crate::i!(); crate::j::K::<u8>::l() }\n";
        let found: Vec<String> = paths(text).into_iter().map(|(path, ..)| path).collect();
        assert_eq!(found, ["crate::c::D", "super::E", "crate::i", "crate::j::K"]);
    }

    #[test]
    fn test_code_is_excluded() {
        let text = "#[cfg(test)]\nmod a;\n#[cfg(all(test, loom))]\n#[path = \"x.rs\"]\nmod b;\n\
            #[cfg(test)]\nuse crate::{c, d};\n#[cfg(test)]\nfn e() { crate::f() }\n\
            struct G { #[cfg(test)] h: crate::i, n: crate::o }\nmod j;\n#[cfg(test)]\nmod k { use super::*; }\n\
            fn l() { crate::m() }\n";
        let found = read(text);
        assert_eq!(found.tests, ["a", "b"]);
        let named: Vec<String> = found.named.iter().map(|named| named.path.join("::")).collect();
        assert_eq!(named, ["crate::o", "crate::m"]);
    }

    #[test]
    fn inline_modules_are_recognized() {
        let text = "mod a { use super::b; fn c() {} mod d { use super::e; } }\nuse super::f;\n";
        let inside: Vec<String> =
            read(text).named.iter().map(|named| named.inside.join("::")).collect();
        assert_eq!(inside, ["a", "a::d", ""]);
    }
}
