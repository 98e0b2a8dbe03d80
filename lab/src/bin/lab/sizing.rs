//! `holdall plan size` beside real tiers, which `e2e/tests/sizing` compares, with all loads, more
//! memory and the release build.

use std::process::ExitCode;

use crate::rig::{cargo, target};

/// What is measured; variables of the environment win.
const MEASURED: [(&str, &str); 2] = [("SIZING_MIB", "64"), ("SIZING_LOADS", "all")];

/// Builds and measures.
pub(crate) fn run() -> ExitCode {
    let mut build = cargo(["build", "--release", "--locked", "-p", "holdall"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let mut test =
        cargo(["test", "--locked", "-p", "e2e", "--test", "sizing", "--", "--nocapture"]);
    test.env("HOLDALL_BIN", target().join("release/holdall"));
    for (variable, value) in MEASURED {
        if std::env::var_os(variable).is_none() {
            test.env(variable, value);
        }
    }
    let is_as_promised = test.status().is_ok_and(|status| status.success());
    if is_as_promised { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
