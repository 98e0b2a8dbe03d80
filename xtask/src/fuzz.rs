//! Builds and runs the fuzz targets of `fuzz/` with libFuzzer and, except for `--fast`, the address
//! sanitizer.
//!
//! The flags are those of `cargo fuzz` 0.13, set here, so that nothing must be installed and the
//! stable toolchain suffices (`RUSTC_BOOTSTRAP=1` makes it accept `-Zsanitizer`; its sanitizer
//! runtime ships with it). `cargo fuzz` itself works on the same folder.

use crate::failure::Failure;
use crate::steps::{ParallelCommand, Steps, cargo, program, target};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The step of [`build`].
pub(crate) const BUILT: &str = "fuzz targets";
/// Targets that run at the same time.
const TOGETHER: usize = 2;
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 -Cdebug-assertions -Ccodegen-units=1";
/// Flags that observe more of each input.
const THOROUGH: &str = "-Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address";
/// The flag for several times as many inputs with less observation of each.
const FAST: &str = "--fast";

/// A way to build the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Build {
    Thorough,
    Fast,
}

impl Build {
    /// The folder of cargo's build. Other flags would make it build everything again.
    fn folder(self) -> PathBuf {
        target().join(if self == Self::Thorough { "fuzz" } else { "fuzz-fast" })
    }

    fn command(self) -> Command {
        let words = ["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--bins"];
        let mut command = cargo(words);
        command.args(["--locked", "--target", TRIPLE]);
        let more = if self == Self::Thorough { THOROUGH } else { "" };
        command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", format!("{FLAGS} {more}"));
        command.env("CARGO_TARGET_DIR", self.folder());
        command
    }
}

/// `cargo xtask fuzz [--fast] [TARGET] [SECONDS]`.
pub(crate) fn run(steps: &mut Steps, args: &[String]) -> Result<(), Failure> {
    let (how, args) = match args {
        [first, rest @ ..] if first == FAST => (Build::Fast, rest),
        _ => (Build::Thorough, args),
    };
    let secs_of = |text: &String| {
        text.parse().map_err(|_| Failure::Usage(format!("{text:?} is no number of seconds")))
    };
    let (name, secs) = match args {
        [] => (None, 60),
        [name] => (Some(name), 60),
        [name, secs] => (Some(name), secs_of(secs)?),
        _ => {
            let usage = "usage: cargo xtask fuzz [--fast] [TARGET] [SECONDS]";
            return Err(Failure::Usage(usage.to_owned()));
        }
    };
    steps.run(BUILT, how.command())?;
    match name {
        None => each(steps, how, secs),
        Some(name) => steps.run(&step(name, secs), execution(how, name, secs)?),
    }
}

/// Runs every target, which [`build`] has built: its stored inputs again, then new ones.
/// `total_secs` of a processor are divided among them.
pub(crate) fn all(steps: &mut Steps, total_secs: u64) -> Result<(), Failure> {
    each(steps, Build::Thorough, total_secs)
}

fn each(steps: &mut Steps, how: Build, total_secs: u64) -> Result<(), Failure> {
    let names = targets()?;
    let share = (total_secs / u64::try_from(names.len()).unwrap_or(1).max(1)).max(1);
    let run = |name: &String| {
        Ok(ParallelCommand::other(&step(name, share), execution(how, name, share)?))
    };
    for some in names.chunks(TOGETHER) {
        steps.run_together(some.iter().map(run).collect::<Result<_, Failure>>()?)?;
    }
    Ok(())
}

/// The command that builds all targets.
pub(crate) fn build() -> Command {
    Build::Thorough.command()
}

/// The name of the step that runs a target.
fn step(name: &str, secs: u64) -> String {
    format!("fuzz {name}, {secs} s")
}

/// The command that runs a target for this time.
fn execution(how: Build, name: &str, secs: u64) -> Result<Command, Failure> {
    // One for both builds: each continues from the other's findings.
    let corpus = Build::Thorough.folder().join("corpus").join(name);
    let artifacts = format!("fuzz/artifacts/{name}/");
    for folder in [corpus.as_path(), Path::new(&artifacts)] {
        fs::create_dir_all(folder).map_err(Failure::path(folder))?;
    }
    let built = how.folder().join(TRIPLE).join("release").join(name);
    let mut command = program(built, [corpus]);
    let seeds = format!("fuzz/seeds/{name}");
    if Path::new(&seeds).is_dir() {
        command.arg(seeds);
    }
    command.args(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0"]);
    command.args([format!("-max_total_time={secs}"), format!("-artifact_prefix={artifacts}")]);
    Ok(command)
}

/// The names of the `[[bin]]` sections of `fuzz/Cargo.toml`.
fn targets() -> Result<Vec<String>, Failure> {
    let manifest = "fuzz/Cargo.toml";
    let text = fs::read_to_string(manifest).map_err(Failure::path(manifest))?;
    let names = bins(&text);
    if names.is_empty() { Err(Failure::NoFuzzTarget) } else { Ok(names) }
}

fn bins(manifest: &str) -> Vec<String> {
    manifest
        .split("[[bin]]")
        .skip(1)
        .filter_map(|section| section.lines().find_map(|line| line.trim().strip_prefix("name")))
        .map(|rest| rest.trim_matches([' ', '=', '"']).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins_of_the_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n\n[[bin]]\npath = \"b.rs\"\nname=\"b\"\n";
        assert_eq!(bins(manifest), ["a", "b"]);
    }
}
