//! The lines executed by tests, counted in every process that they start.
//!
//! A test ends servers by signals that leave no time to write anything. So the counters are in a
//! memory-mapped file (`%c`), one for all processes of a program (`%m`).

use crate::failure::Failure;
use crate::install;
use crate::steps::{Steps, cargo, program, root, succeeds, target};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

const FLAGS: &str = "-Cinstrument-coverage -Cllvm-args=-runtime-counter-relocation";

/// Uncounted code: foreign code, tests, and programs used only by tests and measurements.
const IGNORED: &str = "\\.cargo|/rustc/|/target/|/tests/|tests\\.rs|/benches/|\
    /testkit/|/e2e/|/lab/|/xtask/|/simulation/";

/// `cargo xtask coverage`: runs the tests of the workspace, and prints the number of executed lines
/// of each crate. A failed test ends the task after that: some tests measure CPU time and memory,
/// which counting increases.
pub(crate) fn run(steps: &mut Steps) -> Result<(), Failure> {
    install::all(steps)?;
    let tools = tools(steps)?;
    let folder = target().join("coverage");
    let counts = folder.join("counts");
    // Counts of a differently built program cannot be added.
    let _ = fs::remove_dir_all(&counts);
    fs::create_dir_all(&counts).map_err(Failure::path(&counts))?;
    let server = folder.join("debug/holdall");
    let mut tests = cargo(["test", "--workspace", "--locked", "--no-fail-fast"]);
    tests.args(["--lib", "--bins", "--tests"]).env("RUSTFLAGS", FLAGS);
    tests.env("CARGO_TARGET_DIR", &folder).env("E2E_TOOLS", install::tools());
    tests.env("HOLDALL_BIN", &server).env("HOLDALL_DYNAMIC_BIN", &server);
    tests.env("LLVM_PROFILE_FILE", counts.join("%m%c.profraw"));
    let outcome = steps.run_tests("tests, counted", tests);
    steps.check("coverage", || report(&tools, &folder))?;
    outcome
}

/// The folder of the compiler's LLVM tools.
fn tools(steps: &mut Steps) -> Result<PathBuf, Failure> {
    let said = Command::new("rustc").args(["--print", "target-libdir"]).output();
    let said = said.map_err(Failure::path("rustc"))?.stdout;
    let library = PathBuf::from(String::from_utf8_lossy(&said).trim());
    let tools = library.with_file_name("bin");
    if !succeeds(program(tools.join("llvm-cov"), ["--version"])) {
        steps.run("llvm-tools", program("rustup", ["component", "add", "llvm-tools"]))?;
    }
    Ok(tools)
}

/// Adds the counts, writes each file's into `files.txt`, and prints each crate's.
fn report(tools: &Path, folder: &Path) -> Result<(), Failure> {
    let (profile, files) = (folder.join("all.profdata"), folder.join("files.txt"));
    let mut merge = program(tools.join("llvm-profdata"), ["merge", "-sparse", "-o"]);
    merge.arg(&profile).args(entries(&folder.join("counts"))?);
    output("llvm-profdata", merge)?;
    let mut report = program(tools.join("llvm-cov"), ["report", "-ignore-filename-regex", IGNORED]);
    report.arg("-instr-profile").arg(&profile);
    let programs = entries(&folder.join("debug/deps"))?.into_iter();
    let programs = programs.filter(|path| path.extension().is_none());
    for program in programs.chain([folder.join("debug/holdall")]) {
        report.arg("-object").arg(program);
    }
    let text = output("llvm-cov", report)?;
    fs::write(&files, &text).map_err(Failure::path(&files))?;
    println!("{:24} {:>8} {:>10} {:>9}", "crate", "lines", "executed", "");
    for (name, (lines, missed)) in by_crate(&text) {
        let executed = lines - missed;
        let share = 100 * executed / lines.max(1);
        println!("{name:24} {lines:8} {executed:10} {share:7} %");
    }
    println!("each file: {}", files.display());
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>();
    read().map_err(Failure::path(folder))
}

/// The output of a successful command.
fn output(step: &str, mut command: Command) -> Result<String, Failure> {
    let output = command.output().map_err(|error| Failure::command(step, &command, error))?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(Failure::Status { step: step.to_owned(), status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Lines and missed lines of each crate, and in total, from a report of `llvm-cov` by file.
fn by_crate(report: &str) -> BTreeMap<String, (u64, u64)> {
    let mut crates: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let root = root().display().to_string();
    for line in report.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        // File; regions, functions and lines, each with those missed and the share; branches.
        let [file, _, _, _, _, _, _, lines, missed, ..] = words[..] else { continue };
        let (Ok(lines), Ok(missed)) = (lines.parse::<u64>(), missed.parse::<u64>()) else {
            continue;
        };
        let file = file.strip_prefix(root.trim_start_matches('/')).unwrap_or(file);
        let file = file.trim_start_matches('/').trim_start_matches("crates/");
        let name = file.split('/').next().unwrap_or(file);
        let sums = crates.entry(name.to_owned()).or_default();
        *sums = (sums.0 + lines, sums.1 + missed);
    }
    crates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_summed_by_crate() {
        let report = "\
Filename       Regions Missed Regions Cover Functions Missed Functions Executed Lines Missed
----
proto/src/a.rs 10 1 90.00% 2 0 100.00% 30 3 90.00% 0 0 -
proto/src/b.rs 10 1 90.00% 2 0 100.00% 20 7 65.00% 0 0 -
crates/net/src/b.rs 10 1 90.00% 2 0 100.00% 5 0 100.00% 0 0 -
TOTAL 30 3 90.00% 6 0 100.00% 55 10 81.00% 0 0 -
";
        let sums = by_crate(report).into_iter().collect::<Vec<_>>();
        let sum = |name: &str, lines, missed| (name.to_owned(), (lines, missed));
        assert_eq!(sums, [sum("TOTAL", 55, 10), sum("net", 5, 0), sum("proto", 50, 10)]);
    }
}
