//! Parsers of command-line flag values.

use std::time::Duration;

use spool::Fsync;

/// Maximum number of worker threads.
pub(crate) const WORKERS_MAX: usize = 256;

/// A value that its flag does not accept.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(crate) enum WrongValue {
    /// For an option of a server.
    #[error("expected rights=FILE")]
    Extended,
    /// For an interval of writes to disk.
    #[error("expected never, always, or 1 to 3600000 milliseconds")]
    Fsync,
    /// For a time.
    #[error("expected 1 to 3600000 milliseconds")]
    Millis,
    /// For a number of workers for each processor.
    #[error("expected 0 to {WORKERS_MAX}")]
    Multiplier,
    /// For a sampling rate.
    #[error("expected 1/N, with N from 1 to 1000000000")]
    OneIn,
    /// For a parameter.
    #[error("expected NAME:VALUE")]
    Param,
    /// For a window.
    #[error("expected a number, or adaptive")]
    Window,
    /// For a number of workers.
    #[error("expected 1 to {WORKERS_MAX}, or auto")]
    Workers,
}

/// A time of at most an hour, in milliseconds.
pub(crate) fn millis(text: &str) -> Result<u64, WrongValue> {
    match text.parse() {
        Ok(ms @ 1..=3_600_000) => Ok(ms),
        _ => Err(WrongValue::Millis),
    }
}

/// The time at which a file is written to disk: `never`, `always`, or an interval of milliseconds.
pub(crate) fn fsync(text: &str) -> Result<Fsync, WrongValue> {
    match (text, text.parse()) {
        ("never", _) => Ok(Fsync::Never),
        ("always", _) => Ok(Fsync::Always),
        (_, Ok(ms @ 1..=3_600_000)) => Ok(Fsync::Every(Duration::from_millis(ms))),
        _ => Err(WrongValue::Fsync),
    }
}

/// N of `1/N`, up to a thousand million.
pub(crate) fn one_in(text: &str) -> Result<u32, WrongValue> {
    match text.strip_prefix("1/").map(str::parse) {
        Some(Ok(number @ 1..=1_000_000_000)) => Ok(number),
        _ => Err(WrongValue::OneIn),
    }
}
