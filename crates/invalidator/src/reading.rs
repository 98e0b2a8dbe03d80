//! Reads a connection's events and feeds the visibility barrier: assembles transactions and
//! responds to gaps.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use changes::assemble::{Assembler, Output};
use changes::change::Mark;
use changes::key_file::{KeyFile, KeyFiles};
use changes::keys::Keyer;
use changes::position::Position;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;

use crate::change_source::{ChangeSource, SourceError};
use crate::clock::system_now_us;
use crate::delivery::{Flush, OnGap, Work};
use crate::ended::Ended;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::stats::{Stats, UNKNOWN};
use crate::visibility::{Read, ReadWork};

/// One connection's events on their way to the visibility barrier.
pub(crate) struct Reading<'f> {
    pub(crate) plan: &'f Plan,
    pub(crate) files: &'f KeyFiles,
    pub(crate) reads: mpsc::Sender<Read>,
    /// The window of keys that may be in memory ahead of the barrier.
    pub(crate) ahead: Arc<Semaphore>,
    pub(crate) confirmed: &'f mut watch::Receiver<Option<(u64, Position)>>,
    pub(crate) newest_delivered: &'f mut watch::Receiver<Option<(u64, Position)>>,
    /// The first delivery whose position is one of this log.
    pub(crate) log_since: u64,
    pub(crate) stats: &'f Stats,
    pub(crate) owed: &'f mut Option<Flush>,
    /// The number of flushes sent to the barrier.
    pub(crate) sent_flushes: &'f mut u64,
    pub(crate) progress: &'f mut Progress,
    pub(crate) log: fn(&str),
}

impl Reading<'_> {
    /// Reads until the source fails, and returns the failure; or until a gap ends the pipeline.
    pub(crate) async fn read(
        &mut self,
        source: &mut impl ChangeSource,
        from: Position,
    ) -> Result<SourceError, Ended> {
        let keyer = Keyer::new(self.plan.rules.clone());
        let bytes_max = self.plan.transaction_bytes_max;
        let mut assembler = Assembler::new(keyer, from, bytes_max, self.files.clone());
        loop {
            let event = match source.next().await {
                Ok(event) => event,
                Err(error) => return Ok(error),
            };
            // Only an event shows that the log is followed: a server may accept the connection and
            // then send nothing but an error. Every source has an event within seconds.
            if self.progress.shows(&event) {
                self.heard();
            }
            self.stats.source_connected.store(true, Relaxed);
            for output in assembler.push(event) {
                match output {
                    Output::Commit { file, keys, position, committed_us, mark } => {
                        self.count(file.as_ref(), &keys);
                        self.commit(file, keys, position, committed_us, mark).await;
                    }
                    Output::Gap(why) => self.gap(why, Ended::Gap).await?,
                    Output::Lacking(why) => self.gap(why, Ended::Lacking).await?,
                }
            }
            assembler.bound().await;
            self.stats.keys_too_long.fetch_add(std::mem::take(&mut assembler.too_long), Relaxed);
            self.stats.prepared.store(assembler.prepared() as u64, Relaxed);
            let behind_bytes = source.behind_bytes().unwrap_or(UNKNOWN);
            self.stats.behind_bytes.store(behind_bytes, Relaxed);
            if let Some(position) = changed(self.confirmed, self.log_since) {
                source.confirm(&position);
            }
            if let Some(position) = changed(self.newest_delivered, self.log_since) {
                source.delivered(&position);
            }
        }
    }

    fn count(&self, file: Option<&KeyFile>, keys: &[Bytes]) {
        let on_disk = file.map_or(0, KeyFile::keys);
        self.stats.transactions.fetch_add(1, Relaxed);
        self.stats.transactions_on_disk.fetch_add(u64::from(file.is_some()), Relaxed);
        self.stats.keys.fetch_add(on_disk + keys.len() as u64, Relaxed);
    }

    async fn commit(
        &mut self,
        file: Option<KeyFile>,
        keys: Vec<Bytes>,
        position: Position,
        committed_us: u64,
        mark: Mark,
    ) {
        let is_empty = file.is_none() && keys.is_empty();
        // A position without a commit has no time, and does not show that the changes before it are
        // visible.
        let is_commit = committed_us != 0 || !is_empty;
        // The source does not know the time: it is younger than the changes read before.
        let committed_us = if committed_us == 0 { system_now_us() } else { committed_us };
        if let Some(flush) = self.owed.take_if(|_| is_commit) {
            *self.sent_flushes += 1;
            self.send(Some(flush.into()), mark.clone(), None, committed_us).await;
        }
        let work = (!is_empty).then_some(ReadWork { file, rest: Work::Delete(keys) });
        self.send(work, mark, Some(position), committed_us).await;
    }

    async fn gap(&mut self, why: String, ended: fn(String) -> Ended) -> Result<(), Ended> {
        self.stats.gaps.fetch_add(1, Relaxed);
        let OnGap::Flush(flush) = &self.plan.on_gap else { return Err(ended(why)) };
        (self.log)(&format!("warning: {why}; every cluster is {}", flushed(flush)));
        *self.owed = Some(flush.clone());
        *self.sent_flushes += 1;
        // It has no position; what follows it brings one.
        self.send(Some(flush.clone().into()), Mark::Unknown, None, system_now_us()).await;
        Ok(())
    }

    async fn send(
        &self,
        work: Option<ReadWork>,
        mark: Mark,
        position: Option<Position>,
        committed_us: u64,
    ) {
        let weight = work.as_ref().map_or(0, ReadWork::weight).min(self.plan.limits.window_keys);
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let Ok(room) = Arc::clone(&self.ahead).acquire_many_owned(weight).await else { return };
        let (room, read_at) = (Some(room), Instant::now());
        let read = Read { work, mark, position, committed_us, read_at, room };
        // The barrier ends when this task ends.
        let _ = self.reads.send(read).await;
    }

    fn heard(&self) {
        self.stats.heard_us.store(system_now_us(), Relaxed);
    }
}

/// A new position of the log that begins with delivery `log_since`.
fn changed(
    positions: &mut watch::Receiver<Option<(u64, Position)>>,
    log_since: u64,
) -> Option<Position> {
    if !positions.has_changed().unwrap_or(false) {
        return None;
    }
    let newest = positions.borrow_and_update();
    newest.as_ref().filter(|(seq, _)| *seq >= log_since).map(|(_, position)| position.clone())
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
