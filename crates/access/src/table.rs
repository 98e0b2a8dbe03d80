//! Users and rights as their files have them at one moment.

use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use scram::Outcome;

use crate::file_error::{Fault, FileError};
use crate::login::Exchange;
use crate::rights::Table;
use crate::users::{Check, User, Users};

/// Users and rights at one moment.
#[derive(Debug)]
pub struct AuthTable {
    pub(crate) users: Users,
    generation: u64,
}

/// Something that the operator should know of files that can be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum Warning<'a> {
    /// A file with passwords that everybody on this machine may read.
    Readable(&'a Path),
    /// The file of rights names a user that there is not.
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
    /// Reads the files; `warn` gets what does not stop them from being used.
    pub(crate) fn read(
        users: &Path,
        rights: Option<&Path>,
        generation: u64,
        warn: impl Fn(Warning<'_>),
    ) -> Result<Self, FileError> {
        let table = match rights {
            None => None,
            Some(path) => {
                let text = String::from_utf8(contents(path)?)
                    .map_err(|_| FileError::of(path, Fault::NotText))?;
                let table = Table::parse(&text).map_err(|error| FileError::of(path, error))?;
                Some((path, table))
            }
        };
        if is_readable_by_all(users) {
            warn(Warning::Readable(users));
        }
        let text = contents(users)?;
        let users = Users::parse(&text, table.as_ref().map(|(_, table)| table))
            .map_err(|error| FileError::of(users, error))?;
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

    pub(crate) fn step(&self, exchange: &mut Exchange, message: &[u8]) -> Outcome<Arc<User>> {
        exchange.step(message, |name, hash| self.users.verifier(name, hash))
    }

    /// That of the reading it came by.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }
}

/// The bytes of a file of reasonable size.
fn contents(path: &Path) -> Result<Vec<u8>, FileError> {
    let file = fs::File::open(path).map_err(|error| FileError::of(path, error))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| FileError::of(path, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::of(path, Fault::TooLarge(FILE_BYTES_MAX >> 20)));
    }
    Ok(bytes)
}

fn is_readable_by_all(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o004 != 0)
}

/// The largest file of users or rights, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
