//! The pipeline from the log to every cluster, and back to the checkpoint.
//!
//! One task reads the log and fills the clusters' backlogs with visible work; each cluster has a
//! task that empties its backlog; one task saves the oldest position that all have acknowledged. A
//! backlog moves to the disk while its cluster is unavailable. A backlog that is full or has no
//! disk stops the reading; the database's log is then the buffer.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use changes::key_file::KeyFiles;
use changes::position::Position;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};

use crate::backlog::Backlog;
use crate::change_source::{ChangeSource, SourceError};
use crate::checkpoint::{self, Keep, Kept};
use crate::checkpoint_writer::{CheckpointWriter, HAND_OVER};
use crate::deliver::{DamagedSpool, Destination, Target};
use crate::delivery::{Flush, OnGap, Work};
use crate::disk_queue::DiskQueue;
use crate::dispatch::Dispatcher;
use crate::gap_pause::GapPause;
use crate::kept::kept_deletes;
use crate::monitor::Monitor;
use crate::network::Network;
use crate::positions::Positions;
use crate::progress::Progress;
use crate::reading::{Reading, flushed};
use crate::stats::Stats;
use crate::visibility::{READ_AHEAD, VisibilityBarrier};

pub use crate::clock::system_now_us;
pub use crate::ended::Ended;
pub use crate::plan::{Cluster, Plan};

/// The start position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// The checkpoint's position; the log's current end if there is no checkpoint.
    Checkpoint,
    /// The log's current end.
    Now,
    /// After this position.
    Position(Position),
    /// After a position that is no longer known.
    Unknown,
}

/// The pipeline's access to network, disk and log.
#[derive(Debug)]
pub struct World<N, K, S> {
    /// Makes connections to routers.
    pub network: Arc<N>,
    /// Stores the checkpoint.
    pub keep: Arc<K>,
    /// Stores work for unavailable clusters, in the order of the clusters; none where there is no
    /// disk for it.
    pub disk_queues: Vec<Option<S>>,
    /// Stores keys of transactions that do not fit in memory.
    pub key_files: KeyFiles,
    /// Reports events to the operator.
    pub log: fn(&str),
}

