//! Saves the oldest position that every cluster has acknowledged.
//!
//! Deletes that wait on this host's disk count as acknowledged, because a restart here finds them.
//! Others cannot see them. So the database may discard its log, and another invalidator may take
//! over, only up to the last position at which the disk had nothing (`delivered_position`). The
//! database learns it some seconds after the status port reports it, so that those that wait do not
//! lag behind PostgreSQL's slot.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them. A
//! cluster's acknowledgement comes after the number of records that it put on the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use changes::position::Position;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::checkpoint::{self, Keep, Kept};
use crate::positions::Positions;
use crate::stats::Stats;

/// The pause between two log lines about attempts that keep failing.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// The delay after which the database learns a delivered position. The other invalidators of the
/// group ask for it each second, or within five if the database answers slowly.
pub(crate) const HAND_OVER: Duration = Duration::from_secs(5);

/// The task that saves positions.
pub(crate) struct CheckpointWriter<K> {
    /// The source's name.
    pub(crate) name: String,
    /// The storage of the checkpoint.
    pub(crate) keep: Arc<K>,
    /// The position stored there, which is confirmed at once: a full disk must not stop the start.
    pub(crate) stored: Option<Position>,
    /// The last delivery that each cluster has acknowledged.
    pub(crate) acks: Vec<watch::Receiver<u64>>,
    /// The position after each delivery.
    pub(crate) positions: Positions,
    /// Receives each position that was saved, with the last delivery before it.
    pub(crate) confirm: watch::Sender<Option<(u64, Position)>>,
    /// Receives positions up to which everything was executed, likewise.
    pub(crate) newest: watch::Sender<Option<(u64, Position)>>,
    /// Receives the same when they have aged.
    pub(crate) delivered: watch::Sender<Option<(u64, Position)>>,
    /// The minimum age of what `delivered` receives.
    pub(crate) hand_over: Duration,
    /// The pause between two checks of `acks`.
    pub(crate) every: Duration,
    /// Counts saves and failures.
    pub(crate) stats: Arc<Stats>,
    /// Reports failures.
    pub(crate) log: fn(&str),
}

impl<K: Keep> CheckpointWriter<K> {
    /// Runs until the task of every cluster has ended.
    pub(crate) async fn run(mut self) {
        let mut saved: Option<(u64, Position)> = None;
        let mut is_spooled = false;
        let mut aging = Aging::default();
        let mut failures = Failures::default();
        loop {
            let is_over = self.acks.iter().all(|acked| acked.has_changed().is_err());
            let acked = self.acks.iter().map(|acked| *acked.borrow()).min().unwrap_or(0);
            if let Some((seq, position)) = self.positions.take(acked) {
                let is_stored = self.stored.take().as_ref() == Some(&position);
                if is_stored {
                    self.confirm(seq, &position);
                }
                let on_disk = self.on_disk();
                is_spooled = !on_disk.is_empty();
                let kept = self.keep(&position, on_disk).await;
                self.note(&kept, &mut failures);
                if kept.is_err() {
                    self.positions.give_back(seq, position);
                } else {
                    if !is_stored {
                        self.confirm(seq, &position);
                    }
                    saved = Some((seq, position));
                }
            }
            // Deletes are on the disk before they count as acknowledged. So work acknowledged above
            // that is not there now was executed.
            if self.on_disk().is_empty()
                && let Some(delivered) = saved.take()
            {
                if std::mem::take(&mut is_spooled) {
                    // If it fails, the file names folders that are still there, and the position is
                    // saved again in the next turn.
                    let kept = self.keep(&delivered.1, Vec::new()).await;
                    self.note(&kept, &mut failures);
                    if kept.is_err() {
                        self.positions.give_back(delivered.0, delivered.1.clone());
                    }
                }
                *self.stats.delivered_position.lock() = delivered.1.to_string();
                // At the end, no task listens.
                let _ = self.newest.send(Some(delivered.clone()));
                aging.newest = Some(delivered);
            }
            if let Some(delivered) = aging.take(self.hand_over) {
                // At the end, no task listens.
                let _ = self.delivered.send(Some(delivered));
            }
            if is_over {
                return;
            }
            tokio::select! { () = sleep(self.every) => {}, () = all_end(&self.acks) => {} }
        }
    }

    /// The clusters whose deletes wait on the disk. Their numbers outlive their tasks.
    fn on_disk(&self) -> Vec<String> {
        let clusters = self.stats.clusters.iter();
        let on_disk = clusters.filter(|cluster| cluster.spool_records.load(Relaxed) > 0);
        on_disk.map(|cluster| cluster.name.clone()).collect()
    }

    async fn keep(&self, position: &Position, spooled: Vec<String>) -> io::Result<()> {
        let kept = Kept { position: position.clone(), is_lacking: false, spooled };
        self.keep.replace(checkpoint::text(&self.name, &kept).into_bytes()).await?;
        self.stats.checkpoints.fetch_add(1, Relaxed);
        Ok(())
    }

