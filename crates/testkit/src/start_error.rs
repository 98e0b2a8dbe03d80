//! The failure of a server's start.

use std::process::ExitStatus;
use std::{fmt, io};

/// A server that did not start.
#[derive(Debug)]
pub enum StartError {
    /// Its log or its process could not be made, or not be asked.
    Io(io::Error),
    /// It ended, or did not serve in time and was ended.
    NotServing {
        /// The status with which it ended by itself.
        status: Option<ExitStatus>,
        /// All that it printed.
        log: String,
    },
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotServing { status: Some(status), log } => write!(f, "{status}\n{log}"),
            Self::NotServing { status: None, log } => write!(f, "not serving in time\n{log}"),
        }
    }
}

impl std::error::Error for StartError {}
