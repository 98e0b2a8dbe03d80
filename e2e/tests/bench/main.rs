//! `holdall bench` as a user runs it: what it reports is true, what goes wrong is said, and servers
//! that want a login are measured.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod access;
mod certificates;
mod faults;
mod other_programs;
mod stages;

use std::path::PathBuf;
use std::process::{Command, Output};

use bench::result::RunResult;
use testkit::server::holdall_path;

/// A folder of a test's own, empty.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// `holdall bench` with these words, parted by spaces.
fn command(words: &str) -> Command {
    let mut command = Command::new(holdall_path());
    command.arg("bench").args(words.split_whitespace());
    command
}

/// What was said on the standard output and the standard error.
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The result of a run that must end well.
#[track_caller]
fn measured(name: &str, words: &str) -> RunResult {
    let file = folder(name).join("r.json");
    let output = command(words).arg("--json").arg(&file).output().unwrap();
    assert!(output.status.success(), "{words}: {:?}", said(&output));
    RunResult::read(&std::fs::read_to_string(&file).unwrap()).unwrap()
}
