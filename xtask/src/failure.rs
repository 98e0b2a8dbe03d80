//! The failures that end a task.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The failure that ended a task. Its text is the last line that the task prints.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A step's command ended with a status that is not success.
    Status { step: String, status: ExitStatus },
    /// A step's command could not be started or waited for.
    Command { step: String, program: OsString, error: io::Error },
    /// A test step that ran no test.
    NoTest { step: String },
    /// An unusable file or folder.
    Path { path: PathBuf, error: io::Error },
    /// Unexpected words after the task's name.
    Usage(String),
    /// The manifest of the fuzz targets names none.
    NoFuzzTarget,
    /// `git ls-files` failed.
    Git(String),
    /// A faulty release.
    Release(String),
    /// The number of breached house rules.
    Breaches(usize),
}

impl Failure {
    /// A command of `step` that could not be started or waited for.
    pub(crate) fn command(step: &str, command: &Command, error: io::Error) -> Self {
        Self::Command { step: step.to_owned(), program: command.get_program().to_owned(), error }
    }

    /// An unusable file or folder, from the error of the attempt.
    pub(crate) fn path(path: impl AsRef<Path>) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Path { path: path.as_ref().to_owned(), error }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { step, status } => write!(f, "{step}: {status}"),
            Self::Command { step, program, error } => write!(f, "{step}: {program:?}: {error}"),
            Self::NoTest { step } => write!(f, "{step}: ran no test"),
            Self::Path { path, error } => write!(f, "{}: {error}", path.display()),
            Self::Usage(text) | Self::Release(text) => f.write_str(text),
            Self::NoFuzzTarget => f.write_str("fuzz/Cargo.toml has no target"),
            Self::Git(text) => write!(f, "git ls-files: {text}"),
            Self::Breaches(count) => write!(f, "tidy: {count} breaches"),
        }
    }
}
