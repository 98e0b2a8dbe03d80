//! Lints: clippy and rustdoc, where every warning is an error.

use crate::failure::Failure;
use crate::steps::{Steps, cargo, target};

/// Features of the program, each of which must compile separately.
const FEATURES: [&str; 7] = ["serve", "route", "invalidate", "bench", "demo", "plan", "doctor"];

/// Lints everything, and makes the documentation of the code.
pub(crate) fn run(steps: &mut Steps) -> Result<(), Failure> {
    let mut clippy = cargo(["clippy", "--workspace", "--all-targets", "--locked", "--"]);
    clippy.args(["-D", "warnings"]);
    steps.run("clippy", clippy)?;
    features(steps)?;
    let python = ["clippy", "--manifest-path", "python/Cargo.toml", "--locked", "--"];
    let mut python = cargo(python);
    // The wheel is built in the same folder.
    python.args(["-D", "warnings"]).env("CARGO_TARGET_DIR", target().join("python"));
    steps.run("clippy, library for Python", python)?;
    let mut doc =
        cargo(["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"]);
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("doc", doc)
}

/// Lints the program with each feature separately, using the builds of the workspace's lints.
fn features(steps: &mut Steps) -> Result<(), Failure> {
    for feature in FEATURES {
        let mut clippy = cargo(["clippy", "--locked", "-p", "holdall", "--no-default-features"]);
        clippy.args(["--features", feature, "--", "-D", "warnings"]);
        steps.run(&format!("clippy, holdall with {feature} alone"), clippy)?;
    }
    Ok(())
}
