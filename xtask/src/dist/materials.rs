//! The bill of materials: every crate in the binary, with version, licence and checksum, by
//! cargo-cyclonedx. A validator of CycloneDX's own project reads it.

use std::process::Command;

use super::binary::TARGET;
use super::stage::put;
use super::{Release, export};
use crate::failure::Failure;
use crate::install;
use crate::steps::{Steps, cargo, succeeds};

/// The release of cargo-cyclonedx that is installed where there is none.
const CYCLONEDX: &str = "0.5.9";

/// Installs cargo-cyclonedx next to cargo, where every clone finds it.
fn install_tool(steps: &mut Steps) -> Result<(), Failure> {
    if succeeds(cargo(["cyclonedx", "--version"])) {
        return Ok(());
    }
    let mut install = cargo(["install", "cargo-cyclonedx", "--locked", "--version", CYCLONEDX]);
    install.env_remove("CARGO_TARGET_DIR");
    // It runs for only seconds, so optimizing it costs more time than it saves.
    for (setting, value) in [("LTO", "off"), ("OPT_LEVEL", "1"), ("CODEGEN_UNITS", "16")] {
        install.env(format!("CARGO_PROFILE_RELEASE_{setting}"), value);
    }
    steps.run("install cargo-cyclonedx", install)
}

/// Writes it.
pub(super) fn make(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    install_tool(steps)?;
    // It writes next to the manifests.
    let source = release.file("stage/source");
    export(steps, &source)?;
    let mut list = cargo(["cyclonedx", "--format", "json"]);
    list.args(["--manifest-path", "crates/holdall/Cargo.toml", "--spec-version", "1.5"]);
    list.args(["--target", TARGET, "--override-filename", "holdall"]);
    list.current_dir(&source).env("SOURCE_DATE_EPOCH", &release.epoch);
    steps.run("bill of materials", list)?;
    put(&source.join("crates/holdall/holdall.json"), &release.materials(), 0o644)
}

/// Validates it, and compares it with cargo's own list of the binary's crates.
pub(super) fn check(steps: &mut Steps, release: &Release) -> Result<(), Failure> {
    let mut check = Command::new("sh");
    check.args([
        "-c",
        r#"cargo tree --locked -p holdall --target "$3" -e normal --prefix none | "$0" "$1" "$2""#,
    ]);
    check.arg(install::tools().join("venv/bin/python"));
    check.arg("e2e/clients/python/check_materials.py").arg(release.materials()).arg(TARGET);
    steps.run("bill of materials: valid, every crate", check)
}
