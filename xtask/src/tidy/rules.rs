//! The rules, each a function from text to breaches.

use std::collections::HashSet;

const LINES_MAX: usize = 900;

/// The prefix of the names of packages; folders and names in code omit it.
const PACKAGE_PREFIX: &str = "holdall-";

/// Rules of one source file: header, length, unsafe.
pub(super) fn source(name: &str, text: &str, map: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    if !text.starts_with("//! ") {
        breaches.push(format!("{name}: no `//!` header on the first line"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX {
        breaches.push(format!("{name}: {lines} lines, more than {LINES_MAX}"));
    }
    let quoted = "allow(unsafe_code";
    let allows =
        text.lines().any(|line| line.trim_start().starts_with("#") && line.contains(quoted));
    if allows && !unsafe_list(map).contains(&format!("`{name}`")) {
        breaches.push(format!("{name}: {quoted}) and not on the unsafe list of ARCHITECTURE.md"));
    }
    let crate_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
    let has_unsafe = ["arena", "net", "reserve", "short", "store"];
    let exempt = has_unsafe.iter().any(|it| name.starts_with(&format!("crates/{it}/")))
        || name.starts_with("fuzz/");
    if crate_root && !exempt && !text.contains("#![forbid(unsafe_code)]") {
        breaches.push(format!("{name}: no #![forbid(unsafe_code)]"));
    }
    breaches
}

/// The section of ARCHITECTURE.md whose heading contains "unsafe".
fn unsafe_list(map: &str) -> String {
    let mut inside = false;
    let mut list = String::new();
    for line in map.lines() {
        if line.starts_with('#') {
            inside = line.to_ascii_lowercase().contains("unsafe");
        } else if inside {
            list.push_str(line);
            list.push('\n');
        }
    }
    list
}

/// A manifest of `crates/`: the name of its package, and whether it is published.
pub(super) fn package(name: &str, text: &str) -> Vec<String> {
    let Some(folder) =
        name.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
    else {
        return Vec::new();
    };
    let has = |line: &str| text.lines().any(|own| own == line);
    let mut breaches = Vec::new();
    if folder == "holdall" {
        if !has("name = \"holdall\"") {
            breaches.push(format!("{name}: the package of the program is called holdall"));
        }
    } else if !has(&format!("name = \"{PACKAGE_PREFIX}{folder}\""))
        || !has(&format!("name = \"{folder}\""))
    {
        let package = format!("{PACKAGE_PREFIX}{folder}");
        breaches.push(format!("{name}: the package is called {package}, its library {folder}"));
    }
    if has("publish = true") {
        for wanted in ["readme = ", "keywords = ", "categories = ", "description = "] {
            if !text.lines().any(|line| line.starts_with(wanted)) {
                breaches.push(format!("{name}: is published without `{wanted}`"));
            }
        }
    } else if !has("publish = false") {
        breaches.push(format!("{name}: does not say `publish = true` or `publish = false`"));
    }
    breaches
}

/// The direction of dependencies, in one manifest.
pub(super) fn dependencies(name: &str, text: &str, may_use: &[(&str, &[&str])]) -> Vec<String> {
    let value = |line: &str| {
        line.split_once('=').map(|(_, value)| value.trim().trim_matches('"').to_owned())
    };
    let Some(own) = text.lines().find(|line| line.starts_with("name")).and_then(value) else {
        return vec![format!("{name}: no package name")];
    };
    let own = own.strip_prefix(PACKAGE_PREFIX).unwrap_or(&own);
    let Some((_, allowed)) = may_use.iter().find(|(known, _)| *known == own) else {
        return vec![format!("{name}: {own} has no place in xtask's table of who may use whom")];
    };
    // Dev-dependencies are free: tests need testkit, and the crates around theirs.
    let used: Vec<&str> = dependency_keys(text)
        .filter(|(section, key)| {
            !section.contains("dev-") && may_use.iter().any(|(known, _)| known == key)
        })
        .map(|(_, key)| key)
        .collect();
    let refused = used.iter().filter(|key| !allowed.contains(*key));
    let refused = refused.map(|key| format!("{name}: {own} may not use {key}"));
    let idle = allowed.iter().filter(|key| !used.contains(*key));
    let idle = idle.map(|key| format!("{name}: {own} does not use {key}, which MAY_USE allows"));
    refused.chain(idle).collect()
}

/// The dependencies of one manifest that no source in its folder names. `sources` are pairs of path
/// and text.
pub(super) fn unnamed_dependencies(
    name: &str,
    text: &str,
    sources: &[(String, String)],
) -> Vec<String> {
    let folder = name.trim_end_matches("Cargo.toml");
    let sources = sources.iter().filter(|(path, _)| path.starts_with(folder));
    let words: HashSet<&str> = sources.flat_map(|(_, text)| words(text)).collect();
    // A library may omit the hyphens of its package: md-5 is `md5`.
    let is_named = |key: &str| ["_", ""].iter().any(|it| words.contains(&*key.replace('-', it)));
    let unnamed = dependency_keys(text).filter(|(_, key)| !is_named(key));
    unnamed.map(|(section, key)| format!("{name}: no source uses {key} of [{section}]")).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// The keys of a manifest's dependencies, each with the name of its section.
fn dependency_keys(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut section = "";
    text.lines().filter_map(move |line| {
        if line.starts_with('[') {
            section = line.trim_matches(['[', ']']);
            return None;
        }
        let key = line.split(['=', '.', ' ']).next().filter(|key| !key.is_empty())?;
        (section.ends_with("dependencies") && !key.starts_with('#')).then_some((section, key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# The map\n\n## Unsafe code\n\n- `crates/arena/src/chunks.rs`: memory\n";

    #[test]
    fn a_good_file_has_no_breach() {
        let text = "//! What it is.\n#![forbid(unsafe_code)]\n";
        assert!(source("crates/net/src/lib.rs", text, MAP).is_empty());
    }

    #[test]
    fn missing_headers_and_forbids_and_long_files_are_reported() {
        let text = "fn main() {}\n".repeat(901);
        assert_eq!(source("crates/proto/src/lib.rs", &text, MAP).len(), 3);
    }

    #[test]
    fn unsafe_is_allowed_only_on_the_list() {
        let text = "//! Memory.\n#![allow(unsafe_code, reason = \"on the list\")]\n";
        assert!(source("crates/arena/src/chunks.rs", text, MAP).is_empty());
        assert_eq!(source("crates/store/src/table.rs", text, MAP).len(), 1);
    }

    #[test]
    fn dependencies_run_one_way() {
        let may_use: [(&str, &[&str]); 2] = [("engine", &["store"]), ("store", &[])];
        let up = "[package]\nname = \"store\"\n[dependencies]\nengine.workspace = true\n";
        let down = "[package]\nname = \"engine\"\n[dependencies]\nstore = { path = \"x\" }\n";
        let tests = "[package]\nname = \"store\"\n[dev-dependencies]\nengine.workspace = true\n";
        assert_eq!(dependencies("Cargo.toml", up, &may_use).len(), 1);
        assert!(dependencies("Cargo.toml", down, &may_use).is_empty());
        assert!(dependencies("Cargo.toml", tests, &may_use).is_empty());
        assert_eq!(dependencies("Cargo.toml", "[package]\nname = \"new\"\n", &may_use).len(), 1);
    }

    #[test]
    fn an_allowance_that_no_manifest_uses_is_found() {
        let may_use: [(&str, &[&str]); 2] = [("engine", &["store"]), ("store", &[])];
        let none = "[package]\nname = \"engine\"\n[dev-dependencies]\nstore.workspace = true\n";
        assert_eq!(
            dependencies("Cargo.toml", none, &may_use),
            ["Cargo.toml: engine does not use store, which MAY_USE allows"]
        );
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let manifest = "[dependencies]\n# Why.\nmd-5.workspace = true\nserde = \"1\"\n\n\
                        [dev-dependencies]\nserde_json = \"1\"\ntempfile = \"3\"\n";
        let sources = [
            ("crates/a/src/lib.rs".to_owned(), "use md5::Md5;\n".to_owned()),
            ("crates/a/tests/a.rs".to_owned(), "serde_json::json!({})\n".to_owned()),
            ("crates/b/src/lib.rs".to_owned(), "use serde::Serialize;\n".to_owned()),
        ];
        assert_eq!(
            unnamed_dependencies("crates/a/Cargo.toml", manifest, &sources),
            [
                "crates/a/Cargo.toml: no source uses serde of [dependencies]",
                "crates/a/Cargo.toml: no source uses tempfile of [dev-dependencies]"
            ]
        );
    }

    #[test]
    fn a_package_prefix_hides_no_dependency() {
        let may_use: [(&str, &[&str]); 2] = [("engine", &["store"]), ("store", &[])];
        let up = "[package]\nname = \"holdall-store\"\n[dependencies]\nengine.workspace = true\n";
        assert_eq!(dependencies("Cargo.toml", up, &may_use).len(), 1);
    }

    #[test]
    fn packages_match_their_folders_and_declare_publish() {
        let private = "name = \"holdall-store\"\npublish = false\n[lib]\nname = \"store\"\n";
        assert!(package("crates/store/Cargo.toml", private).is_empty());
        assert_eq!(package("crates/net/Cargo.toml", private).len(), 1);
        assert!(package("xtask/Cargo.toml", "name = \"xtask\"\n").is_empty());
        let silent = private.replace("publish = false\n", "");
        assert_eq!(package("crates/store/Cargo.toml", &silent).len(), 1);
        let public = private.replace("false", "true");
        assert_eq!(package("crates/store/Cargo.toml", &public).len(), 4);
        let program = "name = \"holdall\"\npublish = false\n";
        assert!(package("crates/holdall/Cargo.toml", program).is_empty());
        assert_eq!(package("crates/holdall/Cargo.toml", private).len(), 1);
    }
}
