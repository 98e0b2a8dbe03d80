//! Users, their logins and their rights.
//!
//! ```text
//!     file of users  -> Users  \
//!     file of rights -> Rights  } -> AuthTable, replaced as a whole by a reload
//!     a login -> check at once, or by the authentication worker -> Login of the connection
//! ```
//!
//! # Laws
//!
//! 1. A login is one of three states, and whatever fails sets it back to none ([`Login`]).
//! 2. What takes longer than a request (a hashed password, reading files) is done by the
//!    authentication worker, one thread, never by a thread that serves connections.
//! 3. A refusal is answered [`REFUSAL_DELAY`] after the attempt, however long the check took; the
//!    others are served meanwhile.
//! 4. After a reload every connection is looked at before its next request: who is gone, or has
//!    another password, is logged out ([`Auth::renew`]).
#![forbid(unsafe_code)]

mod auth;
pub mod before_login;
mod file_error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod login;
mod needs;
mod queue;
mod refusals;
mod reply_format;
mod rights;
mod table;
mod users;
mod words;
mod worker;

use std::time::Duration;

pub use auth::{Auth, Progress};
pub use file_error::FileError;
pub use login::{Exchange, Login, MECHANISMS};
pub use needs::Needs;
pub use queue::Source;
pub use refusals::Refusals;
pub use reply_format::ReplyFormat;
pub use rights::Permission;
pub use table::{AuthTable, Files, Warning};
pub use users::{User, UsersLineError, users_line};
pub use worker::{Answer, AuthWorker, Job, ReloadError, Ticket, Working};

/// The time after the attempt at which a refused login is answered.
pub const REFUSAL_DELAY: Duration = Duration::from_secs(1);

/// Bytes that a peer who has not logged in may have sent and not had served.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 16 * 1024;
