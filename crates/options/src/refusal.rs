//! The refusal of a command line.

/// The reason why a command line was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit status: [`super::EXIT_USAGE`]; under memcached's name 1 for what is unknown, as
    /// memcached; 1 for a file that cannot be read.
    pub status: u8,
    /// A sentence for stderr, without a newline. It begins with the flag or the place in a file
    /// that is wrong.
    pub message: String,
    /// Advice.
    pub hint: Option<String>,
}

impl Refusal {
    pub(crate) fn new(status: u8, message: String) -> Self {
        Self { status, message, hint: None }
    }

    /// A wrong value, or a combination that is.
    pub(crate) fn usage(message: String) -> Self {
        Self::new(super::EXIT_USAGE, message)
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(out, "; {hint}"))
    }
}
