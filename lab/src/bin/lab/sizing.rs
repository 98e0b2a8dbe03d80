//! Compares `holdall plan size` with real tiers by `e2e/tests/sizing`, with all loads, more memory
//! and the release build.

use std::process::ExitCode;

use anyhow::Result;

use crate::rig::{self, cargo, done, program};

/// The settings of the measurement; environment variables override them.
const MEASURED: [(&str, &str); 3] =
    [("SIZING_MIB", "256"), ("SIZING_LOADS", "all"), ("SIZING_THROUGHPUT", "all")];

/// Builds and measures.
pub(crate) fn run() -> ExitCode {
    rig::ended("sizing", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let mut test = cargo(["test", "--locked", "-p", "e2e", "--test", "sizing", "--"]);
    // Measures one load at a time.
    test.args(["--nocapture", "--test-threads", "1"]);
    test.env("HOLDALL_BIN", program("holdall"));
    for (variable, value) in MEASURED {
        if std::env::var_os(variable).is_none() {
            test.env(variable, value);
        }
    }
    done(&mut test)
}
