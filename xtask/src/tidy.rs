//! The house rules that a program can check. It reports all breaches, not only the first.
//!
//! 1. Every `.rs` file opens with a `//!` header and has at most 900 lines.
//! 2. `allow(unsafe_code` occurs only in files on the unsafe list of ARCHITECTURE.md, and every
//!    crate but `arena`, `net`, `reserve`, `short` and `store` has `#![forbid(unsafe_code)]`.
//! 3. Crates depend upon each other in one direction only: [`MAY_USE`]. The package of
//!    `crates/NAME` is called `holdall-NAME`, and every manifest says whether it is published. A
//!    source of a crate names each of its dependencies.
//! 4. Paths that ARCHITECTURE.md, docs/testing.md and the decisions name, pages that a page links
//!    to, and decisions that code or a page cites by number exist.
//! 5. Tracked files have an extension from a list, and `LICENSE` exists.
//! 6. Code and pages contain no word that `docs/glossary.md` bans, no comment and no prose is wider
//!    than 100 columns, and no header and no comment of a public item starts with a question word.
//! 7. The modules of a crate, and those of a folder, import each other in one direction only.
//! 8. A file that uses `Relaxed` explains why that is enough, and each stronger ordering names its
//!    partner.
//! 9. A type with many methods, or with methods in many files, has the reason in its file's header.

mod cycles;
mod documents;
mod imports;
mod lexer;
mod orderings;
mod prose;
mod rules;
mod tree;
mod types;
mod words;

pub(crate) use documents::beside;

use crate::failure::Failure;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates that each crate may use, by their names in code. A missing crate has no place yet.
const MAY_USE: &[(&str, &[&str])] = &[
    ("access", &["files", "net", "proto", "scram"]),
    ("advice", &["tools"]),
    ("arena", &["narrow", "short"]),
    ("bench", &["files", "generator", "processes", "usage"]),
    ("certs", &["files"]),
    ("changes", &[]),
    ("client", &["discovery", "hostport", "proto", "routeconf", "routes", "spool", "upstream"]),
    ("config", &["files", "options", "server", "tools", "usage"]),
    (
        "console",
        &[
            "access",
            "advice",
            "doctor",
            "files",
            "plan",
            "routeconf",
            "scram",
            "tools",
            "top",
            "usage",
        ],
    ),
    ("demo", &["bench", "client", "plan", "processes", "staleness", "usage"]),
    ("discovery", &["certs", "files", "hostport", "routeconf"]),
    ("doctor", &["hostport", "options", "usage"]),
    ("e2e", &["client", "processes", "testkit"]),
    ("engine", &["narrow", "proto", "sampling", "store"]),
    ("files", &[]),
    ("generator", &["certs", "hostport", "proto"]),
    ("hashing", &[]),
    (
        "holdall",
        &[
            "access",
            "bench",
            "config",
            "console",
            "demo",
            "doctor",
            "invalidator",
            "logging",
            "migrate",
            "net",
            "options",
            "plan",
            "reserve",
            "routeconf",
            "router",
            "server",
            "spool",
            "tools",
            "top",
            "usage",
            "watch",
        ],
    ),
    ("hostport", &[]),
    ("python", &["client"]),
    (
        "invalidator",
        &[
            "certs",
            "changes",
            "files",
            "hostport",
            "logging",
            "metrics",
            "spool",
            "telemetry",
            "usage",
        ],
    ),
    ("lab", &["bench", "net", "processes", "sampling", "store"]),
    ("logging", &[]),
    ("metrics", &[]),
    ("migrate", &["files", "routeconf", "tools", "usage"]),
    ("narrow", &[]),
    ("net", &["certs"]),
    ("options", &["files", "hostport", "logging", "net", "proto", "store", "usage"]),
    (
        "plan",
        &[
            "advice",
            "discovery",
            "files",
            "hashing",
            "hostport",
            "invalidator",
            "routeconf",
            "sizing",
            "tools",
            "usage",
        ],
    ),
    ("processes", &[]),
    ("proto", &["short"]),
    ("routeconf", &["files", "hashing", "proto", "usage"]),
    (
        "router",
        &[
            "access",
            "discovery",
            "files",
            "hashing",
            "hostport",
            "logging",
            "metrics",
            "narrow",
            "net",
            "proto",
            "reserve",
            "routeconf",
            "routes",
            "sampling",
            "spans",
            "spool",
            "telemetry",
            "upstream",
            "watch",
        ],
    ),
    ("routes", &["hashing", "narrow", "proto", "routeconf", "spool", "upstream"]),
    ("sampling", &["narrow"]),
    ("scram", &[]),
    ("sizing", &["sampling", "store"]),
    ("spool", &["usage"]),
    ("reserve", &[]),
    (
        "server",
        &[
            "access",
            "engine",
            "files",
            "logging",
            "metrics",
            "net",
            "options",
            "proto",
            "reserve",
            "sampling",
            "short",
            "spans",
            "store",
            "telemetry",
            "watch",
        ],
    ),
    ("short", &[]),
    ("simulation", &["proto", "testkit", "upstream"]),
    ("spans", &[]),
    ("staleness", &[]),
    ("store", &["arena", "narrow", "short"]),
    ("telemetry", &["files", "hostport", "metrics", "spans"]),
    ("testkit", &["processes", "reserve", "staleness"]),
    ("tools", &["certs", "files", "hostport", "usage"]),
    ("top", &["plan", "tools", "usage"]),
    ("upstream", &["certs", "hashing", "narrow", "proto", "scram", "short", "spans"]),
    ("usage", &[]),
    ("watch", &["net", "tools", "usage"]),
    ("xtask", &[]),
];