    fn confirm(&self, seq: u64, position: &Position) {
        *self.stats.position.lock() = position.to_string();
        // At the end, no task listens.
        let _ = self.confirm.send(Some((seq, position.clone())));
    }

    fn note(&self, kept: &io::Result<()>, failures: &mut Failures) {
        self.stats.checkpoint_fails.store(kept.is_err(), Relaxed);
        let path = self.keep.path().display();
        match kept {
            Ok(()) => {
                if let Some(line) = failures.end() {
                    (self.log)(&format!("checkpoint {path}: {line}"));
                }
            }
            Err(error) => {
                self.stats.checkpoint_failures.fetch_add(1, Relaxed);
                if let Some(line) = failures.add(error) {
                    (self.log)(&format!("warning: checkpoint {path}: {line}"));
                }
            }
        }
    }
}

/// Delivered positions that are not old enough: the newest one, and an earlier one with the time
/// since which it has aged.
#[derive(Default)]
struct Aging {
    newest: Option<(u64, Position)>,
    earlier: Option<(Instant, (u64, Position))>,
}

impl Aging {
    /// Takes the earlier one if it has this age.
    fn take(&mut self, age: Duration) -> Option<(u64, Position)> {
        if self.earlier.as_ref().is_some_and(|(since, _)| since.elapsed() < age) {
            return None;
        }
        let earlier = self.earlier.take();
        self.earlier = self.newest.take().map(|newest| (Instant::now(), newest));
        earlier.map(|(_, position)| position)
    }
}

/// Consecutive failed attempts. A full disk fails several per second, so not each is logged.
#[derive(Default)]
struct Failures {
    count: u64,
    logged_at: Option<Instant>,
}

impl Failures {
    /// Counts a failed attempt. Returns the line to log, if one is due.
    fn add(&mut self, error: &io::Error) -> Option<String> {
        self.count += 1;
        if self.logged_at.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return None;
        }
        self.logged_at = Some(Instant::now());
        Some(format!("{error} (failed attempts: {})", self.count))
    }

    /// Notes a successful attempt. Returns the line to log, if attempts failed before.
    fn end(&mut self) -> Option<String> {
        let count = std::mem::take(self).count;
        (count > 0).then(|| format!("stored again (failed attempts: {count})"))
    }
}

