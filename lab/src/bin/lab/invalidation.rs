//! The invalidator's figures, which `e2e/tests/invalidate/figures.rs` measures, with many changes
//! and the release build.

use std::process::ExitCode;

use crate::rig::{cargo, target};

/// The measurements and their sizes; environment variables override the sizes.
const MEASUREMENTS: [(&str, &[(&str, &str)]); 3] = [
    ("figures_of_the_time", &[("CHANGES", "100000"), ("RATE", "5000")]),
    ("figures_of_the_rate", &[("CHANGES", "400000")]),
    (
        "figures_of_packets",
        &[("CHANGES", "50000"), ("RATE", "5000"), ("SERVERS", "20"), ("DATABASES", "3")],
    ),
];

/// Builds and measures. `args` are names of measurements; none means all.
pub(crate) fn run(args: &[String]) -> ExitCode {
    let mut build = cargo(["build", "--release", "--locked", "-p", "holdall"]);
    if !build.status().is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    for (name, environment) in MEASUREMENTS {
        if !args.is_empty() && !args.iter().any(|arg| name.contains(&**arg)) {
            continue;
        }
        let mut test = cargo(["test", "--locked", "-p", "e2e", "--test", "invalidate"]);
        test.args(["--", "--nocapture", "--test-threads", "1", name]);
        test.env("HOLDALL_BIN", target().join("release/holdall"));
        for (variable, value) in environment {
            if std::env::var_os(variable).is_none() {
                test.env(variable, value);
            }
        }
        if !test.status().is_ok_and(|status| status.success()) {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
