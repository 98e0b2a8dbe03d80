//! Rules for pages: the paths, links and decisions that they name exist.

use std::collections::BTreeSet;

/// The folder of decision records, `NNNN-name.md`, and of their index.
pub(super) const DECISIONS: &str = "docs/decisions/";

/// The folder of the pages that compare with other programs, row by row.
pub(super) const COMPATIBILITY: &str = "docs/compatibility/";

/// The prefixes of a path in backticks.
const ROOTS: [&str; 9] =
    ["crates/", "e2e/", "docs/", "lab/", "xtask/", "fuzz/", "python/", ".ci/", "shared/"];

/// Paths in backticks that do not exist.
pub(super) fn paths_named(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| ROOTS.iter().any(|root| word.starts_with(root)))
        .filter(|word| !word.contains(['*', ' ', '{', '<']))
        .map(|word| word.split_once(':').map_or(word, |(path, _)| path))
        .filter(|path| !exists(path))
        .map(|path| format!("{name}: names {path}, which does not exist"))
        .collect()
}

/// Functions that a page attributes to a file ("`a`, `b` in `crates/c/tests/d.rs`") and that are
/// missing there; `read` returns the text of a file. [`paths_named`] reports missing files.
pub(super) fn functions_named<'a>(
    name: &str,
    text: &str,
    read: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    let parts: Vec<&str> = text.split('`').collect();
    let mut breaches = Vec::new();
    for (place, path) in parts.iter().enumerate().skip(1).step_by(2) {
        let Some(file) = read(path).filter(|_| path.ends_with(".rs")) else { continue };
        let mut at = place;
        // "in" before the path; between names a comma or "and".
        while at >= 2 {
            let between = parts.get(at - 1).map_or("", |text| text.trim());
            let wanted: &[&str] = if at == place { &["in"] } else { &[",", "and"] };
            if !wanted.contains(&between) {
                break;
            }
            at -= 2;
            let function = parts.get(at).copied().unwrap_or_default();
            // A list of files may follow a list of functions.
            if function.contains(['/', '.']) {
                break;
            }
            if !file.contains(&format!("fn {function}(")) {
                breaches.push(format!("{name}: names {function} in {path}, which has none"));
            }
        }
    }
    breaches
}

/// Rows of tables with a last column "shown by" that name neither a test nor a page.
pub(super) fn rows_without_test(name: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let mut wants_test = false;
    for line in text.lines() {
        let Some(row) = line.strip_prefix('|') else {
            wants_test = false;
            continue;
        };
        let last = row.trim_end().trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        if last.trim() == "shown by" {
            wants_test = true;
        } else if wants_test
            && !last.contains("---")
            && !last.contains(".rs`")
            && !last.contains("](")
        {
            breaches.push(format!("{name}: no test and no page for the row `{}`", row.trim()));
        }
    }
    breaches
}

/// Relative links to missing files. [`places`] checks places in a page.
pub(super) fn links(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
        .map(|target| target.split_once('#').map_or(target, |(path, _)| path))
        .filter(|target| !target.is_empty() && !target.contains([':', ' ', '\n']))
        .filter(|target| !exists(&beside(name, target)))
        .map(|target| format!("{name}: links to {target}, which does not exist"))
        .collect()
}

/// Links to places in pages (`page.md#place`) that no heading has; `read` returns a page's text.
pub(super) fn places<'a>(
    name: &str,
    text: &'a str,
    read: impl Fn(&str) -> Option<&'a str>,
) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets
        .filter_map(|(target, _)| Some((target, target.split_once('#')?)))
        .filter(|(target, _)| !target.contains([':', ' ', '\n']))
        .filter(|(_, (path, place))| {
            let page = if path.is_empty() { Some(text) } else { read(&beside(name, path)) };
            page.is_some_and(|page| !headings(page).any(|heading| heading == *place))
        })
        .map(|(target, _)| format!("{name}: links to {target}, and the page has no such heading"))
        .collect()
}

/// The anchors of a page's headings, as GitHub and mdBook generate them.
fn headings(page: &str) -> impl Iterator<Item = String> {
    let mut in_block = false;
    page.lines().filter_map(move |line| {
        in_block ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        let is_heading = !in_block && title.len() < line.len() && title.starts_with(' ');
        is_heading.then(|| {
            let kept = |sign: &char| sign.is_alphanumeric() || matches!(sign, ' ' | '-' | '_');
            title.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
        })
    })
}

