//! All tests: the workspace's own, the loom models, the fuzz targets on their stored inputs, and
//! the tests against live servers.

use crate::failure::Failure;
use crate::steps::{ParallelCommand, Steps, cargo, program, root, succeeds, target};
use crate::{dist, fuzz, install};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// Fuzzing time of `cargo xtask test`, for all targets together.
const FUZZ_SECS: u64 = 60;

/// Tests that mostly wait: for databases, browsers, time-outs, pauses. They run in parallel with
/// the others, which fill the processors.
const WAITING: [&str; 14] = [
    "connections",
    "console",
    "demo",
    "documents",
    "gutter",
    "invalidate",
    "libraries",
    "network",
    "report",
    "rollout",
    "security",
    "soak",
    "suites",
    "watch",
];

/// The parallel tests of such a file, whatever the number of processors.
const WAITING_AT_ONCE: &str = "--test-threads=3";

/// Tests of times measured by another program. They run while nothing else does.
const MEASURING: &str = "bench_latency";

/// The README's promise: installs missing parts, then runs everything, in parallel with `more`.
///
/// Tests against live servers start the static binary of the packages, so that they test the users'
/// binary, which is compiled once.
///
/// Every call of cargo covers the whole workspace: separately selected packages would need other
/// features of the same dependencies, and compile them again.
pub(crate) fn all(steps: &mut Steps, more: Vec<ParallelCommand>) -> Result<(), Failure> {
    install::all(steps)?;
    let compiled = cargo(["test", "--workspace", "--locked", "--no-run"]);
    let units = ["test", "--workspace", "--locked", "--no-fail-fast", "--lib", "--bins"];
    // They start no program of ours, so they need not wait for the binary.
    let units = ParallelCommand::tests("unit tests", with_tools(cargo(units)));
    let binary =
        dist::binary(steps, ParallelCommand::other("tests, compiled", compiled).then(units))?;
    let mut targets = targets().map_err(Failure::path(root()))?;
    targets.remove(MEASURING);
    let (waiting, others): (Vec<_>, Vec<_>) =
        targets.iter().partition(|name| WAITING.contains(&name.as_str()));
    let of = |names: &[&String]| {
        let mut command = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
        command.args(names.iter().flat_map(|name| ["--test", name]));
        packaged(command, &binary)
    };
    let mut wait = of(&waiting);
    wait.args(["--", WAITING_AT_ONCE]);
    let mut together = vec![
        ParallelCommand::tests("tests that wait", wait),
        ParallelCommand::tests("tests", of(&others)),
    ];
    together.extend(more);
    steps.run_together(together)?;
    let measuring = cargo(["test", "--workspace", "--locked", "--test", MEASURING]);
    steps.run_tests("tests that measure", packaged(measuring, &binary))?;
    instructions(steps, &binary)?;
    // Compiling ones fill the processors while the others wait. They do not run together with the
    // tests above, although those wait, too: next to four processes with the policy `SCHED_IDLE`,
    // one test in the browser took more than 150 s instead of 44.
    let examples = packaged(cargo(["test", "--workspace", "--locked", "--doc"]), &binary);
    let mut together = vec![
        ParallelCommand::tests("examples in docs", examples),
        ParallelCommand::tests("loom models", loom_models()),
        ParallelCommand::other(fuzz::BUILT, fuzz::build()),
    ];
    together.extend(under_other_conditions(&binary));
    steps.run_together(together)?;
    fuzz::all(steps, FUZZ_SECS)
}

/// Checks that the packages' binary takes no more instructions per request than recorded.
fn instructions(steps: &mut Steps, binary: &Path) -> Result<(), Failure> {
    let mut count = program(target().join("debug/server-bench"), ["instructions", "--holdall"]);
    count.arg(binary).arg("--out").arg(target().join("bench")).current_dir(root());
    steps.run("instructions a request", count)
}

/// The names of all test targets: files of the folders `tests`, and folders with a `main.rs`.
fn targets() -> io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let crates = fs::read_dir(root().join("crates"))?.collect::<io::Result<Vec<_>>>()?;
    let packages = crates.into_iter().map(|entry| entry.path());
    for package in packages.chain(["e2e", "lab", "xtask"].map(|name| root().join(name))) {
        let Ok(tests) = fs::read_dir(package.join("tests")) else { continue };
        for entry in tests {
            let path = entry?.path();
            let is_target = path.extension().is_some_and(|ending| ending == "rs")
                || path.join("main.rs").exists();
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned());
            names.extend(name.filter(|_| is_target));
        }
    }
    Ok(names)
}

/// Every interleaving of the small models of the lock-free protocols.
pub(crate) fn loom(steps: &mut Steps) -> Result<(), Failure> {
    steps.run_tests("loom models", loom_models())
}

fn loom_models() -> Command {
    let mut command = cargo(["test", "-p", "holdall-arena", "-p", "holdall-store"]);
    command.args(["--release", "--locked", "--lib", "loom"]).env("RUSTFLAGS", "--cfg loom");
    // They compile in two thirds of the time without either.
    command.env("CARGO_PROFILE_RELEASE_LTO", "off").env("CARGO_PROFILE_RELEASE_DEBUG", "0");
    // A separate folder: the flag would make cargo build everything again, both ways.
    command.env("CARGO_TARGET_DIR", target().join("loom"));
    command
}

