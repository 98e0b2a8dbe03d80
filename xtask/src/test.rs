//! The tests, all of them: the workspace's own, the loom models, the fuzz targets on their stored
//! inputs, and the tests against live servers.

use crate::failure::Failure;
use crate::steps::{Steps, cargo, program, succeeds, target};
use crate::{fuzz, install};
use std::process::Command;

/// How long `cargo xtask test` fuzzes, all targets together.
const FUZZ_SECS: u64 = 60;

/// What the README promises: installs what is missing, then runs everything.
pub(crate) fn all(steps: &mut Steps) -> Result<(), Failure> {
    install::all(steps)?;
    let unit = ["test", "--workspace", "--exclude", "e2e", "--locked", "--no-fail-fast"];
    steps.run_tests("tests of the workspace", cargo(unit))?;
    loom(steps)?;
    fuzz::all(steps, FUZZ_SECS)?;
    e2e(steps, &[])
}

/// Every interleaving of the small models of the lock-free protocols.
pub(crate) fn loom(steps: &mut Steps) -> Result<(), Failure> {
    let mut command = cargo(["test", "-p", "holdall-arena", "-p", "holdall-store"]);
    command.args(["--release", "--locked", "--lib", "loom"]).env("RUSTFLAGS", "--cfg loom");
    // A folder of its own: the flag would make cargo build everything again, both ways.
    command.env("CARGO_TARGET_DIR", target().join("loom"));
    steps.run_tests("loom models", command)
}

/// The crates with unsafe code under four schedules of Miri, and the parsers. Not a part of `test`:
/// a machine may have no nightly toolchain and no way to get one.
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
        command
    };
    steps.run_tests("miri, parsers", run(&["-p", "holdall-proto", "--lib"], ""))?;
    for seed in 0..4 {
        // A page that changes its class is written in other sizes than before, at which Miri's
        // emulation of weak memory stops with an internal error. Loom checks reordering.
        let weak = "-Zmiri-disable-weak-memory-emulation";
        let flags = format!("-Zmiri-seed={seed} -Zmiri-disable-isolation {weak}");
        let name = format!("miri, store, seed {seed}");
        steps.run_tests(&name, run(&["-p", "holdall-store", "--test", "miri"], &flags))?;
    }
    Ok(())
}

/// The store under ThreadSanitizer, with an instrumented standard library, which a nightly builds.
pub(crate) fn tsan(steps: &mut Steps) -> Result<(), Failure> {
    let add = ["component", "add", "--toolchain", "nightly", "rust-src"];
    steps.run("rust-src component", program("rustup", add))?;
    let mut command = program("rustup", ["run", "nightly", "cargo", "test", "--locked"]);
    command.args(["-Zbuild-std", "--target", "x86_64-unknown-linux-gnu", "-p", "holdall-store"]);
    command.args(["--test", "stress", "--test", "miri"]);
    command.env("RUSTFLAGS", "-Zsanitizer=thread --cfg holdall_tsan");
    command.env("CARGO_TARGET_DIR", target().join("tsan"));
    steps.run_tests("thread sanitizer", command)
}

/// The tests against live servers; `names` are test files of `e2e/tests`, none means all.
pub(crate) fn e2e(steps: &mut Steps, names: &[String]) -> Result<(), Failure> {
    if !names.is_empty() {
        install::all(steps)?;
    }
    steps.run("release server", cargo(["build", "--release", "-p", "holdall", "--locked"]))?;
    let files: Vec<String> =
        names.iter().flat_map(|name| ["--test".into(), name.clone()]).collect();
    let mut command = cargo(["test", "-p", "e2e", "--locked", "--no-fail-fast", "--lib"]);
    if files.is_empty() {
        command.arg("--tests");
    }
    command.args(files);
    steps.run_tests("end to end", with_tools(command))?;
    if !names.is_empty() {
        return Ok(());
    }
    // Once more with overflow checks and debug assertions in the server.
    steps.run("debug server", cargo(["build", "-p", "holdall", "--locked"]))?;
    let mut hostile = cargo(["test", "-p", "e2e", "--locked", "--test", "hostile"]);
    hostile.env("HOLDALL_BIN", target().join("debug/holdall"));
    steps.run_tests("hostile input, debug server", with_tools(hostile))?;
    // And once with the process confined: what a filter of system calls lacks would be missed here.
    let mut wire = cargo(["test", "-p", "e2e", "--locked", "--test", "wire"]);
    wire.env("E2E_FLAGS", "-o drop_privileges");
    steps.run_tests("wire, confined", with_tools(wire))
}

fn with_tools(mut command: Command) -> Command {
    command.env("E2E_TOOLS", install::tools());
    command
}
