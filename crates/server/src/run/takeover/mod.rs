//! One server takes over from another: its listening sockets, and its memory.
//!
//! ```text
//!     new: hello, digest of the settings  ->
//!                                         <-  sockets (descriptors), end   the old one serves on
//!     new: binds what is missing, drops rights; ready, its process id  ->
//!                                             old: answers what was read, closes, tidies memory
//!                                         <-  memory (descriptor, ticket)  clients wait
//!     new: maps, starts its workers; serving  ->
//!                                             old: ends
//! ```
//!
//! Whatever goes wrong before `ready` leaves the old server serving. Whatever goes wrong after it
//! makes the old one serve again, with the memory as the new one left it; a new one that neither
//! serves nor ends is killed first, since two must never use one memory.
//!
//! The conversation goes over a unix socket beside the memory file. Each side asks the kernel who
//! the other is, and speaks with the same user and with root alone; the new one takes no file but
//! the one at its own path (decision 77).

mod channel;
mod new;
mod old;
mod passed_file;
mod refused;

pub(super) use new::Predecessor;
pub(super) use old::{HandedOver, SuccessorListener};

use std::path::{Path, PathBuf};
use std::time::Duration;

/// The socket at which a server with this memory file is asked to give way.
fn successor_socket(memory_file: &Path) -> PathBuf {
    let mut path = memory_file.to_owned().into_os_string();
    path.push(".takeover");
    path.into()
}

/// How long connections have, when a successor is ready, to take the replies to what was read from
/// them. Nobody is served meanwhile, so it is short.
pub(super) const DRAIN_PATIENCE: Duration = Duration::from_millis(500);

/// The time for which one side waits for the other's next step.
const STEP_PATIENCE: Duration = Duration::from_secs(30);

/// The time for which another user's first message is waited for. It only makes sure that this user
/// reads why there is no takeover, and the next conversation waits meanwhile.
const OTHERS_PATIENCE: Duration = Duration::from_secs(1);

/// Begins the first message; changes with the conversation.
const HELLO: &str = "holdall takeover 1";

/// Most descriptors in one message; the kernel takes 253.
const DESCRIPTORS_MAX: usize = 200;
