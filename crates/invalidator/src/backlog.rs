//! What waits for one cluster: in memory, and on disk while the cluster is away.
//!
//! ```text
//!     push -> memory (a window of keys) -------------------------> take -> the cluster
//!       |        | the window is full, and nothing was acknowledged for a while
//!       |        v
//!       +-----> staged -> shelf (disk) -> read, oldest first ----> take -> the cluster
//! ```
//!
//! A cluster is in one of three states. *Memory*: as above. *Disk*: everything that was not acknowledged moved to the disk, in
//! order, and what is new goes behind it. *Draining*: the cluster is back and little is left, so what is new waits in memory again.
//! What is on the disk counts as acknowledged: a restart finds it there.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::delivery::{Delivery, OnGap, Work};
use crate::shelf::{Chunk, Refused, Shelf};
use crate::stats::{ClusterStats, Stats, lock};

/// How long a disk that refuses is left alone.
const DISK_PAUSE: Duration = Duration::from_millis(500);

/// So many records on the disk are few: what is new waits in memory while a cluster that is back takes them.
const DRAINING_RECORDS: u64 = 65_536;

/// See the head of this file. The follower of the log pushes, the cluster's task takes, [`Backlog::write`] writes to the disk.
#[derive(Debug)]
pub struct Backlog<S> {
    state: Mutex<State>,
    shelf: Option<S>,
    window_keys: usize,
    away_after: Duration,
    acked: watch::Sender<u64>,
    /// Something for the cluster.
    arrived: Notify,
    /// Room in the window, or an acknowledgement.
    room: Notify,
    /// Something for the disk.
    staged: Notify,
    stats: Arc<Stats>,
    index: usize,
}

#[derive(Debug)]
struct State {
    place: Place,
    /// Not acknowledged, oldest first; the cluster has the first `taken` of them in hand.
    memory: VecDeque<Arc<Delivery>>,
    taken: usize,
    /// Weights of `memory`, and of those not taken.
    held: usize,
    waiting: usize,
    /// So much must wait before the cluster is woken.
    wanted: usize,
    /// On their way to the disk, and their weight; with those that are being written.
    staged: Vec<Arc<Delivery>>,
    staged_weight: usize,
    /// Rises when memory moved to the disk: what the cluster has in hand is void then.
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

/// Where the cluster takes from next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From memory; what was taken in an earlier epoch is on the disk.
    Memory {
        /// See there.
        epoch: u64,
    },
    /// From the disk.
    Disk,
}

