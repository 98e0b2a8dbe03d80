//! Users, their logins and their rights.
//!
//! ```text
//!     -Y FILE, MEMCACHED_SASL_PWDB -> Users  \
//!     -o rights=FILE               -> Rights  } -> AuthTable, replaced as a whole by a reload
//!     a login -> check at once, or by the authentication worker -> Login of the session
//! ```
//!
//! # Laws
//!
//! 1. A login is one of three states, and whatever fails sets it back to none (`Login`).
//! 2. What takes longer than a request (a hashed password, reading files) is done by the
//!    authentication worker, one thread, never by a worker.
//! 3. A refusal is answered `REFUSAL_DELAY` after the attempt, however long the check took; the
//!    worker serves others meanwhile.
//! 4. After a reload every session is looked at before its next request: who is gone, or has
//!    another password, is logged out.

mod file_error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod queue;
pub(crate) mod rights;
pub(crate) mod users;
mod worker;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::log::Log;
use crate::options::Sources;

pub(crate) use ::scram;
use file_error::Fault;
pub(crate) use file_error::FileError;
pub(crate) use queue::Source;
use rights::{Permission, Table};
use scram::{Hash, Outcome};
use users::Users;
pub(crate) use users::{Check, User};
pub use users::{UsersLineError, users_line};
pub(crate) use worker::{Answer, AuthWorker, Job, ReloadError, Ticket};

/// How long after the attempt a refused login is answered.
pub(crate) const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// What a peer who has not logged in may have sent and not had served, in bytes.
pub(crate) const UNAUTHENTICATED_BYTES_MAX: usize = 16 * 1024;

/// Users and rights at one moment.
#[derive(Debug)]
pub(crate) struct AuthTable {
    users: Users,
    generation: u64,
}

/// Users and rights of a server that requires logins, replaced as a whole by a reload.
#[derive(Debug)]
pub struct Auth {
    users: PathBuf,
    rights: Option<PathBuf>,
    auth_table: RwLock<Arc<AuthTable>>,
    /// That of the auth_table.
    generation: AtomicU64,
}

/// The server's side of a login by SCRAM.
pub(crate) type Exchange = scram::Server<Arc<User>>;

/// How far a connection has got.
#[derive(Debug, Default)]
pub(crate) enum Login {
    /// Nobody yet.
    #[default]
    None,
    /// Somebody in the middle of SCRAM.
    InProgress(Box<Exchange>),
    /// This user.
    Ok(Arc<User>),
}

/// The SASL mechanisms, the strongest first: clients take the first they know.
pub(crate) const MECHANISMS: &[u8] = b"SCRAM-SHA-256 SCRAM-SHA-1 PLAIN";

/// A SASL mechanism.
pub(crate) enum Mechanism {
    Plain,
    Scram(Box<Exchange>),
}

impl Mechanism {
    /// The mechanism of this name.
    pub(crate) fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"PLAIN" => Some(Self::Plain),
            b"SCRAM-SHA-1" => Self::scram(Hash::Sha1),
            b"SCRAM-SHA-256" => Self::scram(Hash::Sha256),
            _ => None,
        }
    }

    /// `None` when the system gives no random numbers.
    fn scram(hash: Hash) -> Option<Self> {
        Some(Self::Scram(Box::new(Exchange::new(hash).ok()?)))
    }
}

/// User and password of PLAIN's message, `[authzid] NUL user NUL password`, if it is for oneself.
pub(crate) fn plain(message: &[u8]) -> Option<(&[u8], &[u8])> {
    let (authzid, rest) = split(message, 0)?;
    let (name, password) = split(rest, 0)?;
    let is_whole = !name.is_empty() && !password.contains(&0);
    let is_as_oneself = authzid.is_empty() || authzid == name;
    (is_whole && is_as_oneself).then_some((name, password))
}

/// The parts before and after the first `byte`.
fn split(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let (before, rest) = text.split_at_checked(memchr::memchr(byte, text)?)?;
    Some((before, rest.get(1..)?))
}

