//! `-d`: leaving the terminal.

use options::Options;

use super::Failure;

/// Continues in a child process with a new session; the calling process ends with status 0.
///
/// As in memcached: with `-r` the directory stays, so that a core file can be written, and with
/// `-v` stderr stays open. Must be called while there is one thread.
pub(super) fn enter(options: &Options) -> Result<(), Failure> {
    nix::unistd::daemon(options.core_dumps, options.verbosity > 0)
        .map_err(|error| Failure::os(format!("cannot go to the background: {error}")))
}
