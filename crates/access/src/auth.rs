//! The users of a server or proxy that requires logins, and the steps of a login.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use scram::{KEY_BYTES, Outcome, random};

use crate::file_error::FileError;
use crate::login::{Login, Mechanism};
use crate::queue::Source;
use crate::table::{AuthTable, Files, Warning};
use crate::users::{Check, User, UsersError};
use crate::words;
use crate::worker::{AuthWorker, Job, Ticket};

/// Users and rights of a server that requires logins, replaced as a whole by a reload.
#[derive(Debug)]
pub struct Auth {
    files: Files,
    /// A secret of this process: salts of nonexistent users are derived from it, so they stay the
    /// same over reloads.
    key: [u8; KEY_BYTES],
    auth_table: RwLock<Arc<AuthTable>>,
    /// That of the auth_table.
    generation: AtomicU64,
}

/// The outcome of a login's message.
#[derive(Debug)]
pub enum Progress {
    /// This user is logged in, according to the users of this generation.
    Accepted(Arc<User>, u64),
    /// The client has to answer this.
    Challenge(Vec<u8>),
    /// The authentication worker checks it against the users of this generation, and answers by the
    /// ticket.
    Checking(Arc<Ticket>, u64),
    /// The message belongs to no login: an unknown mechanism, or a step without an exchange.
    Invalid,
    /// No user has this name and password.
    Refused,
}

impl Auth {
    /// Reads the files. `warn` gets the faults that do not prevent their use.
    ///
    /// # Errors
    ///
    /// Returns the file that cannot be used, and the reason; or the system gives no random numbers.
    pub fn open(files: Files, warn: impl Fn(Warning<'_>)) -> Result<Self, FileError> {
        let key = random()
            .map_err(|error| FileError::of(&files.users, UsersError::NoRandomness(error)))?;
        let auth_table = RwLock::new(Arc::new(AuthTable::read(&files, 1, key, warn)?));
        Ok(Self { files, key, auth_table, generation: AtomicU64::new(1) })
    }

    /// The present users.
    fn auth_table(&self) -> Arc<AuthTable> {
        Arc::clone(&self.auth_table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again; if they cannot be used, the earlier contents stay in force.
    ///
    /// # Errors
    ///
    /// Returns the file that cannot be used, and the reason.
    pub fn reload(&self, warn: impl Fn(Warning<'_>)) -> Result<(), FileError> {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        let auth_table = AuthTable::read(&self.files, generation, self.key, warn)?;
        *self.auth_table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(auth_table);
        // Relaxed: a connection that sees it late is checked one request later.
        self.generation.store(generation, Ordering::Relaxed);
        Ok(())
    }

    /// Changes with each reload.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The login after a reload: an exchange starts again, and a user stays with the present
    /// rights.
    #[must_use]
    pub fn renew(&self, login: &Login) -> Login {
        match login {
            Login::None | Login::InProgress(_) => Login::None,
            Login::Ok(user) => self.auth_table().users.renewed(user).map_or(Login::None, Login::Ok),
        }
    }

    /// Handles a name and a password from `source`. `worker` does slow checks.
    #[must_use]
    pub fn log_in(
        &self,
        worker: &AuthWorker,
        source: Source,
        name: &[u8],
        password: &[u8],
    ) -> Progress {
        let auth_table = self.auth_table();
        let generation = auth_table.generation();
        match auth_table.check(name, password) {
            Check::Done(Some(user)) => Progress::Accepted(user, generation),
            Check::Done(None) => Progress::Refused,
            Check::Slow => {
                let (name, password) = (name.to_vec(), password.to_vec());
                let ticket = worker.ask(source, Job::Check { auth_table, name, password });
                Progress::Checking(ticket, generation)
            }
        }
    }

    /// True if a user has this name and password. It takes some milliseconds if passwords are kept
    /// as verifiers: for a program whose threads may wait.
    #[must_use]
    pub fn is_user(&self, name: &[u8], password: &[u8]) -> bool {
        let auth_table = self.auth_table();
        match auth_table.check(name, password) {
            Check::Done(user) => user.is_some(),
            Check::Slow => auth_table.users.check_slowly(name, password).is_some(),
        }
    }

    /// Handles the first message of SASL: a mechanism's name and data. Ends the earlier state of
    /// `login`; an exchange in progress is kept there. The caller sets it once a user is accepted.
    #[must_use]
    pub fn sasl(
        &self,
        login: &mut Login,
        worker: &AuthWorker,
        source: Source,
        mechanism: &[u8],
        data: &[u8],
    ) -> Progress {
        *login = Login::None;
        match Mechanism::of(mechanism) {
            Some(Mechanism::Plain) => match words::plain(data) {
                Some((name, password)) => self.log_in(worker, source, name, password),
                None => Progress::Invalid,
            },
            Some(Mechanism::Scram(exchange)) => {
                *login = Login::InProgress(exchange);
                self.sasl_step(login, data)
            }
            None => Progress::Invalid,
        }
    }

    /// Handles a further message of SASL. Ends the state of `login`, unless the exchange goes on.
    #[must_use]
    pub fn sasl_step(&self, login: &mut Login, message: &[u8]) -> Progress {
        let Login::InProgress(mut exchange) = std::mem::take(login) else {
            return Progress::Invalid;
        };
        let auth_table = self.auth_table();
        match auth_table.step(&mut exchange, message) {
            Outcome::Challenge(text) => {
                *login = Login::InProgress(exchange);
                Progress::Challenge(text)
            }
            Outcome::Accepted((user, generation)) => Progress::Accepted(user, generation),
            Outcome::Refused => Progress::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use scram::{Client, Hash};

    use super::*;

    /// The reload happens after the session's comparison of generations, so the session counts the
    /// login for one of the new users unless the generation says that it is not.
    #[test]
    fn a_login_that_began_before_a_reload_is_of_the_earlier_generation() {
        let folder = tempfile::tempdir().unwrap();
        let users = folder.path().join("users");
        fs::write(&users, "removed:secret\n").unwrap();
        let files = Files { users: users.clone(), rights: None, sasl: true };
        let auth = Auth::open(files, |_| {}).unwrap();
        let client = Client::new(Hash::Sha256, "removed", "secret").unwrap();
        let (worker, source) = (AuthWorker::default(), Source::of(None));
        let (mut login, first) = (Login::None, client.first());
        let begun = auth.sasl(&mut login, &worker, source, b"SCRAM-SHA-256", first.as_bytes());
        let Progress::Challenge(challenge) = begun else { panic!("{begun:?}") };
        let (proof, _) = client.prove(&challenge, u32::MAX).unwrap();
        let proven = auth.sasl_step(&mut login, proof.as_bytes());
        assert!(matches!(proven, Progress::Challenge(_)), "{proven:?}");

        fs::write(&users, "other:secret\n").unwrap();
        auth.reload(|_| {}).unwrap();
        let Progress::Accepted(user, generation) = auth.sasl_step(&mut login, b"") else {
            panic!("not accepted")
        };
        assert_ne!(generation, auth.generation());
        assert!(auth.renew(&Login::Ok(user)).is_missing());
    }
}
