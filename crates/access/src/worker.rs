//! The authentication worker: one thread for operations that would delay a worker's connections.
//!
//! ```text
//!     worker: Job, with a Ticket -> queue -> authentication worker
//!         -> ticket answered -> waker -> the session continues
//! ```

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use net::{TlsError, Waker};

use crate::file_error::FileError;
use crate::queue::{FairQueue, Source};
use crate::table::AuthTable;
use crate::users::User;

/// The maximum number of waiting jobs. Above it, the address with the most jobs receives an error.
const JOBS_MAX: usize = 1024;

/// The queue of the authentication worker.
#[derive(Debug, Default)]
pub struct AuthWorker {
    queue: Mutex<Queue>,
    has_jobs: Condvar,
}

#[derive(Debug)]
struct Queue {
    jobs: FairQueue<(Job, Arc<Ticket>)>,
    is_ending: bool,
}

impl Default for Queue {
    fn default() -> Self {
        Self { jobs: FairQueue::new(JOBS_MAX), is_ending: false }
    }
}

/// An operation for the worker.
pub enum Job {
    /// Check a password that is kept as a verifier.
    Check {
        /// The users to search.
        auth_table: Arc<AuthTable>,
        /// The given name.
        name: Vec<u8>,
        /// The given password.
        password: Vec<u8>,
    },
    /// Read the files again.
    Reload,
}

/// The answer to a job.
#[derive(Debug)]
pub enum Answer {
    /// The user, if the password is theirs.
    Checked(Option<Arc<User>>),
    /// Too many jobs wait, and most are from this address.
    Busy,
    /// The outcome of the reload.
    Reloaded(Result<(), ReloadError>),
}

/// The file that cannot be used, and the reason.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Users or rights.
    #[error(transparent)]
    Auth(#[from] FileError),
    /// Certificates or keys.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// One of the server's own files.
    #[error(transparent)]
    Other(#[from] Box<dyn Error + Send + Sync>),
}

/// The place for the answer to one job.
#[derive(Debug, Default)]
pub struct Ticket {
    state: Mutex<(Option<Answer>, Option<Waker>)>,
}

impl Ticket {
    /// Takes the answer if it has come; otherwise it uses `waker` later.
    pub fn take(&self, waker: Option<Waker>) -> Option<Answer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = state.0.take();
        if answer.is_none() {
            state.1 = waker;
        }
        answer
    }

    fn answer(&self, answer: Answer) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(answer);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl AuthWorker {
    /// Submits a job. The answer is "busy" when too many wait.
    pub fn ask(&self, source: Source, job: Job) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = queue.jobs.push(source, (job, Arc::clone(&ticket)));
        drop(queue);
        match dropped {
            Some((_, dropped)) => dropped.answer(Answer::Busy),
            None => self.has_jobs.notify_one(),
        }
        ticket
    }

    /// Does jobs one after the other until it is stopped; `reload` reads files again.
    fn work(&self, reload: impl Fn() -> Result<(), ReloadError>) {
        loop {
            let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let (job, ticket) = loop {
                if queue.is_ending {
                    return;
                }
                if let Some(next) = queue.jobs.pop() {
                    break next;
                }
                queue = self.has_jobs.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            ticket.answer(match job {
                Job::Check { auth_table, name, password } => {
                    Answer::Checked(auth_table.users.check_slowly(&name, &password))
                }
                Job::Reload => Answer::Reloaded(reload()),
            });
        }
    }

    /// Starts the thread (`authentication worker`).
    ///
    /// # Errors
    ///
    /// Fails when the system gives no thread.
    pub fn start(
        self: &Arc<Self>,
        reload: impl Fn() -> Result<(), ReloadError> + Send + 'static,
    ) -> std::io::Result<Working> {
        let auth_worker = Arc::clone(self);
        let thread = thread::Builder::new()
            .name("auth".to_owned())
            .spawn(move || auth_worker.work(reload))?;
        Ok(Working { auth_worker: Arc::clone(self), thread: Some(thread) })
    }
}

/// The authentication worker's thread, ended when this is dropped.
#[derive(Debug)]
pub struct Working {
    auth_worker: Arc<AuthWorker>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.auth_worker.queue.lock().unwrap_or_else(PoisonError::into_inner).is_ending = true;
        self.auth_worker.has_jobs.notify_all();
        if let Some(thread) = self.thread.take() {
            // If it has panicked, the server still ends.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Job {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Check { .. } => "Check",
            Self::Reload => "Reload",
        })
    }
}
