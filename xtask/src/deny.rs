//! Checks of dependencies by cargo-deny, over the three locks: licences, duplicates, sources, and
//! published advisories. `deny.toml` has the rules.

use crate::failure::Failure;
use crate::steps::{Steps, cargo, program, succeeds};
use std::process::Command;

/// The release to install if there is none.
const VERSION: &str = "0.20.2";

/// Seconds after which a database that is still being fetched counts as unreachable.
const FETCH_SECS: &str = "120";

/// The manifests with separate locks, and lints that do not apply to them. All three share
/// `deny.toml`: its exceptions must exist in the workspace, but not in the other two.
const MANIFESTS: [(&str, &[&str]); 3] = [
    ("Cargo.toml", &["-D", "unmatched-skip", "-D", "unnecessary-skip"]),
    ("fuzz/Cargo.toml", &["-A", "unmatched-skip", "-A", "unnecessary-skip"]),
    ("python/Cargo.toml", &["-A", "unmatched-skip", "-A", "unnecessary-skip"]),
];

/// The checks that need no network once cargo has the dependencies: licences, duplicates and
/// sources.
pub(crate) fn run(steps: &mut Steps) -> Result<(), Failure> {
    install(steps)?;
    check(steps, &["licenses", "bans", "sources"])
}

/// Published advisories. The database is first fetched from github.com, which must succeed.
pub(crate) fn advisories(steps: &mut Steps) -> Result<(), Failure> {
    install(steps)?;
    steps.run("advisories, database", fetch())?;
    check(steps, &["advisories"])
}

/// Published advisories, on machines that can reach the database; on others, the summary reports
/// that they were not checked.
pub(crate) fn advisories_within_reach(steps: &mut Steps) -> Result<(), Failure> {
    install(steps)?;
    if succeeds(fetch()) {
        return check(steps, &["advisories"]);
    }
    steps.not_run("advisories: their database cannot be fetched from github.com");
    Ok(())
}

fn install(steps: &mut Steps) -> Result<(), Failure> {
    if succeeds(cargo(["deny", "--version"])) {
        return Ok(());
    }
    let mut install = cargo(["install", "cargo-deny", "--locked", "--version", VERSION]);
    // Built in a temporary folder, of which nothing is needed again.
    install.env_remove("CARGO_TARGET_DIR");
    // It runs for only seconds, so optimizing it costs more time than it saves.
    for (setting, value) in [("LTO", "off"), ("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16")] {
        install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    steps.run("install cargo-deny", install)
}

fn fetch() -> Command {
    let fetch = cargo(["deny", "fetch", "db"]);
    let mut command = program("timeout", [FETCH_SECS]);
    command.arg(fetch.get_program()).args(fetch.get_args());
    // Git must not ask for a password.
    command.env("GIT_TERMINAL_PROMPT", "0");
    command
}

fn check(steps: &mut Steps, which: &[&str]) -> Result<(), Failure> {
    MANIFESTS.iter().try_for_each(|(manifest, lints)| {
        let place = ["deny", "--locked", "--config", "deny.toml", "--manifest-path", manifest];
        let mut command = cargo(place);
        command.args(["check", "--hide-inclusion-graph"]).args(*lints);
        command.args(["-A", "license-exception-not-encountered"]).args(which);
        steps.run(&format!("deny {}, {manifest}", which.join(" ")), command)
    })
}
