//! The faults of the files of users and rights.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::rights::RightsError;
use crate::users::UsersError;

/// The file that cannot be used, and the reason.
#[derive(Debug, Error)]
#[error("{}: {fault}", path.display())]
pub struct FileError {
    path: PathBuf,
    fault: Fault,
}

#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Rights(#[from] RightsError),
    #[error(transparent)]
    Users(#[from] UsersError),
}

impl FileError {
    /// The fault of the file at this path.
    pub(crate) fn of(path: &Path, fault: impl Into<Fault>) -> Self {
        Self { path: path.to_owned(), fault: fault.into() }
    }
}
