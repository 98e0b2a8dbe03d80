//! The error of values from a command line.

/// Text that is not a value of the expected kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// It has another form.
    #[error("{text:?} is not {form}")]
    Form {
        /// The text.
        text: String,
        /// The expected form.
        form: &'static str,
    },
    /// A number is missing, out of range, or not a number.
    #[error("{name}:{text}: a number from {least} to {most} is wanted")]
    Number {
        /// The name of the number.
        name: String,
        /// The text instead of the number.
        text: String,
        /// The minimum.
        least: f64,
        /// The maximum.
        most: f64,
    },
    /// A server's name could not be resolved.
    #[error("{text:?} is not HOST[:PORT], udp:HOST[:PORT] or unix:PATH: {error}")]
    Lookup {
        /// The text.
        text: String,
        /// The system's message.
        error: String,
    },
    /// The name of a server has no address.
    #[error("{0:?} has no address")]
    NoAddress(String),
}

impl ParseError {
    /// `text` is not of this form.
    #[must_use]
    pub fn form(text: &str, form: &'static str) -> Self {
        Self::Form { text: text.to_owned(), form }
    }
}
