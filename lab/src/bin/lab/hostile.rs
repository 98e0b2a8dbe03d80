//! Bystanders with ten thousand hostile clients, measured by `e2e/src/bin/crowd.rs`.

use std::process::ExitCode;

use anyhow::Result;

use crate::rig::{self, cargo, done, program};

/// Builds and measures.
pub(crate) fn run() -> ExitCode {
    rig::ended("hostile", measure())
}

fn measure() -> Result<()> {
    rig::build(&["-p", "holdall"])?;
    let mut crowd = cargo(["run", "--quiet", "--locked", "-p", "e2e", "--bin", "crowd"]);
    done(crowd.env("HOLDALL_BIN", program("holdall")))
}
