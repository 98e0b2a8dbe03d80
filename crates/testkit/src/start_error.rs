//! The failure of a server's start.

use std::io;
use std::process::ExitStatus;

use thiserror::Error;

/// A server that did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its log or its process could not be made, or not be asked.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended by itself.
    #[error("{status}\n{log}")]
    Ended {
        /// The status with which it ended.
        status: ExitStatus,
        /// All that it printed.
        log: String,
    },
    /// It did not serve in time and was ended.
    #[error("not serving in time\n{log}")]
    NotServing {
        /// All that it printed.
        log: String,
    },
}
