//! The failure of a server's start.

use std::io;
use std::process::ExitStatus;

use thiserror::Error;

/// A server that did not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Its log or its process could not be created or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It ended unexpectedly.
    #[error("{status}\n{log}")]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// Its whole output.
        log: String,
    },
    /// It did not serve in time and was ended.
    #[error("not serving in time\n{log}")]
    NotServing {
        /// Its whole output.
        log: String,
    },
}
