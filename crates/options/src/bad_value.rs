//! The reasons why the value of a flag is not accepted.

use hostport::without_login;
use thiserror::Error;

/// The fault of a value. The sentence follows the flag's name.
#[derive(Clone, Debug, Error, PartialEq)]
pub(crate) enum BadValue {
    #[error("'{0}' is not a number")]
    NotANumber(String),
    #[error("'{0}' is not a size (a number, or a number with k, m or g)")]
    NotASize(String),
    #[error("'{0}' is not an octal access mode such as 0700")]
    NotAMode(String),
    #[error("'{text}' is not a number greater than {above}")]
    NotAbove { text: String, above: f64 },
    #[error("'{0}' is not a single character")]
    NotACharacter(String),
    #[error("{0} is not a power of two")]
    NotAPowerOfTwo(usize),
    #[error("'{text}' is not one of {choices}")]
    NotOneOf { text: String, choices: &'static str },
    #[error("{text} is too small: the least is {least}")]
    TooSmall { text: String, least: String },
    #[error("{text} is too large: the most is {most}")]
    TooLarge { text: String, most: String },
    #[error("{0} is over 1")]
    OverOne(String),
    #[error("needs a value: ={0}")]
    Missing(&'static str),
    #[error("takes no value")]
    Needless,
    #[error("names no suite that is spoken here")]
    NoSuite,
    #[error("is not an option of the -o list")]
    NotExtended,
    /// Refused for this reason, regardless of the value.
    #[error("{0}")]
    Refused(&'static str),
    #[error("a step of 0 would bind every worker to one CPU")]
    NoStep,
    #[error("'{0}' names no host")]
    NoHost(String),
    #[error("the prefix '{0}' is not supported")]
    Prefix(&'static str),
    #[error("'{0}' lacks the closing ']'")]
    Unclosed(String),
    #[error("'{0}' has something other than ':port' after ']'")]
    NotAPort(String),
    #[error("'{0}' is not an address and a port such as 127.0.0.1:9150")]
    NotAnAddress(String),
    #[error("'{}' is not an address that begins with http:// or https://", without_login(.0))]
    NotAUrl(String),
    #[error(transparent)]
    LogFormat(#[from] logging::BadFormat),
    #[error(transparent)]
    LogFilter(#[from] logging::BadFilter),
    #[error("bad port: {0}")]
    Port(Box<Self>),
    #[error("'' names no file")]
    NoFile,
}

impl BadValue {
    /// None of these words.
    pub(crate) fn not_one_of(text: &str, choices: &'static str) -> Self {
        Self::NotOneOf { text: text.to_owned(), choices }
    }
}
