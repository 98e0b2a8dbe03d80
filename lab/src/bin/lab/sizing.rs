//! `holdall plan size` beside real tiers, which `e2e/tests/sizing` compares, with all loads, more
//! memory and the release build.

use std::process::ExitCode;

use anyhow::Result;

use crate::rig::{self, cargo, done, program};

/// What is measured; variables of the environment win.
const MEASURED: [(&str, &str); 3] =
    [("SIZING_MIB", "256"), ("SIZING_LOADS", "all"), ("SIZING_THROUGHPUT", "all")];

/// Builds and measures.
pub(crate) fn run() -> ExitCode {
    rig::ended("sizing", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let mut test = cargo(["test", "--locked", "-p", "e2e", "--test", "sizing", "--"]);
    // Loads are measured alone.
    test.args(["--nocapture", "--test-threads", "1"]);
    test.env("HOLDALL_BIN", program("holdall"));
    for (variable, value) in MEASURED {
        if std::env::var_os(variable).is_none() {
            test.env(variable, value);
        }
    }
    done(&mut test)
}
