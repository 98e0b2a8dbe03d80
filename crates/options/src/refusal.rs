//! The refusal of a command line, or of the settings below it.

use std::fmt::{self, Display, Formatter};

use super::EXIT_USAGE;

/// The reason why a command line was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit status: [`EXIT_USAGE`]; under memcached's name 1 for unknown options, as in
    /// memcached; 1 for a file that cannot be read.
    pub status: u8,
    /// The place where the value was given.
    pub cause: Cause,
    /// A sentence for stderr, without a newline. It starts with the faulty flag or place in a file.
    pub message: String,
    /// Advice.
    pub hint: Option<String>,
}

/// The place of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A flag of the command line.
    Flag,
    /// A file of settings, or a variable of the environment.
    Setting,
}

impl Refusal {
    /// A wrong flag, or flags that do not go together.
    #[must_use]
    pub fn of_flag(message: String) -> Self {
        Self { status: EXIT_USAGE, cause: Cause::Flag, message, hint: None }
    }

    /// A file or a variable that is wrong.
    pub(crate) fn of_setting(message: String) -> Self {
        Self { cause: Cause::Setting, ..Self::of_flag(message) }
    }
}

impl Display for Refusal {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, "; {hint}"))
    }
}

/// Settings that do not go together, each valid separately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// The faulty flag, as a [`super::settings::Setting`] names it, or a variable.
    pub(crate) name: &'static str,
    /// The fault in words.
    pub(crate) reason: String,
}

impl Conflict {
    pub(crate) fn new(name: &'static str, reason: impl Into<String>) -> Self {
        Self { name, reason: reason.into() }
    }
}

impl Display for Conflict {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.name, self.reason)
    }
}
