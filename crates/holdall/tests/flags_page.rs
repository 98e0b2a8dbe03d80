//! `docs/flags.md` has every flag of `holdall serve` and `holdall route`.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use clap::{Arg, CommandFactory};

/// The page as the two command lines are.
fn reference() -> String {
    let mut command = router::options::Options::command();
    command.build();
    let rows = command.get_arguments().filter(|flag| !flag.is_hide_set()).map(row);
    options::reference() + ROUTE_HEAD + &rows.collect::<String>()
}

fn row(flag: &Arg) -> String {
    let takes_values = flag.get_action().takes_values();
    let value = flag.get_value_names().filter(|_| takes_values).and_then(|names| names.first());
    let value = value.map_or_else(String::new, |name| format!(" <{name}>"));
    let short = flag.get_short().map(|short| format!("`-{short}{value}`"));
    let longs = flag.get_long_and_visible_aliases().unwrap_or_default();
    let longs = longs.iter().map(|long| format!("`--{long}{value}`"));
    let names: Vec<_> = short.into_iter().chain(longs).collect();
    let defaults = flag.get_default_values().iter().filter(|_| takes_values);
    let defaults: Vec<_> = defaults.map(|value| value.to_string_lossy()).collect();
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let columns = [names.join(", "), defaults.join(" "), help.replace('\n', " ")];
    let [names, defaults, help] = columns.map(|column| column.replace('|', "\\|"));
    format!("| {names} | {defaults} | {help} |\n")
}

/// `UPDATE_DOCS=1` rewrites the page.
#[test]
fn flags_page_is_made_from_the_command_lines() {
    let page = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/flags.md"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, reference()).unwrap();
    }
    assert!(
        std::fs::read_to_string(&page).unwrap_or_default() == reference(),
        "docs/flags.md is not what the command lines are; \
         UPDATE_DOCS=1 cargo test -p holdall --test flags_page writes it"
    );
}

#[test]
fn every_long_flag_of_the_help_has_a_row() {
    let page = reference();
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for (command, least) in [("serve", 30), ("route", 50)] {
        let program = env!("CARGO_BIN_EXE_holdall");
        let output = Command::new(program).args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
        let words = help.split(|letter| !is_part(letter));
        let flags: BTreeSet<_> =
            words.filter(|word| word.len() > 3 && word.starts_with("--")).collect();
        assert!(flags.len() >= least, "{command}: {flags:?}");
        for flag in flags {
            let has_flag = |row: &&str| {
                row.match_indices(flag).any(|(at, _)| !row[at + flag.len()..].starts_with(is_part))
            };
            assert!(rows.iter().any(has_flag), "{command} {flag} has no row");
        }
    }
}

const ROUTE_HEAD: &str = "
# Flags of `holdall route`

Names are mcrouter's, where mcrouter has one; its other flags are accepted with a warning.
[router.md](router.md) explains what they are for.

| flag | default | meaning |
| --- | --- | --- |
";
