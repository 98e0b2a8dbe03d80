//! The repeated checks of the followed server, and the report of their results.
//!
//! Checks go on while the reading waits for a slow cluster. The database's log is the buffer then,
//! so the report must not wait with the reading.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::Ordering::Relaxed;

use tokio::sync::watch;

use crate::last_check::LastCheck;
use crate::log_room::LogRoom;
use crate::notes::Notes;
use crate::stats::{Stats, UNKNOWN};

/// The results of the checks up to now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Results {
    /// The last good check.
    pub(crate) last: LastCheck,
    /// The space of the log at the last check, if it has a limit.
    pub(crate) room: Option<LogRoom>,
}

/// The checks of one connection to a log.
#[derive(Debug)]
pub struct Checks {
    /// Changes with each check.
    pub(crate) results: watch::Receiver<Results>,
    pub(crate) notes: Notes,
}

impl Checks {
    /// Reports each result, from now on.
    pub(crate) async fn report(mut self, stats: &Stats, log: fn(&str)) -> Infallible {
        loop {
            let results = *self.results.borrow_and_update();
            *stats.last_check.lock() = Some(results.last);
            note_room(results.room, stats, log);
            self.notes.take().iter().for_each(|note| log(note));
            if self.results.changed().await.is_err() {
                return pending().await;
            }
        }
    }
}

/// Logs when the database is about to remove undelivered log, and when that is over.
fn note_room(room: Option<LogRoom>, stats: &Stats, log: fn(&str)) {
    stats.log_room_bytes.store(room.map_or(UNKNOWN, |room| room.bytes), Relaxed);
    let is_short = room.is_some_and(|room| room.is_short);
    let was_short = stats.log_room_short.swap(is_short, Relaxed);
    match room.filter(|_| is_short != was_short) {
        Some(LogRoom { bytes, is_short: true }) => log(&format!(
            "warning: the database removes log that was not delivered after {bytes} bytes more"
        )),
        Some(LogRoom { is_short: false, .. }) => log("the log has room again"),
        None => {}
    }
}
