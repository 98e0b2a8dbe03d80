//! The error of the other programs' command lines.

use std::io;

use generator::bounds::OutOfBounds;
use generator::parse_error::ParseError;

/// The first fault of a command line.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// No flag is called so.
    #[error("unknown flag \"{0}\"")]
    Unknown(String),
    /// No flag is called so, and one differs little.
    #[error("unknown flag \"{0}\"; did you mean --{1}?")]
    Misspelt(String, &'static str),
    /// Several flags begin so.
    #[error("\"--{flag}\" may be --{one}, --{other} or more")]
    Ambiguous {
        /// The beginning.
        flag: String,
        /// A flag that begins so.
        one: &'static str,
        /// Another one.
        other: &'static str,
    },
    /// A word stands where a flag is wanted.
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
    /// A flag would change what is measured, in a way that this generator cannot.
    #[error("--{flag} cannot be done here: {why}")]
    Impossible {
        /// The flag.
        flag: &'static str,
        /// The reason, or another way to the same.
        why: &'static str,
    },
    /// A flag of mcblaster would change what is measured, in a way that this generator cannot.
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
        /// The form that is wanted.
        form: &'static str,
    },
    /// A value that `holdall bench run` has, too, cannot be read.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The load has a value that `holdall bench run` does not take either.
    #[error(transparent)]
    Bounds(#[from] OutOfBounds),
    /// Flags are missing, out of range, or exclude each other: a sentence about them.
    #[error("{0}")]
    Misused(&'static str),
    /// The name of the server could not be looked up.
    #[error("{host:?}: {error}")]
    Lookup {
        /// The name.
        host: String,
        /// The system's error.
        error: io::Error,
    },
    /// The server has no address of the wanted family.
    #[error("{0:?} has no such address")]
    NoAddress(String),
}

impl FlagError {
    /// True if the command line is wrong; false if it names a server that is not found.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        !matches!(self, Self::Lookup { .. } | Self::NoAddress(_))
    }

    /// The value `text` of `flag` is not of this form.
    pub(super) fn value(flag: &str, text: &str, form: &'static str) -> Self {
        Self::Value { flag: flag.to_owned(), text: text.to_owned(), form }
    }
}
