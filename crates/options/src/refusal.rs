//! The refusal of a command line.

/// The reason why a command line was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit status: 1 for what is unknown, [`super::EXIT_USAGE`] for what is wrong, as
    /// memcached.
    pub status: u8,
    /// A sentence for stderr, without a newline.
    pub message: String,
}
