//! The logins and rights of the proxy's clients, with a server's flags and files.
//!
//! `-Y` and `-S` name the users, `-o rights=FILE` their rights. [`access`] has the steps of a login
//! and the permission that each request needs.

use std::env;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use access::{Auth, AuthWorker, FileError, Files, Job, Source, Working};
use metrics::{LastReload, supervisor};
use thiserror::Error;

use crate::options::LoginFlags;

/// The variable that names the users of `-S` if `-Y` does not.
const SASL_USERS: &str = "MEMCACHED_SASL_PWDB";

/// The users of a proxy whose clients must log in, and counts of their logins.
#[derive(Debug)]
pub(crate) struct Logins {
    pub(crate) auth: Auth,
    pub(crate) worker: Arc<AuthWorker>,
    /// Text clients may log in (`-Y`).
    pub(crate) has_text: bool,
    /// Packet clients may log in (`-S`).
    pub(crate) has_sasl: bool,
    counts: [AtomicU64; Count::NAMES.len()],
    /// The outcome of the last reading of users and rights.
    pub(crate) read: LastReload,
}

/// A counter, by its place in [`Count::NAMES`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Count {
    /// A login.
    Login,
    /// A refused login.
    LoginRefused,
    /// A request without the user's right to it.
    Denied,
}

impl Count {
    /// The names in `stats`, as in a server.
    pub(crate) const NAMES: [&str; 3] = ["auth_cmds", "auth_errors", "access_denied"];
}

/// The reason why clients cannot log in.
#[derive(Debug, Error)]
pub(crate) enum LoginsError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("-S: name the file of users by {SASL_USERS} or -Y")]
    NoSaslUsers,
    #[error("-o rights: needs users, by -Y or -S")]
    RightsWithoutUsers,
}

impl LoginFlags {
    /// The file of users; `None` if no login is required.
    fn users(&self) -> Result<Option<PathBuf>, LoginsError> {
        match (&self.auth_file, self.enable_sasl) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, true) => {
                let path = env::var_os(SASL_USERS).filter(|path| !path.is_empty());
                path.map(|path| Some(path.into())).ok_or(LoginsError::NoSaslUsers)
            }
            (None, false) if self.rights.is_some() => Err(LoginsError::RightsWithoutUsers),
            (None, false) => Ok(None),
        }
    }
}

impl Logins {
    /// Reads the files that the flags name; `None` if no login is required.
    ///
    /// # Errors
    ///
    /// Contradictory flags; or an unusable file, and the reason.
    pub(crate) fn open(
        flags: &LoginFlags,
        log: &impl Fn(&str),
    ) -> Result<Option<Self>, LoginsError> {
        let Some(users) = flags.users()? else { return Ok(None) };
        let warn = |warning: access::Warning<'_>| log(&format!("warning: {warning}"));
        let files = Files { users, rights: flags.rights.clone(), sasl: flags.enable_sasl };
        let auth = Auth::open(files, warn)?;
        Ok(Some(Self {
            auth,
            worker: Arc::default(),
            has_text: flags.auth_file.is_some(),
            has_sasl: flags.enable_sasl,
            counts: Default::default(),
            read: LastReload::default(),
        }))
    }

    /// Starts the thread that checks passwords and rereads the files. It ends when the returned
    /// value is dropped.
    ///
    /// # Errors
    ///
    /// If the system gives no thread.
    pub(crate) fn start(
        self: &Arc<Self>,
        log: impl Fn(&str) + Send + 'static,
    ) -> io::Result<Working> {
        let logins = Arc::clone(self);
        self.worker.start(move || {
            let read = logins.auth.reload(|warning| log(&format!("warning: {warning}")));
            logins.read.note(read.is_ok());
            match &read {
                Ok(()) => log("users and rights have been read again"),
                Err(error) => log(&format!("warning: users and rights: unchanged: {error}")),
            }
            supervisor::reloaded();
            Ok(read?)
        })
    }

    /// Makes the thread reread the files, and notify the supervisor afterwards.
    pub(crate) fn reload(&self) {
        self.worker.ask(Source::Operator, Job::Reload);
    }

    pub(crate) fn count(&self, count: Count) {
        // Relaxed, here and below: counts, which order nothing else.
        self.counts[count as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The count since the start.
    pub(crate) fn counted(&self, count: Count) -> u64 {
        self.counts[count as usize].load(Ordering::Relaxed)
    }

    /// The counts since the start, by name.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let values = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        Count::NAMES.into_iter().zip(values)
    }
}