impl<S: Shelf> Backlog<S> {
    /// An empty one, or one that goes on with what is on the shelf; and how far it has acknowledged. After `away_after` without
    /// any acknowledgement a full window of `window_keys` moves to the shelf.
    #[must_use]
    pub fn new(
        shelf: Option<S>,
        window_keys: usize,
        away_after: Duration,
        stats: Arc<Stats>,
        index: usize,
    ) -> (Arc<Self>, watch::Receiver<u64>) {
        let (acked, acked_seen) = watch::channel(0);
        let is_empty = shelf.as_ref().is_none_or(|shelf| shelf.held().records == 0);
        let state = State {
            place: if is_empty { Place::Memory } else { Place::Disk },
            memory: VecDeque::new(),
            taken: 0,
            held: 0,
            waiting: 0,
            wanted: 1,
            staged: Vec::new(),
            staged_weight: 0,
            epoch: 0,
            progress_at: Instant::now(),
            is_closed: false,
        };
        let backlog = Self {
            state: Mutex::new(state),
            shelf,
            window_keys,
            away_after,
            acked,
            arrived: Notify::new(),
            room: Notify::new(),
            staged: Notify::new(),
            stats,
            index,
        };
        backlog.count();
        (Arc::new(backlog), acked_seen)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn own(&self) -> &ClusterStats {
        &self.stats.clusters[self.index]
    }

    /// Waits for room and appends.
    pub async fn push(&self, delivery: &Arc<Delivery>) {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // From here on a notification is not missed.
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

    /// Appends, or answers when the cluster will count as away, if that would make room.
    fn try_push(&self, delivery: &Arc<Delivery>) -> Result<(), Option<Instant>> {
        let weight = delivery.weight();
        let mut state = self.state();
        let fits = |held: usize| held == 0 || held.saturating_add(weight) <= self.window_keys;
        if state.place != Place::Disk {
            if fits(state.held) {
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
            if self.shelf.is_none() {
                return Err(None);
            }
            let away_at = state.progress_at + self.away_after;
            if Instant::now() < away_at {
                return Err(Some(away_at));
            }
            self.move_to_disk(&mut state);
        }
        if fits(state.staged_weight) {
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

    /// Writes to the disk what goes there, until nothing more comes. Ends at once without a shelf.
    pub async fn write(self: Arc<Self>, on_gap: OnGap, log: fn(&str)) {
        let Some(shelf) = &self.shelf else { return };
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
            while let Err(refused) = shelf.append(batch.clone()).await {
                self.own().spool_failures.fetch_add(1, Relaxed);
                match (refused, &on_gap) {
                    (Refused::Full, OnGap::Flush(flush)) => {
                        log("the spool is full; its cluster will be flushed instead");
                        self.stats.gaps.fetch_add(1, Relaxed);
                        if shelf.replace(flush.clone()).await.is_ok() {
                            break;
                        }
                    }
                    (Refused::Full, OnGap::Stop) => self.own().fail("the spool is full"),
                    (Refused::Io(why), _) => self.own().fail(&format!("the spool: {why}")),
                }
                if self.state().is_closed {
                    return;
                }
                sleep(DISK_PAUSE).await;
            }
            self.written(&batch);
        }
    }

    fn written(&self, batch: &[Arc<Delivery>]) {
        let keys: usize = batch.iter().map(|one| one.keys().len()).sum();
        let weight: usize = batch.iter().map(|one| one.weight()).sum();
        self.state().staged_weight -= weight;
        self.own().waiting.fetch_sub(keys as u64, Relaxed);
        self.own().spooled.fetch_add(keys as u64, Relaxed);
        if let Some(last) = batch.last() {
            self.say_acked(last.seq);
        }
        self.count();
        self.room.notify_one();
        self.arrived.notify_one();
    }

    fn say_acked(&self, seq: u64) {
        // Nobody listens any more at the end.
        let _ = self.acked.send_if_modified(|seen| {
            let is_more = *seen < seq;
            *seen = seq.max(*seen);
            is_more
        });
    }

    fn count(&self) {
        if let Some(shelf) = &self.shelf {
            let held = shelf.held();
            self.own().spool_records.store(held.records, Relaxed);
            self.own().spool_bytes.store(held.bytes, Relaxed);
        }
    }

    /// Where the cluster takes from next.
    #[must_use]
    pub fn source(&self) -> Source {
        let state = self.state();
        match state.place {
            Place::Memory => Source::Memory { epoch: state.epoch },
            Place::Disk | Place::Draining => Source::Disk,
        }
    }

    /// Waits until there is something to take, or the source changed, or until then. False when there is nothing, and nothing
    /// will come.
    pub async fn until_something(&self, until: Instant) -> bool {
        self.until_waiting(1, until).await
    }

    /// Waits until so much can be taken, or the source changed, or until then.
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

    /// The oldest that were not taken: some `keys` and `bytes` of keys, and none behind a flush.
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

    /// Everything taken from memory in this epoch up to `done` was delivered, up to `acked` for good.
    pub fn acknowledge(&self, epoch: u64, done: u64, acked: u64) {
        let mut state = self.state();
        if state.epoch != epoch {
            return;
        }
        // What is delivered and not for good is kept for the disk, if there is one.
        let over = if self.shelf.is_some() { acked } else { done };
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
        self.say_acked(acked);
        self.room.notify_one();
    }

    /// The oldest on the disk; none when it is empty, and memory is the source from now on.
    ///
    /// # Errors
    ///
    /// What the disk says.
    pub async fn read(&self) -> io::Result<Option<Chunk>> {
        let Some(shelf) = &self.shelf else { return Ok(None) };
        let chunk = shelf.read().await?;
        let mut state = self.state();
        let is_empty = chunk.records.is_empty() && shelf.held().records == 0;
        if is_empty && state.staged_weight == 0 {
            state.place = Place::Memory;
            state.progress_at = Instant::now();
            return Ok(None);
        }
        Ok(Some(chunk))
    }

    /// Waits until something was written to the disk, or for a moment.
    pub async fn until_written(&self) {
        let _ = timeout(DISK_PAUSE, self.arrived.notified()).await;
    }

    /// The chunk that was read last is delivered, but for `left`, which goes behind everything else.
    pub async fn acknowledge_chunk(&self, number: u64, left: Option<Delivery>) {
        let Some(shelf) = &self.shelf else { return };
        let is_whole = left.is_none();
        if let Some(left) = left {
            let left = Arc::new(left);
            while shelf.append(vec![Arc::clone(&left)]).await.is_err() {
                self.own().spool_failures.fetch_add(1, Relaxed);
                sleep(DISK_PAUSE).await;
            }
        }
        shelf.acknowledge(number).await;
        {
            let mut state = self.state();
            state.progress_at = Instant::now();
            if is_whole && shelf.held().records <= DRAINING_RECORDS {
                state.place = Place::Draining;
            }
        }
        self.count();
        self.room.notify_one();
    }

    /// Nothing more will be pushed.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.arrived.notify_one();
        self.staged.notify_one();
    }

    /// True when nothing more will be pushed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }
}
