//! The authentication worker: one thread that does what would keep a worker from its connections.
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

/// Jobs that may wait. Above it the address that asks most receives an error.
const JOBS_MAX: usize = 1024;

/// The queue before the authentication worker.
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

/// Something to be done.
pub enum Job {
    /// Check a password that is kept as a verifier.
    Check {
        /// The users to look it up among.
        auth_table: Arc<AuthTable>,
        /// The name that they gave.
        name: Vec<u8>,
        /// The password they gave.
        password: Vec<u8>,
    },
    /// Read the files again.
    Reload,
}

/// The answer to a job.
#[derive(Debug)]
pub enum Answer {
    /// The user, if it was their password.
    Checked(Option<Arc<User>>),
    /// Too much waits, and this address has asked most.
    Busy,
    /// The outcome of the reload.
    Reloaded(Result<(), ReloadError>),
}

/// The file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Users or rights.
    #[error(transparent)]
    Auth(#[from] FileError),
    /// Certificates or keys.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file of the server's own.
    #[error(transparent)]
    Other(#[from] Box<dyn Error + Send + Sync>),
}

/// The place to which the answer to one job comes.
#[derive(Debug, Default)]
pub struct Ticket {
    state: Mutex<(Option<Answer>, Option<Waker>)>,
}

impl Ticket {
    /// Takes the answer, if it is there; else `waker` is used when it comes.
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
    /// Hands a job in. It is answered as busy when too many wait.
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

    /// Does one job after the other until told to end; `reload` is how files are read again.
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
    /// When the system gives no thread.
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
            // Should it have panicked, the server ends all the same.
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
