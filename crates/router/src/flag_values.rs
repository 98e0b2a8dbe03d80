//! Parsers of the values that command-line flags take.

use std::time::Duration;

use spool::Fsync;

/// A time of at most an hour, in milliseconds.
pub(crate) fn millis(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(ms @ 1..=3_600_000) => Ok(ms),
        _ => Err("expected 1 to 3600000 milliseconds".to_owned()),
    }
}

/// When a file is written to disk: `never`, `always`, or an interval of milliseconds.
pub(crate) fn fsync(text: &str) -> Result<Fsync, String> {
    match (text, text.parse()) {
        ("never", _) => Ok(Fsync::Never),
        ("always", _) => Ok(Fsync::Always),
        (_, Ok(ms @ 1..=3_600_000)) => Ok(Fsync::Every(Duration::from_millis(ms))),
        _ => Err("expected never, always, or 1 to 3600000 milliseconds".to_owned()),
    }
}