/// The crates with unsafe code under four schedules of Miri, and the parsers. Not a part of `test`,
/// because a machine may have no nightly toolchain and no way to get one.
pub(crate) fn miri(steps: &mut Steps) -> Result<(), Failure> {
    let nightly = ["run", "nightly", "cargo", "miri", "--version"];
    if !succeeds(program("rustup", nightly)) {
        let add = ["component", "add", "--toolchain", "nightly", "miri", "rust-src"];
        steps.run("miri component", program("rustup", add))?;
    }
    let run = |words: &[&str], flags: &str| {
        let mut command =
            program("rustup", ["run", "nightly", "cargo", "miri", "test", "--locked"]);
        command.args(words);
        command.env("MIRIFLAGS", format!("-Zmiri-strict-provenance {flags}"));
        command.env("CARGO_TARGET_DIR", target().join("miri"));
        // Property tests look for their folder, and a case takes seconds.
        command.env("PROPTEST_CASES", "4");
        command
    };
    let parsers = run(&["-p", "holdall-proto", "--lib"], "-Zmiri-disable-isolation");
    steps.run_tests("miri, parsers", parsers)?;
    // Its comparisons have no unsafe code.
    let with_unsafe = ["-p", "holdall-short", "--lib", "--", "appended", "blocks"];
    steps.run_tests("miri, copies and searches", run(&with_unsafe, ""))?;
    for seed in 0..4 {
        // A page that changes its class is written in other sizes than before, on which Miri's
        // emulation of weak memory stops with an internal error. Loom checks reordering.
        let weak = "-Zmiri-disable-weak-memory-emulation";
        let flags = format!("-Zmiri-seed={seed} -Zmiri-disable-isolation {weak}");
        let name = format!("miri, store, seed {seed}");
        steps.run_tests(&name, run(&["-p", "holdall-store", "--test", "miri"], &flags))?;
    }
    Ok(())
}

/// The store under ThreadSanitizer, with an instrumented standard library built by a nightly.
pub(crate) fn tsan(steps: &mut Steps) -> Result<(), Failure> {
    let add = ["component", "add", "--toolchain", "nightly", "rust-src"];
    steps.run("rust-src component", program("rustup", add))?;
    let mut command = program("rustup", ["run", "nightly", "cargo", "test", "--locked"]);
    command.args(["-Zbuild-std", "--target", "x86_64-unknown-linux-gnu", "-p", "holdall-store"]);
    command.args(["--test", "stress", "--test", "miri"]);
    command.env("RUSTFLAGS", "-Zsanitizer=thread --cfg holdall_tsan");
    // The report of a race names the lines of both sides.
    command.env("CARGO_PROFILE_DEV_DEBUG", "line-tables-only");
    command.env("CARGO_TARGET_DIR", target().join("tsan"));
    steps.run_tests("thread sanitizer", command)
}

/// The tests against live servers; `names` are test files of `e2e/tests`, none means all.
pub(crate) fn e2e(steps: &mut Steps, names: &[String]) -> Result<(), Failure> {
    install::for_files(steps, names)?;
    release_server(steps)?;
    let mut command = cargo(["test", "-p", "e2e", "--locked", "--no-fail-fast", "--lib"]);
    if names.is_empty() {
        command.arg("--tests");
    }
    command.args(names.iter().flat_map(|name| ["--test", name]));
    steps.run_tests("end to end", with_tools(command))
}

/// A deployment under a mixed load and faults for some hours; its page lists the parts missing on
/// this machine.
pub(crate) fn soak(steps: &mut Steps, words: &[String]) -> Result<(), Failure> {
    release_server(steps)?;
    let mut command = cargo(["run", "--quiet", "--release", "--locked", "-p", "e2e"]);
    command.args(["--bin", "soak", "--"]).args(words);
    steps.run("soak", with_tools(command))
}

/// The program that tests against live servers start when they run alone.
fn release_server(steps: &mut Steps) -> Result<(), Failure> {
    steps.run("release server", cargo(["build", "--release", "-p", "holdall", "--locked"]))
}

/// Some of the tests against live servers once more.
fn under_other_conditions(binary: &Path) -> [ParallelCommand; 2] {
    let again = |test| packaged(cargo(["test", "--workspace", "--locked", "--test", test]), binary);
    // With overflow checks and debug assertions in the server. It was built with the tests, so its
    // atomics look for a schedule (feature `schedule` of arena), and find none.
    let mut hostile = again("hostile");
    hostile.env("HOLDALL_BIN", debug_server());
    // With a confined process: here a system call that its filter lacks fails.
    let mut wire = again("wire");
    wire.env("E2E_FLAGS", "-o drop_privileges");
    [
        ParallelCommand::tests("hostile input, debug server", hostile),
        ParallelCommand::tests("wire, confined", wire),
    ]
}

/// The program built with the tests.
fn debug_server() -> PathBuf {
    target().join("debug/holdall")
}

/// Tests of the packages' binary. It is static: loading a library into a server needs another.
fn packaged(mut command: Command, binary: &Path) -> Command {
    command.env("HOLDALL_BIN", binary).env("HOLDALL_DYNAMIC_BIN", debug_server());
    with_tools(command)
}

fn with_tools(mut command: Command) -> Command {
    command.env("E2E_TOOLS", install::tools());
    command
}
