//! Users and rights from their files at one moment.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use scram::{KEY_BYTES, Outcome};

use crate::file_error::FileError;
use crate::login::Exchange;
use crate::rights::Table;
use crate::users::{Check, User, Users};

/// The files to read, and their use.
#[derive(Clone, Debug)]
pub struct Files {
    /// The file of users. Absolute, since files are read again.
    pub users: PathBuf,
    /// The file of rights; without one, every user has all rights. Absolute.
    pub rights: Option<PathBuf>,
    /// Logins by SASL are offered.
    pub sasl: bool,
}

/// Users and rights at one moment.
#[derive(Debug)]
pub struct AuthTable {
    pub(crate) users: Users,
    generation: u64,
}

/// A note for the operator about usable files.
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// A file with passwords that every user of this machine may read.
    Readable(&'a Path),
    /// The file of rights names a nonexistent user.
    NoSuchUser(&'a Path, &'a [u8]),
}

impl fmt::Display for Warning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Readable(path) => {
                write!(f, "{}: everybody on this machine may read it", path.display())
            }
            Self::NoSuchUser(path, name) => {
                write!(f, "{}: there is no user {}", path.display(), name.escape_ascii())
            }
        }
    }
}

impl AuthTable {
    /// Reads the files; made-up salts are derived from `key`. `warn` gets the faults that do not
    /// prevent their use.
    pub(crate) fn read(
        files: &Files,
        generation: u64,
        key: [u8; KEY_BYTES],
        warn: impl Fn(Warning<'_>),
    ) -> Result<Self, FileError> {
        let path_of_users = files.users.as_path();
        let table = match files.rights.as_deref() {
            None => None,
            Some(path) => {
                let text = ::files::read_text(path, FILE_BYTES_MAX)
                    .map_err(|error| FileError::of(path, error))?;
                let table = Table::parse(&text).map_err(|error| FileError::of(path, error))?;
                Some((path, table))
            }
        };
        if ::files::is_readable_by_all(path_of_users) {
            warn(Warning::Readable(path_of_users));
        }
        let text = ::files::read(path_of_users, FILE_BYTES_MAX)
            .map_err(|error| FileError::of(path_of_users, error))?;
        let users = Users::parse(&text, table.as_ref().map(|(_, table)| table), key)
            .map_err(|error| FileError::of(path_of_users, error))?;
        if files.sasl {
            users.prepare_scram();
        }
        if let Some((path, table)) = &table {
            for name in table.users().filter(|name| !users.has(name)) {
                warn(Warning::NoSuchUser(path, name));
            }
        }
        Ok(Self { users, generation })
    }

    pub(crate) fn check(&self, name: &[u8], password: &[u8]) -> Check {
        self.users.check(name, password)
    }

    /// Takes a message of SCRAM. An accepted user comes with the generation of the table that the
    /// exchange began with, which may be an earlier one.
    pub(crate) fn step(
        &self,
        exchange: &mut Exchange,
        message: &[u8],
    ) -> Outcome<(Arc<User>, u64)> {
        exchange.step(message, |name, hash| {
            let (verifier, user) = self.users.verifier(name, hash);
            (verifier, user.map(|user| (user, self.generation)))
        })
    }

    /// The generation of the reading that created it.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }
}

/// The largest file of users or rights, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Opening a pipe waits for its writer, and would block a reload for ever.
    #[test]
    fn a_pipe_in_place_of_a_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (users, pipe) = (folder.path().join("users"), folder.path().join("pipe"));
        fs::write(&users, "me:secret\n").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let read = |users: &Path, rights: Option<&Path>| {
            let (users, rights) = (users.to_owned(), rights.map(Path::to_owned));
            AuthTable::read(&Files { users, rights, sasl: false }, 1, [7; KEY_BYTES], |_| {})
        };
        assert!(read(&users, None).is_ok());
        for refused in [read(&pipe, None), read(&users, Some(&pipe))] {
            let why = refused.unwrap_err().to_string();
            assert_eq!(why, format!("{}: it is not a regular file", pipe.display()));
        }
    }
}
