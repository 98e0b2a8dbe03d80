//! One server takes over from another: its listening sockets, and its memory.
//!
//! ```text
//!     new: hello, digest of the settings  ->
//!                                         <-  sockets (descriptors), end, interval of the watchdog
//!                                                                     the old one serves on
//!     new: binds what is missing, drops rights; ready, its process id  ->
//!                                             old: answers what was read, closes, tidies memory
//!                                         <-  memory (descriptor, ticket)  clients wait
//!     new: maps, starts its workers; serving  ->
//!                                             old: ends
//! ```
//!
//! Any failure before `ready` leaves the old server serving. After a later failure, the old one
//! serves again, with the memory as the new one left it. A new one that neither serves nor ends is
//! killed first, since two must never use one memory. In place of `serving`, a new one in the
//! background sends the reason of its failure, which nobody would read on its stderr.
//!
//! The conversation uses a unix socket next to the memory file. Each side asks the kernel for the
//! other's user, and communicates only with the same user and with root. The new one takes only the
//! file at its own path (decision 77).

mod channel;
mod new;
mod old;
mod passed_file;
mod refused;

pub(super) use new::Predecessor;
pub(super) use old::{HandedOver, SuccessorListener};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket at which a server with this memory file can be asked to hand over.
fn successor_socket(memory_file: &Path) -> PathBuf {
    let mut path = memory_file.to_owned().into_os_string();
    path.push(".takeover");
    path.into()
}

/// The time in which connections can read their last replies when a successor is ready. No client
/// is served during that time, so it is short.
pub(super) const DRAIN_PATIENCE: Duration = Duration::from_millis(500);

/// The time for which one side waits for the other's next step.
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// The wait for another user's first message. It only ensures that this user receives the reason
/// for the refusal, and delays the next conversation.
const OTHERS_PATIENCE: Duration = Duration::from_secs(1);

/// The message after the last sockets. Its second line is the interval of the old server's watchdog
/// in microseconds, or empty.
const END: &str = "end";

/// Starts the first message; changes with the conversation.
const HELLO: &str = "holdall takeover 1";

/// The maximum number of descriptors in one message; the kernel takes 253.
const DESCRIPTORS_MAX: usize = 200;
