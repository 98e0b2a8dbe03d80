//! The pages as a static site with search: mdBook over a copy of the tracked pages, in the order of
//! docs/README.md, and a check of every link of the site. It needs no network once mdBook is
//! installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::steps::{Steps, cargo, program, root, succeeds, target};
use crate::tidy::beside;

/// The release of mdBook to install if there is none.
const VERSION: &str = "0.5.4";

/// Folders whose pages are not on the site.
const OMITTED: [&str; 2] = [".github/", "fuzz/"];

/// Builds the site in `target/site/book`, and checks its links.
pub(crate) fn run(steps: &mut Steps) -> Result<(), Failure> {
    let book = install(steps)?;
    let site = target().join("site");
    steps.check("pages of the site", || copy(&site))?;
    steps.run("mdbook build", program(book, ["build".as_ref(), site.as_os_str()]))?;
    steps.check("links of the site", || check(&site.join("book")))?;
    println!("\n{}", site.join("book/index.html").display());
    Ok(())
}

/// The path of mdBook, which is built in `target` if it is not installed.
fn install(steps: &mut Steps) -> Result<PathBuf, Failure> {
    if succeeds(program("mdbook", ["--version"])) {
        return Ok(PathBuf::from("mdbook"));
    }
    let folder = target().join("tools");
    let own = folder.join("bin/mdbook");
    if !succeeds(program(&own, ["--version"])) {
        let mut install = cargo(["install", "mdbook", "--locked", "--version", VERSION]);
        install.args(["--no-default-features", "--features", "search", "--root"]).arg(&folder);
        install.env_remove("CARGO_TARGET_DIR");
        steps.run("install mdbook", install)?;
    }
    Ok(own)
}

/// Copies tracked pages and their linked files, and writes the list of pages.
fn copy(site: &Path) -> Result<(), Failure> {
    let pages = pages()?;
    let source = site.join("src");
    // A missing folder need not be removed.
    let _ = fs::remove_dir_all(&source);
    for (name, text) in &pages {
        write(&source.join(name), text.as_bytes())?;
        for linked in links_of(text).filter(|linked| !linked.contains(':')) {
            let path = beside(name, linked.split('#').next().unwrap_or_default());
            if root().join(&path).is_file() && !pages.contains_key(&path) {
                let bytes = fs::read(root().join(&path))
                    .map_err(|error| Failure::Path { path: PathBuf::from(&path), error })?;
                write(&source.join(path), &bytes)?;
            }
        }
    }
    write(&source.join("SUMMARY.md"), summary(&pages).as_bytes())?;
    write(&site.join("book.toml"), BOOK.as_bytes())
}

/// Tracked pages by their paths, with their texts.
fn pages() -> Result<BTreeMap<String, String>, Failure> {
    let listed = Command::new("git").args(["ls-files", "*.md"]).output();
    let listed = listed.map_err(|error| Failure::Git(error.to_string()))?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_page = |name: &&str| OMITTED.iter().all(|folder| !name.starts_with(folder));
    listed
        .lines()
        .filter(is_page)
        .map(|name| match fs::read_to_string(name) {
            Ok(text) => Ok((name.to_owned(), text)),
            Err(error) => Err(Failure::Path { path: PathBuf::from(name), error }),
        })
        .collect()
}

/// mdBook's list: the pages in the order in which docs/README.md links to them, then all others.
fn summary(pages: &BTreeMap<String, String>) -> String {
    let mut list = String::from("# Summary\n\n[Start](README.md)\n[Documents](docs/README.md)\n");
    let mut listed: BTreeSet<&str> = ["README.md", "docs/README.md"].into();
    let index = pages.get("docs/README.md").map_or("", String::as_str);
    for line in index.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            let title = title.split(':').next().unwrap_or(title);
            let _ = writeln!(list, "\n# {title}\n");
        }
        for link in links_of(line).map(|link| link.split('#').next().unwrap_or_default()) {
            let path = beside("docs/README.md", link);
            if let Some((name, text)) = pages.get_key_value(&path)
                && listed.insert(name)
            {
                let _ = writeln!(list, "- [{}]({name})", title_of(name, text));
            }
        }
    }
    list.push_str("\n# Records and packages\n\n");
    for (name, text) in pages {
        if listed.insert(name) {
            let _ = writeln!(list, "- [{}]({name})", title_of(name, text));
        }
    }
    list
}

fn title_of<'a>(name: &'a str, text: &'a str) -> &'a str {
    text.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or(name)
}

/// The targets of links in Markdown.
fn links_of(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target).filter(|target| !target.contains([' ', '\n']))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |error| Failure::Path { path: path.to_owned(), error };
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, bytes).map_err(failed)
}

/// Checks that the links of every page of the site lead to existing files and anchors.
fn check(book: &Path) -> Result<(), Failure> {
    let mut html = BTreeMap::new();
    collect(book, &mut html)?;
    let places: BTreeMap<&PathBuf, BTreeSet<&str>> =
        html.iter().map(|(path, text)| (path, values(text, " id=\"").collect())).collect();
    let mut broken = 0;
    for (page, text) in html.iter().filter(|(page, _)| !page.ends_with("print.html")) {
        for link in values(text, " href=\"").filter(|link| !link.contains(':')) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let name = page.strip_prefix(book).unwrap_or(page).to_string_lossy();
            let found = match path {
                "" => page.clone(),
                path => book.join(beside(&name, path)),
            };
            let is_there = match places.get(&found) {
                Some(places) => place.is_empty() || places.contains(place),
                None => found.exists(),
            };
            if !is_there {
                println!("{name}: links to {link}, which is not there");
                broken += 1;
            }
        }
    }
    println!("{} pages", html.len());
    if broken == 0 { Ok(()) } else { Err(Failure::Breaches(broken)) }
}

/// The values of an attribute.
fn values<'a>(text: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    let ends = text.split(attribute).skip(1).filter_map(|rest| rest.split_once('"'));
    ends.map(|(value, _)| value)
}

fn collect(folder: &Path, html: &mut BTreeMap<PathBuf, String>) -> Result<(), Failure> {
    let failed = |error| Failure::Path { path: folder.to_owned(), error };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            collect(&path, html)?;
        } else if path.extension().is_some_and(|ending| ending == "html") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            html.insert(path, text);
        }
    }
    Ok(())
}

const BOOK: &str = "\
[book]
title = \"holdall\"
language = \"en\"
src = \"src\"

[build]
build-dir = \"book\"
create-missing = false
# They would rename README.md, to which pages link, and read braces in pages as commands.
use-default-preprocessors = false

[output.html]
no-section-label = true

[output.html.print]
enable = false

[output.html.search]
limit-results = 30
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lists_every_page_once_in_index_order() {
        let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let pages = BTreeMap::from([
            page("README.md", "# holdall\n"),
            page("docs/README.md", "## Guides: do it\n\n* [B](b.md#x), [B again](b.md)\n"),
            page("docs/a.md", "# A\n"),
            page("docs/b.md", "# The second\n"),
        ]);
        let want = "# Summary\n\n[Start](README.md)\n[Documents](docs/README.md)\n\n# Guides\n\n\
                    - [The second](docs/b.md)\n\n# Records and packages\n\n- [A](docs/a.md)\n";
        assert_eq!(summary(&pages), want);
    }
}
