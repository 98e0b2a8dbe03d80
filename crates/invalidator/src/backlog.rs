//! Deliveries that wait for one cluster: in memory, and on disk while the cluster is unavailable.
//!
//! ```text
//!     push -> memory (a window of keys) -------------------------> take -> the cluster
//!       |        | the window is full, and nothing was acknowledged for a while
//!       |        v
//!       +-----> staged -> disk queue -> read, oldest first ------> take -> the cluster
//! ```
//!
//! A cluster is in one of three states. *Memory*: deliveries wait in memory. *Disk*: everything
//! that was not acknowledged moved to the disk, in order, and new deliveries queue behind it.
//! *Draining*: the cluster is back and few records are left, so new deliveries wait in memory
//! again. Deliveries on the disk count as acknowledged: a restart finds them there.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them. The
//! checkpoint depends on the number of records, which is stored before an acknowledgement.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::delivery::{Delivery, OnGap, Work};
use crate::disk_queue::{Chunk, DiskQueue, Refused, Why};
use crate::stats::{ClusterStats, Stats};

/// The pause after a failed write.
const DISK_PAUSE: Duration = Duration::from_millis(500);

/// The number of records on disk at which new deliveries wait in memory again.
const DRAINING_RECORDS: u64 = 65_536;

/// The queue of one cluster. The log's task pushes, the cluster's task takes, and
/// [`Backlog::write`] writes to the disk.
#[derive(Debug)]
pub struct Backlog<S> {
    state: Mutex<State>,
    disk_queue: Option<S>,
    window_keys: usize,
    away_after: Duration,
    acked: watch::Sender<u64>,
    /// Signalled when the cluster can take something.
    arrived: Notify,
    /// Signalled when the window gets room, and by acknowledgements.
    room: Notify,
    /// Signalled when there is something to write to the disk.
    staged: Notify,
    /// Signalled when the disk has room again.
    freed: Notify,
    stats: Arc<Stats>,
    index: usize,
}

#[derive(Debug)]
struct State {
    place: Place,
    /// Unacknowledged deliveries, oldest first; the cluster has taken the first `taken`.
    memory: VecDeque<Arc<Delivery>>,
    taken: usize,
    /// The weight of `memory`, and of its part that is not taken.
    held: usize,
    waiting: usize,
    /// The weight of deliveries that the cluster must send again and that `memory` no longer holds.
    again: usize,
    /// The weight at which the cluster is woken.
    wanted: usize,
    /// Deliveries on their way to the disk, and their weight, which includes those being written.
    staged: Vec<Arc<Delivery>>,
    staged_weight: usize,
    /// Rises when memory moves to the disk, which voids what the cluster has taken.
    epoch: u64,
    progress_at: Instant,
    is_closed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Memory,
    Disk,
    Draining,
}

/// The place from which the cluster takes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Memory. Deliveries taken in an earlier epoch are on the disk.
    Memory {
        /// Counts the moves of memory to the disk.
        epoch: u64,
    },
    /// The disk.
    Disk,
}

