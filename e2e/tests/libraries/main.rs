//! Look-aside reads in every language: the libraries for Rust, Python, Go, Node and PHP run the
//! scenarios of `e2e/scenarios/look-aside.jsonl`, and Rust's also runs with failures.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod failures;
mod scenarios;
mod targets;

use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::clients::tool;
use targets::Targets;

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The results printed by a library's runner, sorted.
#[track_caller]
fn results(command: &mut Command, targets: &Targets) -> Vec<String> {
    command.env("HOLDALL_SCENARIOS", folder("e2e/scenarios/look-aside.jsonl"));
    let output = command.env("HOLDALL_TARGETS", targets.names()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}:\n{text}", output.status);
    // Node's runner prefixes the output of a test.
    let lines = text.lines().map(|line| line.trim_start_matches("# "));
    let mut results: Vec<_> =
        lines.filter(|line| line.starts_with("result: ")).map(str::to_owned).collect();
    results.sort();
    results
}

#[test]
fn libraries_give_the_same_results() {
    let targets = Targets::start();
    let (all, of_many_processes) = scenarios::run(&targets);
    assert!(all.len() > 100, "{all:#?}");

    let mut python = Command::new(tool("python-library/venv/bin/python"));
    python.arg(folder("python/tests/scenarios.py"));
    assert_eq!(results(&mut python, &Targets::start()), all, "Python");

    let mut go = Command::new("go");
    go.args(["test", "-count=1", "-v", "-tags", "scenarios", "./..."]).current_dir(folder("go"));
    assert_eq!(results(&mut go, &Targets::start()), all, "Go");

    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=tap", "scenarios.test.js"]).current_dir(folder("node"));
    assert_eq!(results(&mut node, &Targets::start()), all, "Node");

    let mut php = Command::new("php");
    php.arg("tests/scenarios.php").current_dir(folder("php"));
    assert_eq!(results(&mut php, &Targets::start()), of_many_processes, "PHP");
}

#[test]
fn desynchronized_connections_are_closed() {
    // The Go run includes the tests of connections.
    let runs = [
        ("node", ["--test", "connection.test.js"].as_slice(), "node"),
        ("php", &["tests/connection.php"], "php"),
    ];
    for (program, args, place) in runs {
        let output = Command::new(program).args(args).current_dir(folder(place)).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{program}: {}:\n{text}", output.status);
    }
}
