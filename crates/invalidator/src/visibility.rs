//! Delays each delete until its commit is visible to other sessions; otherwise a reader could cache
//! the old row again, permanently.
//!
//! ```text
//!     the log -> held -> a probe saw the commit -> Dispatcher -> every cluster's backlog
//!                 ^  |                                  \---> positions, for the checkpoint
//!                 +--+ not visible yet: probe again
//! ```
//!
//! A delete leaves as soon as its commit is visible, past earlier invisible ones: a PostgreSQL
//! commit that waits for no standby overtakes those that do. The position advances only when
//! everything before it has left, so a restart reads held deletes again.
//!
//! One probe answers for every commit read before it, and for later reads of older commits. If a
//! database cannot report visibility, or does not answer for long, deletes leave at once and are
//! repeated later (see `deliver`).
//!
//! The one atomic here is a counter for `stats`. Relaxed is enough: no other data depends on it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use changes::change::Mark;
use changes::key_file::KeyFile;
use changes::position::Position;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout, timeout_at};

use crate::change_source::VisibilityProbe;
use crate::deliver::Limits;
use crate::delivery::{Flush, Work};
use crate::disk_queue::DiskQueue;
use crate::dispatch::Dispatcher;
use crate::stats::Stats;

/// The first pause between two probes, and the longest while nothing new becomes visible.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// Deletes stop waiting for a probe that has failed for this multiple of `answer_within`.
const BLIND_AFTER: u32 = 5;

/// Transactions that may be read ahead of the barrier.
pub(crate) const READ_AHEAD: usize = 256;

/// A transaction, or only a position, as read from the log.
#[derive(Debug)]
pub(crate) struct Read {
    /// None for a bare position, and after the work was dispatched.
    pub(crate) work: Option<ReadWork>,
    /// Identifies the commit to a probe.
    pub(crate) mark: Mark,
    /// The position from which a restart may continue after it; none if only a later read has it.
    pub(crate) position: Option<Position>,
    /// Commit time, in microseconds since 1970.
    pub(crate) committed_us: u64,
    /// When it was read, or when a probe last found it invisible.
    pub(crate) read_at: Instant,
    /// Its share of the read-ahead window, until the barrier holds it.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// The work of a transaction.
#[derive(Debug)]
pub(crate) struct ReadWork {
    /// The first keys of a large transaction.
    pub(crate) file: Option<KeyFile>,
    /// The keys after them, or other work.
    pub(crate) rest: Work,
}

impl From<Flush> for ReadWork {
    fn from(flush: Flush) -> Self {
        Self { file: None, rest: Work::Flush(flush) }
    }
}

impl ReadWork {
    /// Its weight in a window of keys in memory.
    pub(crate) fn weight(&self) -> usize {
        match &self.rest {
            Work::Delete(keys) => keys.len(),
            Work::Flush(_) => 1,
        }
    }
}

/// Holds reads back until they are visible. It lives as long as a connection to the log.
pub(crate) struct VisibilityBarrier<'d, S: DiskQueue, W> {
    dispatcher: &'d mut Dispatcher<S>,
    probe: W,
    /// In the order of the log; a dispatched read has no work left.
    held: VecDeque<Read>,
    held_keys: usize,
    limits: Limits,
    probed_at: Instant,
    pause: Duration,
    /// When the probe began to fail, and whether deletes no longer wait for it.
    failing: Option<Instant>,
    is_blind: bool,
    stats: Arc<Stats>,
    log: fn(&str),
}

impl<'d, S: DiskQueue, W: VisibilityProbe> VisibilityBarrier<'d, S, W> {
    pub(crate) fn new(
        dispatcher: &'d mut Dispatcher<S>,
        probe: W,
        limits: Limits,
        stats: Arc<Stats>,
        log: fn(&str),
    ) -> Self {
        Self {
            dispatcher,
            probe,
            held: VecDeque::new(),
            held_keys: 0,
            limits,
            probed_at: Instant::now(),
            pause: PAUSES[0],
            failing: None,
            is_blind: false,
            stats,
            log,
        }
    }