impl Auth {
    /// Reads the files of `sources`. `None` when there is no file of users: everybody is let in.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, and why.
    pub(crate) fn open(sources: &Sources, log: &Log) -> Result<Option<Arc<Self>>, FileError> {
        let Sources { users: Some(users), rights } = sources else { return Ok(None) };
        let auth_table = Arc::new(read(users, rights.as_deref(), 1, log)?);
        Ok(Some(Arc::new(Self {
            users: users.clone(),
            rights: rights.clone(),
            auth_table: RwLock::new(auth_table),
            generation: AtomicU64::new(1),
        })))
    }

    /// The users now.
    pub(crate) fn auth_table(&self) -> Arc<AuthTable> {
        Arc::clone(&self.auth_table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again; if they cannot be used, what was read before stays.
    ///
    /// # Errors
    ///
    /// Which file cannot be used, and why.
    pub(crate) fn reload(&self, log: &Log) -> Result<(), FileError> {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        let auth_table = Arc::new(read(&self.users, self.rights.as_deref(), generation, log)?);
        *self.auth_table.write().unwrap_or_else(PoisonError::into_inner) = auth_table;
        // Relaxed: a session that sees it late is looked at a request later.
        self.generation.store(generation, Ordering::Relaxed);
        Ok(())
    }

    /// Changes with each reload.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// What a login is worth after a reload: an exchange begins anew, and a user stays with the
    /// rights of now.
    pub(crate) fn renew(&self, login: &Login) -> Login {
        match login {
            Login::None | Login::InProgress(_) => Login::None,
            Login::Ok(user) => self.auth_table().users.renewed(user).map_or(Login::None, Login::Ok),
        }
    }
}

impl AuthTable {
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

impl Login {
    /// Whether nobody is logged in.
    #[inline]
    pub(crate) const fn is_missing(&self) -> bool {
        !matches!(self, Self::Ok(_))
    }

    /// Whether the user may not do this with `key`.
    #[inline]
    pub(crate) fn forbids(&self, permission: Permission, key: &[u8]) -> bool {
        match self {
            Self::Ok(user) => {
                user.rights.as_ref().is_some_and(|rights| !rights.allow(permission, key))
            }
            // Without a login nothing is limited; where one is needed, nothing comes this far
            // before it.
            Self::None | Self::InProgress(_) => false,
        }
    }

    /// Whether some things are forbidden to the user.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        matches!(self, Self::Ok(user) if user.rights.is_some())
    }

    /// Whether the user may not administer the server.
    pub(crate) fn forbids_admin(&self) -> bool {
        match self {
            Self::Ok(user) => user.rights.as_ref().is_some_and(|rights| !rights.admin),
            Self::None | Self::InProgress(_) => false,
        }
    }
}

fn read(
    users: &Path,
    rights: Option<&Path>,
    generation: u64,
    log: &Log,
) -> Result<AuthTable, FileError> {
    let table = match rights {
        None => None,
        Some(path) => {
            let text = String::from_utf8(contents(path)?)
                .map_err(|_| FileError::of(path, Fault::NotText))?;
            let table = Table::parse(&text).map_err(|error| FileError::of(path, error))?;
            Some((path, table))
        }
    };
    if let Some(warning) = warning_of(users) {
        log.warning(format_args!("{warning}"));
    }
    let text = contents(users)?;
    let users = Users::parse(&text, table.as_ref().map(|(_, table)| table))
        .map_err(|error| FileError::of(users, error))?;
    if let Some((path, table)) = &table {
        for name in table.users().filter(|name| !users.has(name)) {
            let name = name.escape_ascii();
            log.warning(format_args!("{}: there is no user {name}", path.display()));
        }
    }
    Ok(AuthTable { users, generation })
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

/// A warning for a file with passwords that everybody may read.
fn warning_of(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.permissions().mode();
    (mode & 0o004 != 0)
        .then(|| format!("{}: everybody on this machine may read it", path.display()))
}

/// The largest file of users or rights, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_is_read_whole_or_not_at_all() {
        assert_eq!(plain(b"\0user\0pass"), Some((&b"user"[..], &b"pass"[..])));
        assert_eq!(plain(b"user\0user\0p"), Some((&b"user"[..], &b"p"[..])));
        for bad in [&b""[..], b"user", b"\0user", b"other\0user\0p", b"\0\0p", b"\0u\0p\0q"] {
            assert_eq!(plain(bad), None, "{}", bad.escape_ascii());
        }
    }
}
