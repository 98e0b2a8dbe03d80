//! Measurements.

use std::process::ExitCode;

/// Runs the measurement that `args` names.
pub(crate) fn run(args: &[String]) -> ExitCode {
    eprintln!("no measurement {args:?}");
    ExitCode::FAILURE
}
