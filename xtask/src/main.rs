//! Project tasks, one word each, for people, hooks and CI.
//!
//! It uses only std, so that it builds in seconds on a fresh clone. Every task is a list of steps;
//! each step prints its command, and the output ends with a table of the steps and their times. The
//! first failing step ends the task, with its own output as the reason.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line program")]

mod coverage;
mod deny;
mod dist;
mod docs;
mod failure;
mod fuzz;
mod install;
mod lint;
mod python;
mod steps;
mod test;
mod tidy;

use failure::Failure;
use std::process::ExitCode;
use steps::{ParallelCommand, Steps, cargo, program};

const USAGE: &str = "usage: cargo xtask TASK

  ci            everything a change must pass: fmt, tidy, deny, clippy, doc, test, packages
  test          installs what the tests need, says so, and runs every test
  install       only the first half of `test`
  e2e [NAME..]  only the tests against live servers, or those named
  docs          the pages as a static site with search, in target/site/book, its links checked
  deny          licences, duplicates and sources of dependencies
  dist          a release: static binary, deb, rpm, image, tarball, SBOM, sums in target/dist
  dist pack     the packages alone, of the binary that was built last
  dist twice    builds the commit from another folder too, and compares the two binaries
  dist check    installs, runs, upgrades and removes each package in a clean root (as root)
  dist brief    pack and check of what `ci` tries: deb, rpm, image, tarball and wheel
  advisories    published advisories against dependencies (fetches their database)
  databases     newer PostgreSQL, MariaDB and MySQL, for `POSTGRES_HOME`, `MARIADB_HOME`, `MYSQL_HOME`
  coverage      the lines of each crate that the tests execute, in all processes they start
  loom          the models of the lock-free protocols
  memcached     Debian unstable's memcached, for `MEMCACHED_BIN`
  miri          the unsafe code under Miri (needs a nightly toolchain)
  soak HOURS    a deployment under load and troubles for so long (0.05 are three minutes)
  lint          clippy, also with each feature alone, and the documentation of the code
  fuzz [--fast] [TARGET] [SECONDS]
                all fuzz targets, or one, for this long each (default: 60 s in all);
                --fast: without the address sanitizer and what the target compares
  tidy          the house rules that a program can check
  tsan          the store's stress test under ThreadSanitizer (needs a nightly toolchain)
  bench ...     measurements; `cargo xtask bench` says which
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((task, rest)) = args.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::FAILURE;
    };
    if let Err(error) = std::env::set_current_dir(steps::root()) {
        eprintln!("xtask: {}: {error}", steps::root().display());
        return ExitCode::FAILURE;
    }
    let mut steps = Steps::default();
    let outcome = match task.as_str() {
        "advisories" => deny::advisories(&mut steps),
        "bench" => return bench(rest),
        "ci" => ci(&mut steps),
        "coverage" => coverage::run(&mut steps),
        "databases" => install::databases(&mut steps),
        "deny" => deny::run(&mut steps),
        "dist" => dist::run(&mut steps, rest),
        "docs" => docs::run(&mut steps),
        "e2e" => test::e2e(&mut steps, rest),
        "fuzz" => fuzz::run(&mut steps, rest),
        "install" => install::all(&mut steps),
        "lint" => lint::run(&mut steps),
        "loom" => test::loom(&mut steps),
        "memcached" => install::memcached(&mut steps),
        "miri" => test::miri(&mut steps),
        "soak" => test::soak(&mut steps, rest),
        "test" => test::all(&mut steps, Vec::new()),
        "tidy" => steps.check("tidy", tidy::run),
        "tsan" => test::tsan(&mut steps),
        _ => {
            eprint!("xtask: no task {task:?}\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    steps.summary(&outcome);
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds the lab with the release profile and passes the words to it.
fn bench(args: &[String]) -> ExitCode {
    let mut lab =
        cargo(["run", "--quiet", "--release", "--locked", "-p", "lab", "--bin", "lab", "--"]);
    match lab.args(args).status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: cargo run -p lab: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The checks for a change: cheapest step first, tests last.
fn ci(steps: &mut Steps) -> Result<(), Failure> {
    steps.run("fmt", cargo(["fmt", "--all", "--check"]))?;
    let python = ["fmt", "--check", "--manifest-path", "python/Cargo.toml"];
    steps.run("fmt, library for Python", cargo(python))?;
    steps.check("tidy", tidy::run)?;
    deny::run(steps)?;
    deny::advisories_within_reach(steps)?;
    let own = std::env::current_exe().map_err(Failure::path("xtask"))?;
    let beside = |name, task| ParallelCommand::other(name, program(&own, [task]));
    // Installation waits for the network and the disk.
    steps.run_together(vec![beside("lints", "lint"), beside("needed by tests", "install")])?;
    // They mostly wait: for a disk, for booting systems.
    let packages = dist::beside(steps)?;
    test::all(steps, packages.into_iter().collect())
}
