//! Rules for the whole tree: the kinds of tracked files, and the licence.

/// Extensions that tracked files may have.
const ENDINGS: [&str; 30] = [
    "conf", "css", "go", "html", "java", "js", "json", "jsonl", "lock", "lua", "md", "mjs", "mod",
    "php", "png", "py", "pyi", "rb", "rs", "service", "spec", "sql", "sum", "svg", "toml", "ts",
    "txt", "typed", "yaml", "yml",
];

/// Tracked files that may have no extension.
const NAMES: [&str; 8] = [
    ".ci/run",
    ".gitignore",
    "LICENSE",
    "NOTICE",
    "packaging/debian/control",
    "packaging/debian/postinst",
    "packaging/debian/postrm",
    "packaging/debian/prerm",
];

/// The folders of inputs for fuzz targets and tests, which are named for their purpose.
const INPUTS: [&str; 2] = ["fuzz/seeds/", "crates/invalidator/tests/data/"];

/// Tracked files of an unknown kind: dumps, files of editors and of the system.
pub(super) fn endings<'a>(tracked: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let is_known = |path: &str| {
        let name = path.rsplit_once('/').map_or(path, |(_, name)| name);
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        NAMES.contains(&path)
            || INPUTS.iter().any(|folder| path.starts_with(folder))
            || ending.is_some_and(|ending| ENDINGS.contains(&ending))
    };
    tracked
        .into_iter()
        .filter(|path| !is_known(path))
        .map(|path| format!("{path}: tracked, and its ending is not on the list of tidy"))
        .collect()
}

/// The licence that every manifest names must exist; `text` is the file `LICENSE`.
pub(super) fn licence(text: Option<&str>) -> Option<String> {
    let Some(text) = text else { return Some("LICENSE: missing".to_owned()) };
    let is_whole = text.contains("Version 2.0, January 2004")
        && text.contains("END OF TERMS AND CONDITIONS")
        && text.contains("How to apply the Apache License to your work");
    (!is_whole).then(|| "LICENSE: not the whole text of Apache-2.0".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dumps_and_editor_files_are_refused() {
        let good = [
            "crates/store/src/lib.rs",
            ".github/workflows/ci.yml",
            ".ci/run",
            "LICENSE",
            "python/holdall/py.typed",
            "fuzz/seeds/parse_text/CVE-2010-1152-no-newline",
        ];
        assert!(endings(good).is_empty());
        let bad = [
            "crates/holdall/temp-28966.rdb",
            "core",
            "docs/run",
            "crates/store/LICENSE~",
            "fuzz/corpus/rs",
            "x.rs/dump",
        ];
        let breaches = endings(bad);
        assert_eq!(breaches.len(), bad.len(), "{breaches:?}");
        assert!(breaches[0].starts_with("crates/holdall/temp-28966.rdb: "));
    }

    #[test]
    fn the_licence_is_present_and_complete() {
        let whole = include_str!("../../../LICENSE");
        assert_eq!(licence(Some(whole)), None);
        assert!(licence(None).unwrap().contains("missing"));
        let (half, _) = whole.split_at(whole.len() / 2);
        assert!(licence(Some(half)).unwrap().contains("not the whole text"));
    }
}
