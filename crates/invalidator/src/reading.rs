//! Reads a connection's events and feeds the visibility barrier: transactions are put together,
//! and gaps answered.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::assemble::{Assembler, Output};
use crate::change::{ChangeSource, LogRoom, Mark, SourceError};
use crate::clock::system_now_us;
use crate::delivery::{Flush, OnGap, Work};
use crate::ended::Ended;
use crate::keys::Keyer;
use crate::plan::Plan;
use crate::position::Position;
use crate::stats::{Stats, UNKNOWN};
use crate::visibility::Read;

/// One connection's events on their way to the visibility barrier.
pub(crate) struct Reading<'f> {
    pub(crate) plan: &'f Plan,
    pub(crate) reads: mpsc::Sender<Read>,
    pub(crate) confirmed: &'f mut watch::Receiver<Option<Position>>,
    pub(crate) stats: &'f Stats,
    pub(crate) owed: &'f mut Option<Flush>,
    pub(crate) log: fn(&str),
}

impl Reading<'_> {
    /// Reads until the source fails, and answers how; or until a gap ends everything.
    pub(crate) async fn read(
        &mut self,
        source: &mut impl ChangeSource,
        from: Position,
    ) -> Result<SourceError, Ended> {
        let keyer = Keyer::new(self.plan.rules.clone());
        let mut assembler = Assembler::new(keyer, from, self.plan.transaction_bytes_max);
        self.heard();
        self.stats.source_connected.store(true, Relaxed);
        loop {
            let event = match source.next().await {
                Ok(event) => event,
                Err(error) => return Ok(error),
            };
            self.heard();
            for output in assembler.push(event) {
                match output {
                    Output::Commit { keys, position, committed_us, mark } => {
                        self.stats.transactions.fetch_add(1, Relaxed);
                        self.stats.keys.fetch_add(keys.len() as u64, Relaxed);
                        self.commit(keys, position, committed_us, mark).await;
                    }
                    Output::Gap(why) => self.gap(why, Ended::Gap).await?,
                    Output::Lacking(why) => self.gap(why, Ended::Lacking).await?,
                }
            }
            self.stats.keys_too_long.fetch_add(std::mem::take(&mut assembler.too_long), Relaxed);
            self.stats.prepared.store(assembler.prepared() as u64, Relaxed);
            let behind_bytes = source.behind_bytes().unwrap_or(UNKNOWN);
            self.stats.behind_bytes.store(behind_bytes, Relaxed);
            self.note_room(source.log_room());
            if self.confirmed.has_changed().unwrap_or(false)
                && let Some(position) = self.confirmed.borrow_and_update().as_ref()
            {
                source.confirm(position);
            }
        }
    }

    /// Says when the database is about to remove log that was not delivered, and when it is not any
    /// more.
    fn note_room(&self, room: Option<LogRoom>) {
        self.stats.log_room_bytes.store(room.map_or(UNKNOWN, |room| room.bytes), Relaxed);
        let is_short = room.is_some_and(|room| room.is_short);
        let was_short = self.stats.log_room_short.swap(is_short, Relaxed);
        match room.filter(|_| is_short != was_short) {
            Some(LogRoom { bytes, is_short: true }) => (self.log)(&format!(
                "the database removes log that was not delivered after {bytes} bytes more"
            )),
            Some(LogRoom { is_short: false, .. }) => (self.log)("the log has room again"),
            None => {}
        }
    }

    async fn commit(
        &mut self,
        keys: Vec<Bytes>,
        position: Position,
        committed_us: u64,
        mark: Mark,
    ) {
        if let Some(flush) = self.owed.take() {
            self.send(Some(Work::Flush(flush)), mark.clone(), None, committed_us).await;
        }
        let work = (!keys.is_empty()).then_some(Work::Delete(keys));
        self.send(work, mark, Some(position), committed_us).await;
    }

    async fn gap(&mut self, why: String, ended: fn(String) -> Ended) -> Result<(), Ended> {
        self.stats.gaps.fetch_add(1, Relaxed);
        let OnGap::Flush(flush) = &self.plan.on_gap else { return Err(ended(why)) };
        (self.log)(&format!("{why}; every cluster is {}", flushed(flush)));
        *self.owed = Some(flush.clone());
        // It has no position of its own: that is kept with what follows it.
        let (work, now_us) = (Work::Flush(flush.clone()), system_now_us());
        self.send(Some(work), Mark::Unknown, None, now_us).await;
        Ok(())
    }

    async fn send(
        &self,
        work: Option<Work>,
        mark: Mark,
        position: Option<Position>,
        committed_us: u64,
    ) {
        let read = Read { work, mark, position, committed_us, read_at: Instant::now() };
        // The barrier ends when this does.
        let _ = self.reads.send(read).await;
    }

    fn heard(&self) {
        self.stats.heard_us.store(system_now_us(), Relaxed);
    }
}

/// Describes a flush in words.
pub(crate) fn flushed(flush: &Flush) -> String {
    match flush {
        Flush::All => "flushed".to_owned(),
        Flush::Prefixes(prefixes) => {
            let names: Vec<_> =
                prefixes.iter().map(|prefix| String::from_utf8_lossy(prefix)).collect();
            format!("flushed of keys that begin with {}", names.join(", "))
        }
    }
}
