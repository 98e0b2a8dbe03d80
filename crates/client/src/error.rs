//! The reasons why a call failed. A miss is an answer, never an error.

use std::fmt;
use std::sync::Arc;

use upstream::{Failure, Outcome};

/// The reason why a call has no answer.
///
/// For readers, an error is a miss **that must not be filled** (*Scaling Memcache at Facebook*,
/// 3.1): the server or the network is in trouble, and a store would add to it. [`crate::LookAside`]
/// follows this rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Error {
    /// The key is empty, longer than 250 bytes, or contains a blank or a control character. Nothing
    /// was sent.
    BadKey,
    /// A value of this length in bytes exceeds this client's limit. Nothing was sent.
    TooLong(usize),
    /// There is no answer, or the server refused; its text, if any.
    Cache(Failure, String),
    /// The value is unreadable: another program's flags, damaged, or too large when decompressed.
    Undecodable(&'static str),
    /// An answer that does not belong to the command.
    Unexpected(Outcome),
    /// The client has been closed.
    Closed,
}

impl Error {
    pub(crate) fn cache(failure: Failure, words: &[u8]) -> Self {
        Self::Cache(failure, String::from_utf8_lossy(words).into_owned())
    }

    /// True if the call ran out of time.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(
            self,
            Self::Cache(Failure::Timeout | Failure::ConnectTimeout | Failure::DeadlineExceeded, _)
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey => {
                f.write_str("a key is 1 to 250 bytes without blanks or control characters")
            }
            Self::TooLong(bytes) => write!(f, "a value of {bytes} bytes is longer than allowed"),
            Self::Cache(failure, words) if words.is_empty() => failure.fmt(f),
            Self::Cache(failure, words) => write!(f, "{}: {words}", failure.name()),
            Self::Undecodable(why) => write!(f, "the value cannot be read: {why}"),
            Self::Unexpected(outcome) => write!(f, "an answer of another kind: {outcome:?}"),
            Self::Closed => f.write_str("the client is closed"),
        }
    }
}

impl std::error::Error for Error {}

/// The reason why there is no value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LoadError<E> {
    /// The key is invalid; nothing was loaded.
    BadKey,
    /// The loader's error: this call's, or that of the caller whose load it has waited for.
    Loader(Arc<E>),
}

impl<E> LoadError<E> {
    pub(crate) fn loader(error: E) -> Self {
        Self::Loader(Arc::new(error))
    }
}

impl<E: fmt::Display> fmt::Display for LoadError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadKey => Error::BadKey.fmt(f),
            Self::Loader(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for LoadError<E> {}
