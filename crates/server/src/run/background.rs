//! `-d`: leaving the terminal.

use options::Options;

use super::Failure;

/// Goes on in a child process with a session of its own; the calling process ends with status 0.
///
/// As memcached: with `-r` the directory stays, so that a core file has a place to go, and with
/// `-v` stderr stays open. Must be called while there is one thread.
pub(super) fn enter(options: &Options) -> Result<(), Failure> {
    nix::unistd::daemon(options.core_dumps, options.verbosity > 0)
        .map_err(|error| Failure::os(format!("cannot go to the background: {error}")))
}