/// Follows the source until something ends it. `stop` ends it cleanly, with everything read
/// delivered if clusters answer.
///
/// # Errors
///
/// The reason, unless `stop` ended it.
pub async fn run<C, N, K, S>(
    mut source: C,
    plan: Plan,
    since: Since,
    world: World<N, K, S>,
    stats: Arc<Stats>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Ended>
where
    C: ChangeSource + 'static,
    N: Network,
    K: Keep,
    S: DiskQueue,
{
    stats.heard_us.store(system_now_us(), Relaxed);
    let Start { from, stored, owed } = begin(since, world.keep.as_ref(), &plan)?;
    let Clusters { mut tasks, backlogs, acks, monitors: _monitors } =
        Clusters::start(&plan, &world.network, world.disk_queues, &stats, world.log);
    let positions = Positions::default();
    let (confirm, confirmed) = watch::channel(None);
    let (deliver, delivered) = watch::channel(None);
    let (newest, newest_delivered) = watch::channel(None);
    let checkpoint_writer = CheckpointWriter {
        name: plan.name.clone(),
        keep: Arc::clone(&world.keep),
        stored,
        acks,
        positions: positions.clone(),
        confirm,
        newest,
        delivered: deliver,
        hand_over: HAND_OVER,
        every: plan.checkpoint_every,
        stats: Arc::clone(&stats),
        log: world.log,
    };
    let mut writing = JoinSet::new();
    writing.spawn(checkpoint_writer.run());
    let mut follower = Follower {
        plan: &plan,
        dispatcher: Dispatcher::new(backlogs, positions),
        confirmed,
        delivered,
        newest_delivered,
        files: world.key_files,
        stats: Arc::clone(&stats),
        owed: None,
        sent_flushes: 0,
        log_since: 0,
        progress: Progress::default(),
        gap_pause: GapPause::default(),
        log: world.log,
    };
    let (ended, is_over) = tokio::select! {
        ended = follower.follow(&mut source, from, owed) => {
            let is_over = ended.is_ok();
            (ended, is_over)
        }
        _ = stop.wait_for(|stop| *stop) => (Ok(()), false),
        ended = tasks.join_next() => (Err(ended_by(ended)), false),
        _ = writing.join_next() => (Err(Ended::Broken), false),
    };
    drop(follower);
    let delivered = async {
        while tasks.join_next().await.is_some() {}
        writing.join_next().await;
    };
    if is_over {
        // The changes already read cannot be read again.
        tokio::select! { () = delivered => {}, _ = stop.wait_for(|stop| *stop) => {} }
    } else {
        // Delivers the changes already read and saves their position, within a time limit.
        let _ = timeout(plan.limits.answer_within * 2, delivered).await;
    }
    let ended = with_missing(ended, source.lacking());
    if let Err(Ended::Lacking(_)) = &ended {
        // The checkpoint's task ends after the clusters' tasks, and would overwrite the note.
        tasks.shutdown().await;
        writing.join_next().await;
        checkpoint::note_lacking(world.keep.as_ref(), &plan.name).await?;
    }
    ended
}

/// The end of a run by the end of a cluster's task.
fn ended_by(task: Option<Result<Result<(), DamagedSpool>, JoinError>>) -> Ended {
    match task {
        Some(Ok(Err(damaged))) => Ended::Gap(damaged.to_string()),
        _ => Ended::Broken,
    }
}

/// The end of a run, which is one for missing changes if the log may lack some.
fn with_missing(ended: Result<(), Ended>, lacking: Option<String>) -> Result<(), Ended> {
    match (ended, lacking) {
        (Ok(()), Some(why)) => Err(Ended::Lacking(why)),
        (Err(ended), Some(why)) if !matches!(ended, Ended::Lacking(_)) => {
            Err(Ended::Lacking(format!("{ended}; {why}")))
        }
        (ended, _) => ended,
    }
}

/// How a run starts.
struct Start {
    from: From,
    /// The position that the checkpoint has, if it can stay as it is.
    stored: Option<Position>,
    /// A flush before anything is read.
    owed: Option<Flush>,
}

fn begin(since: Since, keep: &impl Keep, plan: &Plan) -> Result<Start, Ended> {
    let kept = checkpoint::read(keep, &plan.name);
    let (from, stored, is_lacking) = match since {
        Since::Checkpoint => match kept? {
            Some(Kept { position, is_lacking, .. }) => {
                let stored = (!is_lacking).then(|| position.clone());
                (From::Checked(Some(position)), stored, is_lacking)
            }
            None => (From::Checked(None), None, false),
        },
        Since::Now => (From::Checked(None), None, false),
        Since::Position(position) => (From::Checked(Some(position)), None, false),
        Since::Unknown => (From::Unknown, None, false),
    };
    let owed = match (is_lacking, &plan.on_gap) {
        (false, _) => None,
        (true, OnGap::Flush(flush)) => Some(flush.clone()),
        (true, OnGap::Stop) => {
            return Err(Ended::Lacking(
                "the last run stopped because changes were missing from the log".to_owned(),
            ));
        }
    };
    Ok(Start { from, stored, owed })
}

/// The tasks of the clusters, and the channels to them.
struct Clusters<S> {
    /// Ends with a reason when a cluster can no longer be served.
    tasks: JoinSet<Result<(), DamagedSpool>>,
    backlogs: Vec<Arc<Backlog<S>>>,
    /// The last delivery that each cluster acknowledged.
    acks: Vec<watch::Receiver<u64>>,
    /// Dropped at the end, which stops them.
    monitors: JoinSet<()>,
}

impl<S: DiskQueue> Clusters<S> {
    fn start<N: Network>(
        plan: &Plan,
        network: &Arc<N>,
        mut disk_queues: Vec<Option<S>>,
        stats: &Arc<Stats>,
        log: fn(&str),
    ) -> Self {
        let (tasks, monitors) = (JoinSet::new(), JoinSet::new());
        let mut all = Self { tasks, backlogs: Vec::new(), acks: Vec::new(), monitors };
        disk_queues.resize_with(plan.clusters.len(), || None);
        for (index, (cluster, disk_queue)) in plan.clusters.iter().zip(disk_queues).enumerate() {
            let routers = cluster.routers.clone();
            let (monitor, sampler) =
                Monitor::new(plan.monitor_one_in, routers, Arc::clone(stats), index);
            all.monitors.spawn(monitor.run(Arc::clone(network)));
            let (limits, has_disk_queue) = (plan.limits, disk_queue.is_some());
            let (window, away_after) = (limits.window_keys, limits.away_after);
            let (backlog, acked) =
                Backlog::new(disk_queue, window, away_after, Arc::clone(stats), index);
            if has_disk_queue {
                let writing = Arc::clone(&backlog).write(plan.on_gap.clone(), log);
                all.tasks.spawn(async move {
                    writing.await;
                    Ok(())
                });
            }
            let (routers, within) = (cluster.routers.clone(), limits.answer_within);
            let (kept, watch) =
                kept_deletes(Arc::clone(network), routers, within, Arc::clone(stats), index);
            all.monitors.spawn(watch.run());
            let target = Target {
                network: Arc::clone(network),
                routers: cluster.routers.clone(),
                is_compressed: cluster.is_compressed,
                limits,
                kept,
                on_gap: plan.on_gap.clone(),
                stats: Arc::clone(stats),
                index,
                log,
            };
            all.tasks.spawn(Destination::new(target, Arc::clone(&backlog), sampler).run());
            all.backlogs.push(backlog);
            all.acks.push(acked);
        }
        all
    }
}

/// The place where reading starts.
enum From {
    /// After this position; at the log's current end if there is none.
    Checked(Option<Position>),
    /// After an unknown position, so the caches miss changes.
    Unknown,
}

/// Reads the log.
struct Follower<'p, S: DiskQueue> {
    plan: &'p Plan,
    dispatcher: Dispatcher<S>,
    confirmed: watch::Receiver<Option<(u64, Position)>>,
    delivered: watch::Receiver<Option<(u64, Position)>>,
    newest_delivered: watch::Receiver<Option<(u64, Position)>>,
    files: KeyFiles,
    stats: Arc<Stats>,
    /// A flush for a gap whose changes may not be visible yet; it is repeated when the commit after
    /// it is visible.
    owed: Option<Flush>,
    /// The number of flushes that the readings sent to their barriers.
    sent_flushes: u64,
    /// The flush of the last gap that may have led to another log, in which older positions mean
    /// something else.
    log_since: u64,
    progress: Progress,
    gap_pause: GapPause,
    log: fn(&str),
}

