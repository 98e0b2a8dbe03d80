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
//! 1. A login is one of three states, and every failure sets it back to none ([`Login`]).
//! 2. Operations that take longer than a request (a hashed password, reading files) run in the
//!    authentication worker, one thread, never in a thread that serves connections.
//! 3. A refusal is sent [`REFUSAL_DELAY`] after the attempt, regardless of the check's duration;
//!    other clients are served in the meantime.
//! 4. After a reload every connection is checked before its next request: a user who was removed,
//!    or has another password, is logged out ([`Auth::renew`]).
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

/// The maximum unserved bytes from a peer without a login.
pub const UNAUTHENTICATED_BYTES_MAX: usize = 16 * 1024;