impl<S: DiskQueue> Backlog<S> {
    /// A backlog that continues with the records of `disk_queue`, if any, and a watch of the last
    /// acknowledged delivery. After `away_after` without an acknowledgement a full window of
    /// `window_keys` moves to the disk.
    #[must_use]
    pub fn new(
        disk_queue: Option<S>,
        window_keys: usize,
        away_after: Duration,
        stats: Arc<Stats>,
        index: usize,
    ) -> (Arc<Self>, watch::Receiver<u64>) {
        let (acked, acked_seen) = watch::channel(0);
        let is_empty = disk_queue.as_ref().is_none_or(|disk_queue| disk_queue.held().records == 0);
        let state = State {
            place: if is_empty { Place::Memory } else { Place::Disk },
            memory: VecDeque::new(),
            taken: 0,
            held: 0,
            waiting: 0,
            again: 0,
            wanted: 1,
            staged: Vec::new(),
            staged_weight: 0,
            epoch: 0,
            progress_at: Instant::now(),
            is_closed: false,
        };
        let backlog = Self {
            state: Mutex::new(state),
            disk_queue,
            window_keys,
            away_after,
            acked,
            arrived: Notify::new(),
            room: Notify::new(),
            staged: Notify::new(),
            freed: Notify::new(),
            stats,
            index,
        };
        backlog.count();
        (Arc::new(backlog), acked_seen)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn own(&self) -> &ClusterStats {
        &self.stats.clusters[self.index]
    }

    /// Waits until there is room, and appends.
    pub async fn push(&self, delivery: &Arc<Delivery>) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Registered before the check below, so that no notification is missed.
            room.as_mut().enable();
            let away_at = match self.try_push(delivery) {
                Ok(()) => return,
                Err(away_at) => away_at,
            };
            match away_at {
                Some(at) => drop(timeout_at(at, room).await),
                None => room.await,
            }
        }
    }

    /// Appends, or returns the time at which the cluster counts as unavailable, if that makes room.
    fn try_push(&self, delivery: &Arc<Delivery>) -> Result<(), Option<Instant>> {
        let weight = delivery.weight();
        let mut state = self.state();
        // A delivery larger than the window fits when no other waits.
        let fits = |held: usize, again: usize| match held {
            0 => again < self.window_keys,
            held => held.saturating_add(again).saturating_add(weight) <= self.window_keys,
        };
        if state.place != Place::Disk {
            if fits(state.held, state.again) {
                if state.held == 0 {
                    state.progress_at = Instant::now();
                }
                state.memory.push_back(Arc::clone(delivery));
                state.held += weight;
                state.waiting += weight;
                self.own().waiting.fetch_add(delivery.keys().len() as u64, Relaxed);
                if state.waiting >= state.wanted {
                    self.arrived.notify_one();
                }
                return Ok(());
            }
            if self.disk_queue.is_none() {
                return Err(None);
            }
            let away_at = state.progress_at + self.away_after;
            if Instant::now() < away_at {
                return Err(Some(away_at));
            }
            if state.staged_weight > 0 {
                // Memory would hold a second and a third window while the disk accepts nothing.
                return Err(None);
            }
            self.move_to_disk(&mut state);
        }
        if fits(state.staged_weight, 0) {
            state.staged.push(Arc::clone(delivery));
            state.staged_weight += weight;
            self.own().waiting.fetch_add(delivery.keys().len() as u64, Relaxed);
            self.staged.notify_one();
            return Ok(());
        }
        Err(None)
    }

    fn move_to_disk(&self, state: &mut State) {
        state.place = Place::Disk;
        state.epoch += 1;
        state.staged_weight += std::mem::take(&mut state.held);
        let memory = std::mem::take(&mut state.memory);
        state.staged.extend(memory);
        (state.taken, state.waiting) = (0, 0);
        self.own().moved_to_disk.fetch_add(1, Relaxed);
        self.staged.notify_one();
        self.arrived.notify_one();
    }

    /// Writes staged deliveries to the disk until the backlog is closed. Returns at once without a
    /// disk queue.
    pub async fn write(self: Arc<Self>, on_gap: OnGap, log: fn(&str)) {
        let Some(disk_queue) = &self.disk_queue else { return };
        loop {
            let (batch, is_closed) = {
                let mut state = self.state();
                (std::mem::take(&mut state.staged), state.is_closed)
            };
            if batch.is_empty() {
                if is_closed {
                    return;
                }
                self.staged.notified().await;
                continue;
            }
            if !self.write_all(disk_queue, batch, &on_gap, log).await {
                return;
            }
        }
    }

    /// Writes deliveries, however long it takes. Returns false if the backlog was closed first.
    async fn write_all(
        &self,
        disk_queue: &S,
        mut batch: Vec<Arc<Delivery>>,
        on_gap: &OnGap,
        log: fn(&str),
    ) -> bool {
        loop {
            let Err(Refused { stored, why }) = disk_queue.append(batch.clone()).await else {
                break;
            };
            let stored: Vec<_> = batch.drain(..stored).collect();
            self.written(&stored);
            self.own().spool_failures.fetch_add(1, Relaxed);
            match (why, on_gap) {
                (Why::Full, OnGap::Flush(flush)) => {
                    log("warning: the spool is full; its cluster will be flushed instead");
                    self.stats.gaps.fetch_add(1, Relaxed);
                    if disk_queue.replace(flush.clone()).await.is_ok() {
                        break;
                    }
                }
                (why, _) => self.own().fail(&why.to_string()),
            }
            if self.state().is_closed {
                return false;
            }
            let _ = timeout(DISK_PAUSE, self.freed.notified()).await;
        }
        self.written(&batch);
        true
    }

    fn written(&self, batch: &[Arc<Delivery>]) {
        let keys: usize = batch.iter().map(|one| one.keys().len()).sum();
        let weight: usize = batch.iter().map(|one| one.weight()).sum();
        self.state().staged_weight -= weight;
        self.own().waiting.fetch_sub(keys as u64, Relaxed);
        self.own().spooled.fetch_add(keys as u64, Relaxed);
        // This comes first: what is acknowledged and not counted was executed.
        self.count();
        if let Some(last) = batch.last() {
            self.publish_ack(last.seq);
        }
        self.room.notify_one();
        self.arrived.notify_one();
    }

    fn publish_ack(&self, seq: u64) {
        // At the end, no task listens.
        let _ = self.acked.send_if_modified(|seen| {
            let is_more = *seen < seq;
            *seen = seq.max(*seen);
            is_more
        });
    }

    /// Stores the size of the disk queue. The writer and the destination both call it, so it runs
    /// under the lock; otherwise the older of two readings could be stored last.
    fn count(&self) {
        if let Some(disk_queue) = &self.disk_queue {
            let _state = self.state();
            let held = disk_queue.held();
            self.own().spool_records.store(held.records, Relaxed);
            self.own().spool_bytes.store(held.bytes, Relaxed);
        }
    }

    /// The place from which the cluster takes next.
    #[must_use]
    pub fn source(&self) -> Source {
        let state = self.state();
        match state.place {
            Place::Memory => Source::Memory { epoch: state.epoch },
            Place::Disk | Place::Draining => Source::Disk,
        }
    }

    /// The commit time of the oldest untaken delivery in memory, in microseconds since 1970; 0 if
    /// there is none, or it is unknown.
    #[must_use]
    pub fn oldest_us(&self) -> u64 {
        let state = self.state();
        state.memory.get(state.taken).map_or(0, |oldest| oldest.committed_us)
    }

    /// Waits until there is something to take, the source changes, or `until` passes. False if the
    /// backlog is closed and empty.
    pub async fn wait_for_work(&self, until: Instant) -> bool {
        self.until_waiting(1, until).await
    }

    /// Waits until a weight of `wanted` can be taken, the source changes, or `until` passes. False
    /// if the backlog is closed and empty.
    pub async fn until_waiting(&self, wanted: usize, until: Instant) -> bool {
        loop {
            let arrived = self.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            {
                let mut state = self.state();
                if state.waiting >= wanted || state.place != Place::Memory {
                    return true;
                }
                if state.is_closed {
                    return state.waiting > 0;
                }
                state.wanted = wanted;
            }
            if timeout_at(until, arrived).await.is_err() {
                return true;
            }
        }
    }

    /// Takes the oldest deliveries: about `keys` keys of `bytes` bytes, and none after a flush.
    #[must_use]
    pub fn take(&self, keys: usize, bytes: usize) -> Vec<Arc<Delivery>> {
        let mut state = self.state();
        let (mut batch, mut has_keys, mut has_bytes) = (Vec::new(), 0, 0);
        if state.place != Place::Memory {
            return batch;
        }
        while has_keys < keys && has_bytes < bytes {
            let Some(next) = state.memory.get(state.taken).cloned() else { break };
            state.taken += 1;
            state.waiting -= next.weight();
            has_keys += next.keys().len();
            has_bytes += next.keys().iter().map(|key| key.len() + 8).sum::<usize>();
            let is_flush = matches!(next.work, Work::Flush(_));
            batch.push(next);
            if is_flush {
                break;
            }
        }
        batch
    }

    /// Acknowledges deliveries taken from memory in this epoch: delivered up to `done`, except for
    /// a weight of `again` to send again, and finally up to `acked`.
    pub fn acknowledge(&self, epoch: u64, done: u64, acked: u64, again: usize) {
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        // With a disk, delivered but not finally acknowledged work is kept, in case it moves there.
        let over = if self.disk_queue.is_some() { acked } else { done };
        state.again = if self.disk_queue.is_some() { 0 } else { again };
        let mut keys = 0;
        while state.taken > 0
            && let Some(oldest) = state.memory.pop_front_if(|oldest| oldest.seq <= over)
        {
            state.taken -= 1;
            state.held -= oldest.weight();
            keys += oldest.keys().len();
            state.progress_at = Instant::now();
        }
        drop(state);
        self.own().waiting.fetch_sub(keys as u64, Relaxed);
        self.publish_ack(acked);
        self.room.notify_one();
    }

    /// Reads the oldest records on the disk; none if it is empty, and memory is then the source.
    ///
    /// # Errors
    ///
    /// Returns the disk's error.
    pub async fn read(&self) -> io::Result<Option<Chunk>> {
        let Some(disk_queue) = &self.disk_queue else { return Ok(None) };
        let chunk = disk_queue.read().await?;
        let mut state = self.state();
        let is_empty = chunk.records.is_empty() && disk_queue.held().records == 0;
        if is_empty && state.staged_weight == 0 {
            state.place = Place::Memory;
            state.progress_at = Instant::now();
            return Ok(None);
        }
        Ok(Some(chunk))
    }

    /// Waits until something was written to the disk, or for a short time.
    pub async fn until_written(&self) {
        let _ = timeout(DISK_PAUSE, self.arrived.notified()).await;
    }

    /// Acknowledges the last chunk read, except `left`, which is queued last. If the disk fails,
    /// the chunk is read again.
    pub async fn acknowledge_chunk(&self, number: u64, left: Vec<Arc<Delivery>>) {
        let Some(disk_queue) = &self.disk_queue else { return };
        let is_whole = left.is_empty();
        if let Err(Refused { why, .. }) = disk_queue.acknowledge(number, left).await {
            self.own().spool_failures.fetch_add(1, Relaxed);
            self.own().fail(&why.to_string());
            sleep(DISK_PAUSE).await;
            return;
        }
        {
            let mut state = self.state();
            state.progress_at = Instant::now();
            if is_whole && disk_queue.held().records <= DRAINING_RECORDS {
                state.place = Place::Draining;
            }
        }
        self.count();
        self.freed.notify_one();
        self.room.notify_one();
    }

    /// Announces that no more deliveries will be pushed.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_one();
        self.staged.notify_one();
    }

    /// True when no more deliveries will be pushed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}
