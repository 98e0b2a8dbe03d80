//! The error of values that a command line spells.

/// Text that names no value of the wanted kind.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ParseError {
    /// It has another form.
    #[error("{text:?} is not {form}")]
    Form {
        /// The text.
        text: String,
        /// The form that is wanted.
        form: &'static str,
    },
    /// A number is missing, out of range, or none.
    #[error("{name}:{text}: a number from {least} to {most} is wanted")]
    Number {
        /// The thing that the number is of.
        name: String,
        /// The text in place of the number.
        text: String,
        /// The least number.
        least: f64,
        /// The greatest number.
        most: f64,
    },
    /// The name of a server could not be looked up.
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