/// The path of `target`, which is relative to the folder of page `name`.
pub(crate) fn beside(name: &str, target: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The numbers of the decision records among `pages`, which are pairs of path and text. Adds a
/// breach for a missing or repeated number, a title without it, and a record missing in the index.
pub(super) fn records(pages: &[(String, String)], breaches: &mut Vec<String>) -> BTreeSet<u32> {
    let index = format!("{DECISIONS}README.md");
    let listed = pages.iter().find(|(name, _)| *name == index).map_or("", |(_, text)| text);
    let mut numbers = BTreeSet::new();
    for (name, text) in pages.iter().filter(|(name, _)| name.starts_with(DECISIONS)) {
        let file = &name[DECISIONS.len()..];
        if *name == index {
            continue;
        }
        let number = file.split_once('-').filter(|(digits, _)| digits.len() == 4);
        let Some(number) = number.and_then(|(digits, _)| digits.parse().ok()) else {
            breaches.push(format!("{name}: a record is called NNNN-name.md"));
            continue;
        };
        if !numbers.insert(number) {
            breaches.push(format!("{name}: the number {number} is taken twice"));
        }
        if !text.starts_with(&format!("# {number}. ")) {
            breaches.push(format!("{name}: the title does not begin with `# {number}. `"));
        }
        if !listed.contains(&format!("({file})")) {
            breaches.push(format!("{index}: does not list {file}"));
        }
    }
    let last = numbers.last().copied().unwrap_or(0);
    let missing = (1..=last).filter(|number| !numbers.contains(number));
    breaches.extend(missing.map(|number| format!("{DECISIONS}: there is no record {number}")));
    numbers
}

/// Citations ("decision 31", "decisions 1, 2 and 3") of records that do not exist.
pub(super) fn cited(name: &str, text: &str, numbers: &BTreeSet<u32>) -> Vec<String> {
    let mut breaches = Vec::new();
    // Whether a number, and whether an "and" before a number, would belong to the citation.
    let (mut wants_number, mut wants_and) = (false, false);
    let words = text.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace);
    for word in words.filter(|word| !matches!(*word, "//" | "///" | "//!")) {
        let bare = word.trim_matches(|sign: char| !sign.is_alphanumeric());
        if bare.eq_ignore_ascii_case("decision") || bare.eq_ignore_ascii_case("decisions") {
            (wants_number, wants_and) = (true, false);
        } else if wants_number && let Ok(number) = bare.parse() {
            if !numbers.contains(&number) {
                breaches.push(format!("{name}: cites decision {number}, which does not exist"));
            }
            (wants_number, wants_and) = (word.ends_with(','), true);
        } else {
            (wants_number, wants_and) = (wants_and && matches!(word, "and" | "or"), false);
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn a_missing_path_is_reported() {
        let text = "`docs/gone.md`, `docs/here.md:7`, `docs/*.md`, `gone.rs`";
        let gone = paths_named("ARCHITECTURE.md", text, |path| path == "docs/here.md");
        assert_eq!(gone, ["ARCHITECTURE.md: names docs/gone.md, which does not exist"]);
    }

    #[test]
    fn a_missing_function_is_reported() {
        let text = "(`one` in `a.rs`), `one`, `two` and `three` in\n`a.rs`, `four` or `a.rs`; `five` in `b.md`";
        let read = |path: &str| (path == "a.rs").then_some("fn one() {}\nfn two() {}\n");
        assert_eq!(
            functions_named("p.md", text, read),
            ["p.md: names three in a.rs, which has none"]
        );
    }

    #[test]
    fn a_row_without_a_test_is_reported() {
        let text = "| row | here | shown by |\n| --- | --- | --- |\n| a | same | `t` in `x.rs` |\n\
            | b | differs | [why](p.md) |\n| c | same | |\n\n| row | why |\n| d | e |\n";
        assert_eq!(
            rows_without_test("p.md", text),
            ["p.md: no test and no page for the row `c | same | |`"]
        );
    }

    #[test]
    fn a_link_to_a_missing_heading_is_reported() {
        let read =
            |path: &str| (path == "docs/b.md").then_some("# `a -b` and C\n```\n# not\n```\n");
        let text = "[x](b.md#a--b-and-c), [y](b.md#not), [z](#own), [w](c.md#x)\n## Own\n";
        let gone = ["docs/a.md: links to b.md#not, and the page has no such heading"];
        assert_eq!(places("docs/a.md", text, read), gone);
    }

    #[test]
    fn a_link_to_a_missing_page_is_reported() {
        let text = "[a](../README.md#x), [b](gone.md), [c](https://x.example), [d](#here)";
        let gone = links("docs/client.md", text, |path| path == "README.md");
        assert_eq!(gone, ["docs/client.md: links to gone.md, which does not exist"]);
    }

    #[test]
    fn record_numbers_are_unique_and_listed_in_the_index() {
        let mut pages = vec![
            page("docs/decisions/README.md", "[a](0001-a.md) [b](0002-b.md)"),
            page("docs/decisions/0001-a.md", "# 1. A\n"),
            page("docs/decisions/0002-b.md", "# 2. B\n"),
        ];
        let mut breaches = Vec::new();
        assert_eq!(records(&pages, &mut breaches), BTreeSet::from([1, 2]));
        assert!(breaches.is_empty(), "{breaches:?}");
        pages[2] = page("docs/decisions/0001-b.md", "# 2. B\n");
        pages.push(page("docs/decisions/0004-c.md", "# 4. C\n"));
        pages.push(page("docs/decisions/notes.md", "# Notes\n"));
        records(&pages, &mut breaches);
        // Repeated, its title, not listed; not listed; no number; no 2 and no 3.
        assert_eq!(breaches.len(), 7, "{breaches:?}");
    }

    #[test]
    fn a_citation_of_a_missing_record_is_reported() {
        let numbers = BTreeSet::from([1, 2, 3]);
        assert!(cited("a.md", "(decision 3), decisions 1, 2 and 3. The 9", &numbers).is_empty());
        let comment = "// See decisions 2 and\n// 31, or decision 4: 77 bytes.";
        assert_eq!(
            cited("a.rs", comment, &numbers),
            [
                "a.rs: cites decision 31, which does not exist",
                "a.rs: cites decision 4, which does not exist"
            ]
        );
    }
}
