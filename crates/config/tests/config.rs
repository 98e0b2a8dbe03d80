//! Files of settings: the findings about them, and this repository's generated files.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use config::{check, differences, schema, shown};
use options::settings::settings;
use options::{Environment, Invocation, Style};

fn packaging(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/etc")).join(name)
}

fn settle(flags: &[&str]) -> (options::Options, Vec<options::settings::Given>) {
    let flags = flags.iter().map(OsString::from);
    let environment = Environment { cpus: 2, ..Environment::default() };
    match options::parse(Style::Holdall, flags, &environment).unwrap() {
        Invocation::Run { options, given, .. } => (*options, given),
        Invocation::Print(page) => panic!("{page}"),
    }
}

#[test]
fn a_fault_is_underlined_and_has_a_hint() {
    let text = "port = 11211\nmemry_limit = \"1g\"\n".to_owned();
    let said = check("server.toml", text).to_text(false);
    let want = "\
error: there is no setting 'memry_limit'
 --> server.toml:2:1
  |
2 | memry_limit = \"1g\"
  | ^^^^^^^^^^^
  |
  = help: did you mean memory_limit?
";
    assert_eq!(said, want);
}

#[test]
fn only_terminals_get_colours() {
    let checked = check("server.toml", "port = true\n".to_owned());
    assert!(checked.to_text(true).contains('\u{1b}'));
    assert!(!checked.to_text(false).contains('\u{1b}'));
    let json = checked.to_json();
    assert_eq!((&json[0]["line"], &json[0]["column"]), (&1.into(), &8.into()));
}

#[test]
fn the_published_schema_is_made_from_the_settings() {
    let text = format!("{:#}\n", schema());
    let path = packaging("server.schema.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let published = fs::read_to_string(path).unwrap();
    assert!(published == text, "UPDATE_DOCS=1 cargo test -p holdall-config rewrites the schema");
    for setting in settings() {
        assert!(schema()["properties"].get(&setting.key).is_some(), "{}", setting.key);
    }
}

#[test]
fn the_published_example_has_no_fault() {
    let text = fs::read_to_string(packaging("server.toml")).unwrap();
    let checked = check("server.toml", text.clone());
    assert!(checked.faults.is_empty(), "{}", checked.to_text(false));
    // The text in comments is also correct.
    let all = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(setting) if setting.contains(" = ") => setting,
        _ => line,
    });
    let all: Vec<_> = all.collect();
    let checked = check("server.toml", all.join("\n"));
    assert!(checked.faults.is_empty(), "{}", checked.to_text(false));
}

#[test]
fn every_setting_is_shown_with_its_origin() {
    let (options, given) = settle(&["-m", "4g", "-t", "3"]);
    let shown = shown(&options, &given);
    let of = |key: &str| {
        let found = shown.iter().find(|setting| setting.key == key).unwrap();
        (found.value.as_str(), found.origin.to_string())
    };
    assert_eq!(shown.len(), settings().len());
    assert_eq!(of("memory_limit"), ("4g", "flag".to_owned()));
    assert_eq!(of("conn_limit"), ("1024", "default".to_owned()));
    assert_eq!(of("stripes"), ("256", "default".to_owned()));
    assert_eq!(of("sampling"), ("true", "default".to_owned()));
    assert_eq!(of("disable_cas"), ("false", "default".to_owned()));
}

#[test]
fn differences_show_what_can_change_live() {
    let (options, given) = settle(&["-m", "128", "-o", "idle_timeout=5"]);
    let present = [("maxbytes", "67108864"), ("idle_timeout", "0"), ("num_threads", "64")];
    let present: BTreeMap<_, _> =
        present.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
    let found = differences(&options, &given, &present);
    let found: Vec<_> =
        found.iter().map(|found| (found.key, found.wanted.as_str(), found.is_live)).collect();
    assert_eq!(found, [("memory_limit", "134217728", true), ("idle_timeout", "5", false)]);
}
