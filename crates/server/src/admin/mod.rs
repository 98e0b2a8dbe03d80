//! Commands for administrators: statistics, settings, dumps, watching, and memcached's switches.
//!
//! The workers serve them between requests of clients, so none of them takes long or holds a lock
//! while it writes. Long commands (dumps) run in steps, and endless ones (watching) use a bounded
//! buffer.
//!
//! Commands that tune memcached's engine are read, checked for their syntax and accepted.

pub mod crawler;
pub mod dump;
mod stat_line;
pub(crate) mod stats;
pub(crate) mod stats_classes;
mod stats_prefixes;
mod stats_samples;
pub(crate) mod tuning;

use std::time::Duration;

use net::Control;
use proto::text::Words;
use proto::{Error, number, reply};
use store::LimitError;

use crate::shared::Shared;

/// The time for which connections can read their last replies when the server ends.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// A plain answer to an administrator's command.
pub(crate) type Answer = &'static [u8];

pub(crate) const ERROR: Answer = Error::Command.line();
const BAD_FORMAT: Answer = Error::Format.line();

/// The server as administrators' commands see it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) control: &'a Control,
    /// The store's present second.
    pub(crate) now_secs: u32,
}

pub(crate) fn verbosity(context: &Context<'_>, mut words: Words<'_>) -> Answer {
    let Some(level) = words.next().and_then(number::parse_u32) else { return BAD_FORMAT };
    let level = u8::try_from(level.min(VERBOSITY_MAX)).unwrap_or_default();
    context.shared.set_verbosity(level);
    reply::OK
}

pub(crate) fn cache_memlimit(context: &Context<'_>, mut words: Words<'_>) -> Answer {
    let Some(megabytes) = words.next().and_then(number::parse_u64) else { return ERROR };
    if megabytes < 8 {
        return b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n";
    }
    if megabytes > 1_000_000_000 {
        return b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n";
    }
    match context.shared.engine.store().set_memory_limit(megabytes << 20) {
        Ok(()) => reply::OK,
        Err(LimitError::TooLarge { .. }) => {
            b"MEMLIMIT_ADJUST_FAILED the limit exceeds the address space reserved at start\r\n"
        }
        Err(LimitError::InUse { .. }) => {
            b"MEMLIMIT_ADJUST_FAILED more is in use that cannot be evicted\r\n"
        }
    }
}

/// Drains the server: requests that were read are answered, and the process ends.
pub(crate) fn shutdown(
    context: &Context<'_>,
    is_datagram: bool,
    mut words: Words<'_>,
) -> Result<(), Answer> {
    if !context.shared.shutdown_enabled || is_datagram {
        return Err(b"SERVER_ERROR: shutdown not enabled\r\n");
    }
    match words.next() {
        None | Some(b"graceful") => {
            context.control.drain(DRAIN_PATIENCE);
            Ok(())
        }
        Some(_) => Err(b"CLIENT_ERROR invalid shutdown mode\r\n"),
    }
}

pub(crate) fn needs_words(words: Words<'_>, count: usize) -> Answer {
    if words.count() >= count { reply::OK } else { ERROR }
}

/// memcached's maximum.
const VERBOSITY_MAX: u32 = 2;
