//! The error of the other programs' command lines.

use std::io;

use generator::bounds::OutOfBounds;
use generator::parse_error::ParseError;

/// The first fault of a command line.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// There is no flag of this name.
    #[error("unknown flag \"{0}\"")]
    Unknown(String),
    /// There is no flag of this name, but one with a similar name.
    #[error("unknown flag \"{0}\"; did you mean --{1}?")]
    Misspelt(String, &'static str),
    /// Several flags start like this.
    #[error("\"--{flag}\" may be --{one}, --{other} or more")]
    Ambiguous {
        /// The prefix.
        flag: String,
        /// A flag with this prefix.
        one: &'static str,
        /// Another one.
        other: &'static str,
    },
    /// There is a word in place of a flag.
    #[error("{0:?} is no flag")]
    NotAFlag(String),
    /// A second host is named.
    #[error("{0:?}: one host is wanted")]
    SecondHost(String),
    /// A flag lacks its value.
    #[error("{0} needs a value")]
    NoValue(String),
    /// A flag has a value and takes none.
    #[error("--{flag} takes no value: {value:?}")]
    TakesNoValue {
        /// The flag.
        flag: &'static str,
        /// The value.
        value: String,
    },
    /// A flag would change the measurement in a way that this generator cannot reproduce.
    #[error("--{flag} cannot be done here: {why}")]
    Impossible {
        /// The flag.
        flag: &'static str,
        /// The reason, or an alternative.
        why: &'static str,
    },
    /// A flag of mcblaster would change the measurement, which this generator cannot reproduce.
    #[error("-{letter} cannot be done here: {meaning}")]
    ImpossibleBecause {
        /// The flag.
        letter: char,
        /// Its meaning.
        meaning: &'static str,
    },
    /// A flag's value is of another kind.
    #[error("{flag}: {text:?} is not {form}")]
    Value {
        /// The flag, with its dashes.
        flag: String,
        /// The value.
        text: String,
        /// The expected form.
        form: &'static str,
    },
    /// A value that `holdall bench run` also has is unreadable.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The load has a value that `holdall bench run` does not accept either.
    #[error(transparent)]
    Bounds(#[from] OutOfBounds),
    /// Flags are missing, out of range, or exclude each other: a sentence about them.
    #[error("{0}")]
    Misused(&'static str),
    /// The server's name could not be resolved.
    #[error("{host:?}: {error}")]
    Lookup {
        /// The name.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// The server has no address of the requested family.
    #[error("{0:?} has no such address")]
    NoAddress(String),
}

impl FlagError {
    /// True if the command line is wrong; false if its server is not found.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::Lookup { .. } | Self::NoAddress(_))
    }

    /// The value `text` of `flag` does not have this form.
    pub(super) fn value(flag: &str, text: &str, form: &'static str) -> Self {
        Self::Value { flag: flag.to_owned(), text: text.to_owned(), form }
    }
}
