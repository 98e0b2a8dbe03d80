//! Types that a reader can survey: a type with many methods, or with methods in many files, has the
//! reason in the header of its own file, in a sentence with its name and the word "methods".
//!
//! Methods of traits do not count. The name and the crate identify a type. If a crate has several
//! types of one name, methods belong to the one in the nearest file.

use std::collections::BTreeMap;

use super::lexer;

/// The numbers of methods and files that need no reason.
const METHODS_MAX: usize = 40;
const FILES_MAX: usize = 3;

/// The types of a crate.
#[derive(Debug, Default)]
struct Types<'a> {
    /// Files that define a type of this name.
    defined: BTreeMap<String, Vec<&'a str>>,
    /// Type, file and number of methods of each block of methods.
    blocks: Vec<(String, &'a str, usize)>,
}

/// Types in all sources that are too large or scattered, without a reason.
pub(super) fn large(sources: &[(String, String)]) -> Vec<String> {
    let mut crates: BTreeMap<&str, Types<'_>> = BTreeMap::new();
    for (name, text) in sources.iter().filter(|(name, _)| !name.contains("tests")) {
        if let Some((folder, _)) = name.split_once("/src/") {
            read(name, text, crates.entry(folder).or_default());
        }
    }
    let header = |file: &str| {
        let text = sources.iter().find(|(name, _)| name == file).map_or("", |(_, text)| text);
        text.lines().take_while(|line| line.starts_with("//!")).collect::<String>()
    };
    let mut breaches = Vec::new();
    for types in crates.values() {
        let mut methods: BTreeMap<(&str, &str), BTreeMap<&str, usize>> = BTreeMap::new();
        for (name, file, count) in &types.blocks {
            let Some(home) = types.home(name, file) else { continue };
            *methods.entry((name, home)).or_default().entry(file).or_default() += count;
        }
        for ((name, home), files) in methods {
            let count: usize = files.values().sum();
            let header = header(home);
            let is_argued = header.contains(&format!("[`{name}`]")) && header.contains("methods");
            if (count > METHODS_MAX || files.len() > FILES_MAX) && !is_argued {
                let files = files.len();
                let why = "the header does not say why";
                breaches.push(format!("{home}:1: `{name}`: {count} methods, {files} files; {why}"));
            }
        }
    }
    breaches
}

impl<'a> Types<'a> {
    /// The file of the type of a block in `file`: the one with the longest common path.
    fn home(&self, name: &str, file: &str) -> Option<&'a str> {
        let common =
            |home: &&&str| home.bytes().zip(file.bytes()).take_while(|(a, b)| a == b).count();
        self.defined.get(name)?.iter().max_by_key(common).copied()
    }
}

/// Adds the types and blocks of one file, except its tests.
fn read<'a>(name: &'a str, text: &str, types: &mut Types<'a>) {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = lexer::code(text);
    let mut block: Option<(String, usize)> = None;
    let mut lines = code.lines();
    while let Some(line) = lines.next() {
        if let Some((_, count)) = &mut block {
            *count += usize::from(is_method(line));
            if line.starts_with('}') {
                types.blocks.extend(block.take().map(|(of, count)| (of, name, count)));
            }
        } else if let Some(of) = defined(line) {
            types.defined.entry(of.to_owned()).or_default().push(name);
        } else if line.starts_with("impl") {
            let mut head = line.to_owned();
            while !head.contains('{')
                && let Some(more) = lines.next()
            {
                head.push(' ');
                head.push_str(more);
            }
            block = of_block(&head).filter(|_| !head.trim_end().ends_with('}')).map(|of| (of, 0));
        }
    }
}

/// The type that a top-level line defines.
fn defined(line: &str) -> Option<&str> {
    let public = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) "));
    let line = public.or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    let rest = line.strip_prefix("struct ").or_else(|| line.strip_prefix("enum "))?;
    rest.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

/// The type of a block of methods; `None` for a trait's block.
fn of_block(head: &str) -> Option<String> {
    let mut rest = head.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0_usize;
        let end = rest.find(|sign| {
            depth = if sign == '<' { depth + 1 } else { depth - usize::from(sign == '>') };
            depth == 0
        })?;
        rest = &rest[end + 1..];
    }
    let head = rest.split('{').next()?.trim();
    let of = head.split(" where ").next()?;
    if of.contains(" for ") {
        return None;
    }
    let path = of.split('<').next()?.trim();
    path.rsplit("::").next().map(str::to_owned)
}

fn is_method(line: &str) -> bool {
    line.starts_with("    ")
        && !line.starts_with("     ")
        && !line.contains("//")
        && line.split_whitespace().take(4).any(|word| word == "fn")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| ((*name).to_owned(), (*text).to_owned());
        large(&files.iter().map(file).collect::<Vec<_>>())
    }

    fn methods(of: &str, count: usize) -> String {
        let each = "    pub(crate) const fn f(&self) {\n        fn g() {}\n    }\n";
        format!("impl<'a, T: Into<u8>> {of}<'a, T> {{\n{}}}\n", each.repeat(count))
    }

    #[test]
    fn many_methods_need_a_reason() {
        let home = "pub struct Large<'a, T>(T);\n";
        let text = format!("{home}{}", methods("Large", 41));
        let name = "crates/a/src/b.rs";
        assert_eq!(
            of(&[(name, &text)]),
            ["crates/a/src/b.rs:1: `Large`: 41 methods, 1 files; the header does not say why"]
        );
        let argued = format!("//! [`Large`] has many methods, because.\n{text}");
        assert!(of(&[(name, &argued)]).is_empty());
        assert!(of(&[(name, &format!("{home}{}", methods("Large", 40)))]).is_empty());
        let of_trait = methods("Large", 41).replace("> Large", "> Iterator for Large");
        assert!(of(&[(name, &format!("{home}{of_trait}"))]).is_empty());
    }

    #[test]
    fn many_files_need_a_reason() {
        let one = methods("Wide", 1);
        let home = format!("struct Wide<'a, T>(T);\n{one}");
        let files = [
            ("crates/a/src/a.rs", home.as_str()),
            ("crates/a/src/b.rs", &one),
            ("crates/a/src/c.rs", &one),
            ("crates/a/src/d.rs", &one),
        ];
        assert_eq!(of(&files).len(), 1);
        assert!(of(&files[..3]).is_empty());
    }

    #[test]
    fn types_of_the_same_name_are_counted_separately() {
        let text = format!("struct Same<'a, T>(T);\n{}", methods("Same", 30));
        assert!(of(&[("crates/a/src/b.rs", &text), ("crates/a/src/c.rs", &text)]).is_empty());
    }

    #[test]
    fn test_methods_do_not_count() {
        let text = format!("struct A<'a, T>(T);\n#[cfg(test)]\nmod tests {{\n{}", methods("A", 41));
        assert!(of(&[("crates/a/src/b.rs", &text)]).is_empty());
    }
}