impl<S: DiskQueue> Follower<'_, S> {
    async fn follow(
        &mut self,
        source: &mut impl ChangeSource,
        from: From,
        owed: Option<Flush>,
    ) -> Result<(), Ended> {
        let mut from = match from {
            From::Checked(from) => self.open(source, from).await?,
            From::Unknown => {
                let why = "another invalidator worked before, and how far it came is not known";
                self.refused(source, SourceError::Purged(why.to_owned())).await?
            }
        };
        if let Some(flush) = owed {
            (self.log)(&format!(
                "warning: the log lacked changes; every cluster is {}",
                flushed(&flush)
            ));
            self.dispatcher.push(Work::Flush(flush), system_now_us(), Instant::now(), false).await;
        }
        self.dispatcher.pass(from.clone());
        // The position is saved before anything is read, so that the next start after an early end
        // does not start later. The exception is a gap found at once, whose flush comes first.
        if self.dispatcher.seq == 0 && self.confirmed.wait_for(Option::is_some).await.is_err() {
            return Err(Ended::Broken);
        }
        let mut pause = self.plan.limits.retry_first;
        loop {
            let began = Instant::now();
            let error = self.read(source, from.clone()).await?;
            self.owe_unsent_flushes();
            self.stats.source_connected.store(false, Relaxed);
            match &error {
                SourceError::Over => return Ok(()),
                SourceError::Ended(_) => {}
                _ => self.progress.broke(),
            }
            from = self.dispatcher.passed.clone().unwrap_or(from);
            // A sender that has delivered everything may go.
            if matches!(error, SourceError::Ended(_)) {
                (self.log)(&format!("{error}; restarting from position {from}"));
            } else {
                (self.log)(&format!("warning: {error}; restarting from position {from}"));
            }
            // A connection that repeatedly breaks at once must not be retried without a pause.
            pause = if began.elapsed() < self.plan.limits.retry_max {
                (pause * 2).min(self.plan.limits.retry_max)
            } else {
                self.plan.limits.retry_first
            };
            sleep(pause).await;
            from = match error {
                SourceError::Lost(_) | SourceError::Ended(_) => {
                    self.open(source, Some(from)).await?
                }
                error => self.refused(source, error).await?,
            };
        }
    }

    /// Reads from the source's position until it fails, and returns the failure.
    async fn read(
        &mut self,
        source: &mut impl ChangeSource,
        from: Position,
    ) -> Result<SourceError, Ended> {
        let limits = self.plan.limits;
        let (reads, passing) = mpsc::channel(READ_AHEAD);
        let (stats, log) = (Arc::clone(&self.stats), self.log);
        let barrier =
            VisibilityBarrier::new(&mut self.dispatcher, source.probe(), limits, stats, log);
        let mut reading = Reading {
            plan: self.plan,
            files: &self.files,
            reads,
            ahead: Arc::new(Semaphore::new(limits.window_keys)),
            confirmed: match self.plan.is_shared {
                true => &mut self.delivered,
                false => &mut self.confirmed,
            },
            newest_delivered: &mut self.newest_delivered,
            log_since: self.log_since,
            stats: &self.stats,
            owed: &mut self.owed,
            sent_flushes: &mut self.sent_flushes,
            progress: &mut self.progress,
            log: self.log,
        };
        let mut passing = pin!(barrier.pass(passing));
        let checks = source.checks();
        let reporting = async {
            match checks {
                Some(checks) => checks.report(&self.stats, log).await,
                None => pending().await,
            }
        };
        let ended = tokio::select! {
            ended = reading.read(source, from) => ended,
            never = reporting => match never {},
            Err(error) = &mut passing => Ok(unreadable(&error)),
        };
        drop(reading);
        match &ended {
            // Changes read before the end are delivered if they become visible soon.
            Err(_) => drop(timeout(limits.answer_within, passing).await),
            // It is not read again.
            Ok(SourceError::Over) => {
                if let Err(error) = passing.await {
                    return Err(Ended::Wrong(unreadable(&error).to_string()));
                }
            }
            // Its sender may discard it.
            Ok(SourceError::Ended(_)) => {
                if let Err(error) = passing.await {
                    return Ok(unreadable(&error));
                }
            }
            Ok(_) => {}
        }
        ended
    }

    /// The barrier of a broken connection may have ended before a flush left it.
    fn owe_unsent_flushes(&mut self) {
        let left = self.dispatcher.flushes;
        if std::mem::replace(&mut self.sent_flushes, left) > left
            && let OnGap::Flush(flush) = &self.plan.on_gap
        {
            self.owed = Some(flush.clone());
        }
    }

    /// Connects, however long it takes.
    async fn open(
        &mut self,
        source: &mut impl ChangeSource,
        from: Option<Position>,
    ) -> Result<Position, Ended> {
        let mut pause = self.plan.limits.retry_first;
        loop {
            match source.open(from.as_ref()).await {
                Ok(position) => return Ok(self.opened(source, position)),
                Err(SourceError::Lost(why)) => (self.log)(&format!("warning: {why}; trying again")),
                // The log lacks what is committed until the server is repaired.
                Err(SourceError::Lacking(why)) if from.is_some() => {
                    return Err(Ended::Lacking(why));
                }
                Err(error) => return self.refused(source, error).await,
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.plan.limits.retry_max);
        }
    }

    /// Starts at the current end after a part of the log was lost, if the settings allow it.
    async fn refused(
        &mut self,
        source: &mut impl ChangeSource,
        error: SourceError,
    ) -> Result<Position, Ended> {
        let why = match error {
            SourceError::Purged(why) => why,
            error => return Err(Ended::Wrong(error.to_string())),
        };
        self.stats.gaps.fetch_add(1, Relaxed);
        let OnGap::Flush(flush) = self.plan.on_gap.clone() else { return Err(Ended::Purged(why)) };
        let pause = self.gap_pause.before_flush();
        if !pause.is_zero() {
            (self.log)(&format!(
                "warning: {why}; another gap was less than a minute ago, so the next flush waits {pause:?}"
            ));
            sleep(pause).await;
        }
        let mut pause = self.plan.limits.retry_first;
        let position = loop {
            match source.open(None).await {
                Ok(position) => break self.opened(source, position),
                Err(SourceError::Lost(why)) => (self.log)(&format!("warning: {why}; trying again")),
                Err(SourceError::Lacking(why)) => return Err(Ended::Lacking(why)),
                Err(error) => return Err(Ended::Wrong(error.to_string())),
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.plan.limits.retry_max);
        };
        (self.log)(&format!(
            "warning: {why}; every cluster is {}, and reading goes on at {position}",
            flushed(&flush)
        ));
        // The position was read before the flush, so values cached after it are not older, except
        // those of the commits before the position that others do not see yet.
        self.owed = Some(flush.clone());
        self.dispatcher.push(Work::Flush(flush), system_now_us(), Instant::now(), false).await;
        self.dispatcher.pass(position.clone());
        self.log_since = self.dispatcher.seq;
        self.gap_pause.resumed();
        Ok(position)
    }

    fn opened(&mut self, source: &impl ChangeSource, position: Position) -> Position {
        self.progress.opened(&position);
        self.stats.source_connects.fetch_add(1, Relaxed);
        let at = source.server().map(|server| format!(" at {server}")).unwrap_or_default();
        (self.log)(&format!("reading from {position}{at}"));
        position
    }
}

/// The keys of a transaction must be read from the log again.
fn unreadable(error: &io::Error) -> SourceError {
    SourceError::Lost(format!("the keys of a large transaction, on the disk: {error}"))
}