/// The page with the tests behind each claim.
const TESTING: &str = "docs/testing.md";

/// The page with explained and banned words.
const GLOSSARY: &str = "docs/glossary.md";

/// The folder of dated records, whose text does not change.
const RECORDS: &str = "lab/results/";

/// Checks the whole tree, from the workspace's folder.
pub(crate) fn run() -> Result<(), Failure> {
    let map = fs::read_to_string("ARCHITECTURE.md").unwrap_or_default();
    let mut breaches = Vec::new();
    let (mut sources, mut manifests) = (Vec::new(), Vec::new());
    if map.is_empty() {
        breaches.push("ARCHITECTURE.md: missing, and with it the unsafe list".to_owned());
    }
    for path in files(&["crates", "e2e", "fuzz", "lab", "python", "xtask"])? {
        let name = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(Failure::path(&path))?;
        if name.ends_with(".rs") {
            breaches.extend(rules::source(&name, &text, &map));
            sources.push((name, text));
        } else if name.ends_with("Cargo.toml") && !name.starts_with("fuzz/") {
            breaches.extend(rules::dependencies(&name, &text, MAY_USE));
            breaches.extend(rules::package(&name, &text));
            manifests.push((name, text));
        }
    }
    for (name, text) in &manifests {
        breaches.extend(rules::unnamed_dependencies(name, text, &sources));
    }
    let tracked = tracked()?;
    let pages: Vec<(String, String)> = tracked
        .split_terminator('\0')
        .filter(|path| path.ends_with(".md"))
        .filter_map(|path| Some((path.to_owned(), fs::read_to_string(path).ok()?)))
        .collect();
    breaches.extend(documents(&sources, &pages));
    breaches.extend(prose(&sources, &pages));
    breaches.extend(cycles::knots(&sources));
    breaches.extend(sources.iter().flat_map(|(name, text)| orderings::source(name, text)));
    breaches.extend(types::large(&sources));
    breaches.extend(tree::endings(tracked.split_terminator('\0')));
    breaches.extend(tree::licence(fs::read_to_string("LICENSE").ok().as_deref()));
    if breaches.is_empty() {
        println!("\n==> tidy: no breach");
        return Ok(());
    }
    println!("\n==> tidy:\n{}", breaches.join("\n"));
    Err(Failure::Breaches(breaches.len()))
}

