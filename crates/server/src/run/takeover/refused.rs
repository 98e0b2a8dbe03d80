//! The reasons for which a takeover fails.

use std::io;

/// A failed takeover, from the view of the running server.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("another user asked")]
    OtherUser,
    #[error("the new server has another version")]
    OtherVersion,
    #[error("a successor with other settings asked")]
    OtherSettings,
    #[error("there is no memory file")]
    NoMemoryFile,
    #[error("this server ends")]
    Ending,
    /// The successor closed its side.
    #[error("it went away")]
    Gone,
    #[error("the successor made no sense")]
    Senseless,
    /// The successor did not serve, for this reason.
    #[error("{0}")]
    Failed(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}
