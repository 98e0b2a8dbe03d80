//! Rules for each command, subcommand and flag. The help is walked, so a new one is among them.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::process::{Output, Stdio};

use common::{holdall, output, stderr, stdout};

fn run(words: &[String], last: &str) -> Output {
    let mut command = holdall(&words.iter().map(String::as_str).collect::<Vec<_>>());
    output(command.arg(last).stdin(Stdio::null()))
}

/// A command's words and its help.
struct Page {
    words: Vec<String>,
    help: String,
}

impl Page {
    /// The names below `Commands:`.
    fn subcommands(&self) -> Vec<String> {
        let list = self.help.split("\nCommands:\n").nth(1).unwrap_or_default();
        let list = list.split("\n\n").next().unwrap_or_default();
        // Those of clap are indented by two; what goes on after a line's end is indented more.
        let names = list.lines().filter(|line| {
            let rest = line.trim_start();
            line.len() - rest.len() <= 2 && !rest.starts_with("help")
        });
        names.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }

    /// The long flags that begin a line, without their hyphens.
    fn flags(&self) -> BTreeSet<String> {
        let first = |line: &str| {
            let line = line.trim_start();
            let line = match line.split_once(", ") {
                Some((short, rest)) if short.len() == 2 && short.starts_with('-') => rest,
                _ => line,
            };
            let name = line.strip_prefix("--")?;
            let end = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
            Some(name.split(end).next()?.to_owned())
        };
        self.help.lines().filter_map(first).filter(|name| !name.is_empty()).collect()
    }

    /// The flags below the heading that has most.
    fn flags_in_longest_list(&self) -> usize {
        let is_heading = |line: &&str| !line.starts_with(' ') && line.ends_with(':');
        let lines: Vec<&str> = self.help.lines().collect();
        let lists = lines.chunk_by(|_, line| !is_heading(line)).map(|list| list.join("\n"));
        lists.map(|help| Self { words: Vec::new(), help }.flags().len()).max().unwrap_or_default()
    }

    /// memtier's and mcblaster's command lines are those programs'.
    fn is_ours(&self) -> bool {
        !self.words.last().is_some_and(|word| word == "memtier" || word == "mcblaster")
    }
}

/// Each command, after the program itself. Each page is on stdout alone, and ends with 0.
fn pages() -> Vec<Page> {
    let mut pages = Vec::new();
    let mut ahead = vec![Vec::new()];
    while let Some(words) = ahead.pop() {
        let shown = run(&words, "--help");
        assert_eq!(shown.status.code(), Some(0), "{words:?}: {}", stderr(&shown));
        assert_eq!(stderr(&shown), "", "{words:?}");
        let page = Page { words, help: stdout(&shown) };
        assert!(!page.help.is_empty(), "{:?}", page.words);
        let below = page.subcommands();
        ahead.extend(below.into_iter().map(|name| [page.words.clone(), vec![name]].concat()));
        pages.push(page);
    }
    assert!(pages.len() > 50, "{} pages", pages.len());
    pages
}

/// Nobody finds a flag in a list that fills the screen.
#[test]
fn help_of_a_command_matches_its_help_flag() {
    for page in pages().into_iter().filter(|page| !page.words.is_empty()) {
        let (last, words) = page.words.split_last().unwrap();
        let shown = run(&[&["help".to_owned()], words].concat(), last);
        assert_eq!(stdout(&shown), page.help, "{:?}", page.words);
    }
    let unknown = run(&["help".to_owned()], "frobnicate");
    assert_eq!((unknown.status.code(), stdout(&unknown).as_str()), (Some(64), ""));
}

#[test]
fn many_flags_are_in_groups() {
    for page in pages().iter().filter(|page| page.is_ours()) {
        let longest = page.flags_in_longest_list();
        assert!(longest <= 20, "{:?}: {longest} flags in one list", page.words);
    }
}

#[test]
fn an_unknown_flag_exits_with_64_and_an_empty_stdout() {
    for page in pages() {
        let ended = run(&page.words, "--no-such-flag");
        let why = format!("{:?}: {}", page.words, stderr(&ended));
        assert_eq!(ended.status.code(), Some(64), "{why}");
        assert_eq!(stdout(&ended), "", "{why}");
        assert!(!stderr(&ended).is_empty(), "{why}");
    }
}

/// Without its third letter, each flag still gets the right suggestion.
#[test]
fn a_misspelt_flag_gets_the_right_suggestion() {
    let mut tried = 0;
    for page in pages().iter().filter(|page| page.is_ours()) {
        // It passes flags on to the server's command line, and knows those alone.
        if page.words == ["config", "show"] || page.words == ["migrate"] {
            continue;
        }
        let flags = page.flags();
        for flag in flags.iter().filter(|flag| flag.len() >= 4) {
            let misspelt = format!("{}{}", &flag[..2], &flag[3..]);
            // A beginning is enough for memcached's flags, and may be another's.
            if flags.iter().any(|other| other.starts_with(&misspelt)) {
                continue;
            }
            let ended = run(&page.words, &format!("--{misspelt}"));
            let why = format!("{:?} --{misspelt}: {}", page.words, stderr(&ended));
            assert_eq!(ended.status.code(), Some(64), "{why}");
            assert_eq!(stdout(&ended), "", "{why}");
            assert!(stderr(&ended).contains(&format!("--{flag}")), "{why}");
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried} flags");
}

/// With a letter missing, and with two letters exchanged.
#[test]
fn a_misspelt_subcommand_gets_the_right_suggestion() {
    let mut tried = 0;
    for page in pages() {
        for name in page.subcommands().iter().filter(|name| name.len() >= 3) {
            let exchanged = format!("{}{}{}{}", &name[..1], &name[2..3], &name[1..2], &name[3..]);
            for misspelt in [format!("{}{}", &name[..1], &name[2..]), exchanged] {
                let ended = run(&page.words, &misspelt);
                let said = stderr(&ended);
                let why = format!("{:?} {misspelt}: {said}", page.words);
                assert_eq!(ended.status.code(), Some(64), "{why}");
                assert_eq!(stdout(&ended), "", "{why}");
                let is_named = said.contains(&format!("did you mean {name}?"))
                    || said.contains(&format!("similar subcommand exists: '{name}'"));
                assert!(is_named, "{why}");
                tried += 1;
            }
        }
    }
    assert!(tried > 80, "{tried} misspelt");
}