    /// Passes reads on until `reads` is closed and all have left.
    ///
    /// # Errors
    ///
    /// When the keys of a large transaction cannot be read from the disk. They must be read from
    /// the log again.
    pub(crate) async fn pass(mut self, mut reads: mpsc::Receiver<Read>) -> io::Result<()> {
        loop {
            if self.held.is_empty() {
                let Some(read) = reads.recv().await else { return Ok(()) };
                self.hold(read);
            }
            while self.has_room()
                && let Ok(read) = reads.try_recv()
            {
                self.hold(read);
            }
            self.dispatch_visible().await?;
            let is_due = self.is_blind && Instant::now() >= self.probed_at + self.pause;
            if !self.held.is_empty() || is_due {
                self.gather(&mut reads).await;
                self.refresh().await;
            }
        }
    }

    fn has_room(&self) -> bool {
        self.held_keys < self.limits.window_keys
    }

    fn hold(&mut self, mut read: Read) {
        read.room = None;
        self.held_keys += weight(&read);
        self.held.push_back(read);
    }

    /// Collects reads until the next probe is due.
    async fn gather(&mut self, reads: &mut mpsc::Receiver<Read>) {
        let until = self.probed_at + self.pause;
        while self.has_room()
            && let Ok(Some(read)) = timeout_at(until, reads.recv()).await
        {
            self.hold(read);
        }
        tokio::time::sleep_until(until).await;
    }

    /// Dispatches the reads that are visible and advances the position.
    async fn dispatch_visible(&mut self) -> io::Result<()> {
        for at in 0..self.held.len() {
            if self.held[at].work.is_none() {
                continue;
            }
            let saw = self.probe.is_visible(&self.held[at].mark);
            match saw {
                Some(false) if !self.is_blind => continue,
                Some(_) => {}
                None => self.warn_once(at),
            }
            let read = &mut self.held[at];
            self.held_keys -= weight(read);
            let Some(work) = read.work.take() else { continue };
            let is_seen = saw == Some(true) && !matches!(read.mark, Mark::Prepared(_));
            let (committed_us, read_at) = (read.committed_us, read.read_at);
            if let Some(file) = work.file {
                let mut parts = file.read();
                while let Some(keys) = parts.next().await? {
                    let part = Work::Delete(keys);
                    self.dispatcher.push(part, committed_us, read_at, is_seen).await;
                }
            }
            let is_flush = matches!(work.rest, Work::Flush(_));
            self.dispatcher.push(work.rest, committed_us, read_at, is_seen).await;
            self.dispatcher.flushes += u64::from(is_flush);
            self.pause = PAUSES[0];
        }
        let mut passed = None;
        while let Some(out) = self.held.pop_front_if(|read| read.work.is_none()) {
            passed = out.position.or(passed);
        }
        if let Some(position) = passed {
            self.dispatcher.pass(position);
        }
        self.held = merged(std::mem::take(&mut self.held));
        let unseen = self.held.iter().filter(|read| read.work.is_some()).count();
        self.stats.unseen.store(unseen as u64, Relaxed);
        Ok(())
    }

    fn warn_once(&mut self, at: usize) {
        // The flush of a gap is no change, and has no commit that could be visible.
        let is_flush = |work: &ReadWork| matches!(work.rest, Work::Flush(_));
        if self.held[at].work.as_ref().is_some_and(is_flush) {
            return;
        }
        if std::mem::replace(&mut self.dispatcher.has_warned, true) {
            return;
        }
        let place = self.held[at].position.as_ref().map(ToString::to_string).unwrap_or_default();
        (self.log)(&format!(
            "warning: {place}: cannot check whether other sessions see this change yet; its deletes are sent now and again after {:?}",
            self.limits.repeat_after
        ));
    }

