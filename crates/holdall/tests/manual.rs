//! The manual and the completions say what the program takes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::{Scratch, holdall, output, stdout};

/// The long flags in a text, but for `--help`.
fn flags(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let words = text.split(|letter| !is_part(letter));
    let flags = words.filter(|word| word.len() > 3 && word.starts_with("--") && *word != "--help");
    flags.map(str::to_owned).collect()
}

/// A page of the manual as plain text, without fonts; a dash is written with a backslash.
fn page(folder: &Scratch, command: &str) -> String {
    let path = folder.path("man").join(format!("holdall-{command}.1"));
    let page = fs::read_to_string(path).unwrap();
    ["\\fB", "\\fI", "\\fR"]
        .iter()
        .fold(page, |page, font| page.replace(font, " "))
        .replace("\\-", "-")
}

#[test]
fn every_command_has_a_page_with_its_flags() {
    let scratch = Scratch::new();
    let folder = scratch.path("man");
    let man = output(holdall(&["man"]).arg(&folder));
    assert!(man.status.success(), "{man:?}");
    let help = stdout(&output(&mut holdall(&["--help"]))).to_owned();
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names: Vec<_> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(names.len() >= 14, "{names:?}");
    for name in names {
        assert!(page(&scratch, name).contains(".SH DESCRIPTION"), "{name}");
    }
    assert!(page(&scratch, "bench-run").contains("--pipeline"));
}

/// These read their words by themselves, so that their pages are written a second time.
#[test]
fn pages_of_commands_without_clap_follow_their_help() {
    let scratch = Scratch::new();
    assert!(output(holdall(&["man"]).arg(scratch.path("man"))).status.success());
    for command in ["check", "explain", "spool", "passwd", "completions", "man"] {
        let help = output(&mut holdall(&[command, "--help"]));
        // One of mcrouter's flags is named as well.
        let help = stdout(&help).replace("(--async-dir)", "");
        assert_eq!(flags(&page(&scratch, command)), flags(&help), "{command}");
    }
}

#[test]
fn the_shell_completes_commands_and_flags() {
    let script = output(&mut holdall(&["completions", "bash"]));
    assert!(script.status.success());
    let scratch = Scratch::new();
    fs::write(scratch.path("holdall.bash"), &script.stdout).unwrap();
    for (words, expected) in
        [("holdall inv", "invalidate"), ("holdall serve --memory-l", "--memory-limit")]
    {
        let asked = "source \"$0\"; COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); \
            _holdall holdall \"${COMP_WORDS[COMP_CWORD]}\" x; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut bash = Command::new("bash");
        bash.args(["-c", asked]).arg(scratch.path("holdall.bash")).arg(words);
        assert_eq!(stdout(&output(&mut bash)).trim(), expected, "{words}");
    }
}

#[test]
fn unknown_shells_and_unusable_directories_are_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.path("file"), "").unwrap();
    for (words, status) in [
        (&["completions"][..], 64),
        (&["completions", "csh"], 64),
        (&["man"], 64),
        (&["man", "--x"], 64),
    ] {
        assert_eq!(output(&mut holdall(words)).status.code(), Some(status), "{words:?}");
    }
    let refused = output(holdall(&["man"]).arg(scratch.path("file")));
    assert_eq!(refused.status.code(), Some(1));
}
