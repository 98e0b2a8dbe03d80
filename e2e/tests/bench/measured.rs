//! Runs of `holdall bench`, and their results.

use std::process::Command;

use bench::result::RunResult;
use e2e::folder::Folder;
use testkit::server::holdall_path;

/// `holdall bench` with these words, separated by spaces.
pub(crate) fn command(words: &str) -> Command {
    let mut command = Command::new(holdall_path());
    command.arg("bench").args(words.split_whitespace());
    command
}

/// The result of a run that must succeed.
#[track_caller]
pub(crate) fn measured(words: &str) -> RunResult {
    let folder = Folder::new("bench");
    let file = folder.path().join("result.json");
    let output = command(words).arg("--json").arg(&file).output().unwrap();
    assert!(output.status.success(), "{words}: {output:?}");
    RunResult::read(&std::fs::read_to_string(&file).unwrap()).unwrap()
}