    async fn refresh(&mut self) {
        self.probed_at = Instant::now();
        let probed = timeout(self.limits.answer_within, self.probe.refresh()).await;
        let why = match probed {
            Ok(Ok(())) => {
                let unseen = |read: &&mut Read| self.probe.is_visible(&read.mark) == Some(false);
                for read in self.held.iter_mut().filter(unseen) {
                    read.read_at = self.probed_at;
                }
                (self.failing, self.is_blind) = (None, false);
                self.pause = (self.pause * 2).min(PAUSES[1]);
                return;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {:?}", self.limits.answer_within),
        };
        let since = *self.failing.get_or_insert(self.probed_at);
        if since.elapsed() < self.limits.answer_within * BLIND_AFTER {
            self.pause = self.limits.retry_first;
            return;
        }
        self.pause = self.limits.answer_within * BLIND_AFTER;
        if !std::mem::replace(&mut self.is_blind, true) {
            (self.log)(&format!(
                "warning: whether others see changes cannot be asked: {why}; deletes are sent at once, and again after {:?}",
                self.limits.repeat_after
            ));
        }
    }
}

/// Merges neighbours without work, because only the last position counts: after a commit that stays
/// invisible for long, there may be millions.
fn merged(held: VecDeque<Read>) -> VecDeque<Read> {
    let mut kept: VecDeque<Read> = VecDeque::with_capacity(held.len());
    for read in held {
        match kept.back_mut() {
            Some(last) if last.work.is_none() && read.work.is_none() => {
                last.position = read.position.or_else(|| last.position.take());
            }
            _ => kept.push_back(read),
        }
    }
    kept
}

fn weight(read: &Read) -> usize {
    read.work.as_ref().map_or(0, ReadWork::weight)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bytes::Bytes;
    use parking_lot::Mutex;
    use tokio::time::sleep;

    use super::*;
    use crate::backlog::Backlog;
    use crate::change_source::SourceError;
    use crate::disk_queue::SpoolFolder;
    use crate::positions::Positions;

    /// The visible transactions, or why the probe fails.
    type Sight = Arc<Mutex<Result<Vec<u32>, SourceError>>>;

    struct Fake {
        now: Sight,
        seen: Vec<u32>,
    }

    impl VisibilityProbe for Fake {
        async fn refresh(&mut self) -> Result<(), SourceError> {
            self.seen = self.now.lock().clone()?;
            Ok(())
        }

        fn is_visible(&self, mark: &Mark) -> Option<bool> {
            let Mark::Xid(xid) = mark else { return None };
            Some(self.seen.contains(xid))
        }
    }

    thread_local! {
        /// The lines that a test's barriers logged.
        static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    struct World {
        reads: mpsc::Sender<Read>,
        sight: Sight,
        backlog: Arc<Backlog<SpoolFolder>>,
        positions: Positions,
        stats: Arc<Stats>,
    }

    impl World {
        fn start() -> Self {
            let stats = Arc::new(Stats::new(["c".to_owned()]));
            let ms = Duration::from_millis;
            let (backlog, _) = Backlog::new(None, 100, ms(100), Arc::clone(&stats), 0);
            let positions = Positions::default();
            let (reads, passing) = mpsc::channel(READ_AHEAD);
            let sight = Sight::new(Mutex::new(Ok(Vec::new())));
            let world = Self {
                reads,
                sight,
                backlog: Arc::clone(&backlog),
                positions: positions.clone(),
                stats: Arc::clone(&stats),
            };
            let limits = Limits {
                batch_keys: 10,
                batch_bytes: 1000,
                batch_wait: ms(1),
                answer_within: ms(100),
                retry_first: ms(5),
                retry_max: ms(100),
                repeat_after: ms(50),
                repeats_seen: false,
                window_keys: 100,
                away_after: ms(100),
            };
            let probe = Fake { now: Arc::clone(&world.sight), seen: Vec::new() };
            tokio::spawn(async move {
                let backlogs = vec![backlog];
                let mut dispatcher = Dispatcher::new(backlogs, positions);
                let log = |line: &str| LINES.with_borrow_mut(|lines| lines.push(line.to_owned()));
                VisibilityBarrier::new(&mut dispatcher, probe, limits, stats, log)
                    .pass(passing)
                    .await
                    .unwrap();
            });
            world
        }

        async fn read(&self, mark: Mark, at: u64) {
            let key = Bytes::from(format!("k{at}"));
            let work = Some(ReadWork { file: None, rest: Work::Delete(vec![key]) });
            let (position, read_at) = (Some(Position::of_lsn(at)), Instant::now());
            let read = Read { work, mark, position, committed_us: at, read_at, room: None };
            self.reads.send(read).await.unwrap();
        }

        /// Work dispatched after a while: commit time, and whether it was visible.
        async fn out(&self) -> Vec<(u64, bool)> {
            sleep(Duration::from_millis(50)).await;
            let batch = self.backlog.take(100, 1000);
            batch.iter().map(|one| (one.committed_us, one.is_seen)).collect()
        }

        fn position(&self) -> Option<(u64, Position)> {
            self.positions.take(u64::MAX)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn visible_work_is_sent_and_the_position_waits_for_the_rest() {
        let world = World::start();
        for xid in 1..=3 {
            world.read(Mark::Xid(xid), u64::from(xid)).await;
            let position = Some(Position::of_lsn(u64::from(xid)));
            let read_at = Instant::now();
            let mark = Mark::Unknown;
            let empty = Read { work: None, mark, position, committed_us: 0, read_at, room: None };
            world.reads.send(empty).await.unwrap();
        }
        assert_eq!(world.out().await, []);
        assert_eq!(world.stats.unseen.load(Relaxed), 3);
        *world.sight.lock() = Ok(vec![2]);
        assert_eq!(world.out().await, [(2, true)]);
        assert_eq!(world.position(), None);
        *world.sight.lock() = Ok(vec![1, 2]);
        assert_eq!(world.out().await, [(1, true)]);
        assert_eq!(world.position(), Some((2, Position::of_lsn(2))));
        world.read(Mark::Unknown, 4).await;
        assert_eq!(world.out().await, [(4, false)]);
        assert_eq!(world.position(), None);
        *world.sight.lock() = Ok(vec![3]);
        assert_eq!(world.out().await, [(3, true)]);
        assert_eq!(world.position(), Some((4, Position::of_lsn(4))));
        assert_eq!(world.stats.unseen.load(Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_change_that_cannot_be_checked_is_warned_about() {
        let world = World::start();
        let (work, read_at) = (Some(Flush::All.into()), Instant::now());
        let (mark, position, room) = (Mark::Unknown, None, None);
        let flush = Read { work, mark, position, committed_us: 1, read_at, room };
        world.reads.send(flush).await.unwrap();
        assert_eq!(world.out().await, [(1, false)]);
        assert_eq!(LINES.take(), [""; 0]);
        world.read(Mark::Unknown, 2).await;
        assert_eq!(world.out().await, [(2, false)]);
        let lines = LINES.take();
        assert!(
            matches!(&lines[..], [line] if line.starts_with("warning: lsn:0/2: cannot check")),
            "{lines:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_probe_delays_work_only_for_a_limited_time() {
        let world = World::start();
        *world.sight.lock() = Err(SourceError::Lost("too many connections".to_owned()));
        world.read(Mark::Xid(1), 1).await;
        assert_eq!(world.out().await, []);
        sleep(Duration::from_millis(600)).await;
        assert_eq!(world.out().await, [(1, false)]);
        assert_eq!(world.position(), Some((1, Position::of_lsn(1))));
        // The probe is queried again, and its answers count again.
        *world.sight.lock() = Ok(vec![2]);
        sleep(Duration::from_secs(1)).await;
        world.read(Mark::Xid(2), 2).await;
        world.read(Mark::Xid(3), 3).await;
        let out = world.out().await;
        sleep(Duration::from_secs(1)).await;
        world.read(Mark::Xid(4), 4).await;
        assert_eq!(world.out().await, [], "{out:?}");
    }
}