/// Waits for the end of every sender.
async fn all_end(acks: &[watch::Receiver<u64>]) {
    for acked in acks {
        let mut acked = acked.clone();
        while acked.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tokio::task::JoinHandle;

    use super::*;
    use crate::checkpoint::KeptFile;

    /// A running writer and its surroundings.
    struct Rig {
        keep: Arc<KeptFile>,
        acks: Vec<watch::Sender<u64>>,
        positions: Positions,
        confirmed: watch::Receiver<Option<(u64, Position)>>,
        delivered: watch::Receiver<Option<(u64, Position)>>,
        stats: Arc<Stats>,
        task: JoinHandle<()>,
    }

    impl Rig {
        fn of(path: PathBuf) -> Self {
            Self::with_stored(path, None)
        }

        fn with_stored(path: PathBuf, stored: Option<Position>) -> Self {
            let keep = Arc::new(KeptFile(path));
            let (acks, acked) = (0..2).map(|_| watch::channel(0)).unzip();
            let positions = Positions::default();
            let (confirm, confirmed) = watch::channel(None);
            let (deliver, delivered) = watch::channel(None);
            let stats = Arc::new(Stats::new(["east".to_owned(), "west".to_owned()]));
            let writer = CheckpointWriter {
                name: "shop".to_owned(),
                keep: Arc::clone(&keep),
                stored,
                acks: acked,
                positions: positions.clone(),
                confirm,
                newest: watch::channel(None).0,
                delivered: deliver,
                hand_over: Duration::ZERO,
                every: Duration::from_millis(1),
                stats: Arc::clone(&stats),
                log: |_| {},
            };
            let task = tokio::spawn(writer.run());
            Self { keep, acks, positions, confirmed, delivered, stats, task }
        }

        fn kept(&self) -> Option<Position> {
            checkpoint::read(&*self.keep, "shop").unwrap().map(|kept| kept.position)
        }

        fn put_on_disk(&self, records: u64) {
            self.stats.clusters[0].spool_records.store(records, Relaxed);
        }

        fn spooled(&self) -> Vec<String> {
            checkpoint::read(&*self.keep, "shop").unwrap().unwrap().spooled
        }
    }

    fn at(lsn: u64) -> Position {
        Position::of_lsn(lsn)
    }

    #[tokio::test]
    async fn a_position_is_saved_when_every_cluster_has_acknowledged_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::of(folder.path().join("cp"));
        (1..=3).for_each(|seq| rig.positions.push(seq, at(10 * seq)));
        rig.acks[0].send(3).unwrap();
        rig.acks[1].send(1).unwrap();
        rig.confirmed.wait_for(|seen| *seen == Some((1, at(10)))).await.unwrap();
        assert_eq!(rig.kept(), Some(at(10)));
        rig.delivered.wait_for(|seen| *seen == Some((1, at(10)))).await.unwrap();
        // The position of work on the disk is saved, but not reported as delivered.
        rig.put_on_disk(1);
        rig.acks[1].send(2).unwrap();
        rig.confirmed.wait_for(|seen| *seen == Some((2, at(20)))).await.unwrap();
        assert_eq!((rig.kept(), rig.delivered.borrow().clone()), (Some(at(20)), Some((1, at(10)))));
        assert_eq!(rig.spooled(), ["east"]);
        rig.put_on_disk(0);
        rig.delivered.wait_for(|seen| *seen == Some((2, at(20)))).await.unwrap();
        assert_eq!((rig.kept(), rig.spooled()), (Some(at(20)), vec![]));
        assert_eq!(rig.stats.checkpoints.load(Relaxed), 3);
        drop(rig.acks);
        rig.task.await.unwrap();
    }

    #[tokio::test]
    async fn a_cluster_that_could_not_be_removed_from_the_file_is_removed_later() {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::of(folder.path().join("here/cp"));
        std::fs::create_dir(folder.path().join("here")).unwrap();
        rig.put_on_disk(1);
        rig.positions.push(1, at(10));
        rig.acks.iter().for_each(|acks| acks.send(1).unwrap());
        rig.confirmed.wait_for(|seen| *seen == Some((1, at(10)))).await.unwrap();
        assert_eq!(rig.spooled(), ["east"]);
        std::fs::rename(folder.path().join("here"), folder.path().join("away")).unwrap();
        rig.put_on_disk(0);
        rig.delivered.wait_for(|seen| *seen == Some((1, at(10)))).await.unwrap();
        assert!(rig.stats.checkpoint_fails.load(Relaxed));
        std::fs::rename(folder.path().join("away"), folder.path().join("here")).unwrap();
        while rig.stats.checkpoint_fails.load(Relaxed) {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((rig.kept(), rig.spooled()), (Some(at(10)), vec![]));
    }

    #[tokio::test]
    async fn the_stored_position_is_confirmed_even_if_the_disk_fails() {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::with_stored(folder.path().join("missing/cp"), Some(at(10)));
        rig.positions.push(0, at(10));
        rig.confirmed.wait_for(|seen| *seen == Some((0, at(10)))).await.unwrap();
        rig.positions.push(1, at(20));
        rig.acks.iter().for_each(|acks| acks.send(1).unwrap());
        let failures = || rig.stats.checkpoint_failures.load(Relaxed);
        let before = failures();
        while failures() < before + 2 {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*rig.confirmed.borrow(), Some((0, at(10))), "another position is not stored");
    }

    #[tokio::test(start_paused = true)]
    async fn the_database_learns_a_position_after_the_others_do() {
        let mut aging = Aging::default();
        let mut learned = Vec::new();
        for second in 0..13 {
            aging.newest = Some((second, at(second)));
            learned.extend(aging.take(HAND_OVER).map(|(seq, _)| (second, seq)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(learned, [(5, 0), (10, 5)]);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_failures_are_logged_once_a_minute() {
        let (full, mut failures) =
            (io::Error::from(io::ErrorKind::StorageFull), Failures::default());
        let mut lines = Vec::new();
        // Five attempts per second for 61 seconds.
        for _ in 0..305 {
            lines.extend(failures.add(&full));
            tokio::time::advance(Duration::from_millis(200)).await;
        }
        let counts = ["(failed attempts: 1)", "(failed attempts: 301)"];
        assert_eq!(lines.len(), counts.len(), "{lines:?}");
        assert!(lines.iter().zip(counts).all(|(line, count)| line.ends_with(count)), "{lines:?}");
        assert_eq!(failures.end().as_deref(), Some("stored again (failed attempts: 305)"));
        assert_eq!(failures.end(), None);
    }

    #[tokio::test]
    async fn a_position_that_could_not_be_saved_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut rig = Rig::of(folder.path().join("missing/cp"));
        rig.positions.push(1, at(10));
        rig.acks.iter().for_each(|acks| acks.send(1).unwrap());
        while rig.stats.checkpoint_failures.load(Relaxed) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(*rig.confirmed.borrow(), None);
        assert!(rig.stats.checkpoint_fails.load(Relaxed));
        std::fs::create_dir(folder.path().join("missing")).unwrap();
        rig.confirmed.wait_for(|seen| *seen == Some((1, at(10)))).await.unwrap();
        assert_eq!(rig.kept(), Some(at(10)));
        assert!(!rig.stats.checkpoint_fails.load(Relaxed));
    }
}