/// Breaches of the rules on words, widths and questions.
fn prose(sources: &[(String, String)], pages: &[(String, String)]) -> Vec<String> {
    let mut breaches = Vec::new();
    let glossary = pages.iter().find(|(name, _)| name == GLOSSARY).map_or("", |(_, text)| text);
    let banned = words::banned(glossary, &mut breaches);
    let (mut refused, mut wide, mut asking) = (Vec::new(), Vec::new(), Vec::new());
    for (name, text) in sources {
        refused.extend(words::source(name, text, &banned));
        wide.extend(prose::columns(name, text));
        asking.extend(prose::questions(name, text));
    }
    for (name, text) in pages {
        wide.extend(prose::page_columns(name, text));
    }
    let is_bound = |name: &str| name != GLOSSARY && !name.starts_with(RECORDS);
    for (name, text) in pages.iter().filter(|(name, _)| is_bound(name)) {
        refused.extend(words::page(name, text, &banned));
    }
    breaches.extend(refused.into_iter().chain(wide).chain(asking));
    breaches
}

/// Breaches in `pages`, and citations of decisions in `sources`; both are pairs of path and text.
fn documents(sources: &[(String, String)], pages: &[(String, String)]) -> Vec<String> {
    let exists = |path: &str| Path::new(path).exists();
    let mut breaches = Vec::new();
    let numbers = documents::records(pages, &mut breaches);
    let read = |path: &str| {
        let source = sources.iter().find(|(name, _)| name == path);
        source.map(|(_, text)| text.as_str())
    };
    for (name, text) in pages {
        let compares = name.starts_with(documents::COMPATIBILITY);
        let names_paths = name == "ARCHITECTURE.md" || name == TESTING || compares;
        if names_paths || name.starts_with(documents::DECISIONS) {
            breaches.extend(documents::paths_named(name, text, exists));
        }
        breaches.extend(documents::functions_named(name, text, read));
        breaches.extend(documents::rows_without_test(name, text));
        breaches.extend(documents::links(name, text, exists));
        let page =
            |path: &str| pages.iter().find(|(name, _)| name == path).map(|(_, text)| text.as_str());
        breaches.extend(documents::places(name, text, page));
        breaches.extend(documents::cited(name, text, &numbers));
    }
    for (name, text) in sources.iter().filter(|(name, _)| !name.starts_with("xtask/src/tidy")) {
        breaches.extend(documents::cited(name, text, &numbers));
    }
    breaches
}

/// The paths of the files tracked by git, each followed by a zero byte.
fn tracked() -> Result<String, Failure> {
    let listed = Command::new("git").args(["ls-files", "-z"]).output();
    let output = listed.map_err(|error| Failure::Git(error.to_string()))?;
    if !output.status.success() {
        return Err(Failure::Git(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    String::from_utf8(output.stdout).map_err(|_| Failure::Git("a path is not UTF-8".to_owned()))
}

/// The files in these folders, except built and fetched ones, in order.
fn files(folders: &[&str]) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    let mut work: Vec<PathBuf> =
        folders.iter().map(PathBuf::from).filter(|path| path.exists()).collect();
    while let Some(folder) = work.pop() {
        let entries = fs::read_dir(&folder).map_err(Failure::path(&folder))?;
        for entry in entries.map_while(Result::ok) {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() {
                if !["target", "node_modules", "corpus", "artifacts"]
                    .iter()
                    .any(|skip| name == *skip)
                {
                    work.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found.retain(|path| {
        path.extension().is_some_and(|kind| kind == "rs") || path.ends_with("Cargo.toml")
    });
    found.sort();
    Ok(found)
}
