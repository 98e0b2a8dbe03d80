//! The refusal of a command line.

/// The reason why a command line was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit status: [`super::EXIT_USAGE`]; under memcached's name 1 for what is unknown, as
    /// memcached; 1 for a file that cannot be read.
    pub status: u8,
    /// A sentence for stderr, without a newline.
    pub message: String,
}
