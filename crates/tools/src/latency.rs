//! Round trips of a request without an effect.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::connection::{Connection, Error};

/// One round trip: `version`, which every server answers without touching an item.
///
/// # Errors
///
/// Returns errors of the connection, or of an invalid reply.
pub fn round_trip(connection: &mut Connection) -> Result<(Duration, String), Error> {
    let begin = Instant::now();
    connection.send(b"version\r\n")?;
    let reply = connection.line()?;
    match reply.strip_prefix("VERSION ") {
        // It is shown on terminals.
        Some(version) => Ok((begin.elapsed(), version.escape_debug().to_string())),
        None => Err(connection.unexpected("version", &reply)),
    }
}

/// Times of `count` round trips in microseconds, with pauses between them.
///
/// # Errors
///
/// As [`round_trip`].
pub fn latencies(
    connection: &mut Connection,
    count: u64,
    pause: Duration,
) -> Result<Histogram<u64>, Error> {
    let mut times = Histogram::new_with_bounds(1, 60_000_000, 3)
        .map_err(|error| Error::Dump(format!("a histogram: {error}")))?;
    for number in 0..count {
        if number > 0 {
            std::thread::sleep(pause);
        }
        let micros = u64::try_from(round_trip(connection)?.0.as_micros()).unwrap_or(u64::MAX);
        times.saturating_record(micros.max(1));
    }
    Ok(times)
}
