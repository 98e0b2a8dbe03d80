//! From the log to every cluster, and back to the checkpoint.
//!
//! One task reads the log and fills the clusters' queues; each cluster has a task that empties its queue; one task keeps the
//! oldest position that all have acknowledged. A full queue stops the reading: the database's log is the buffer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::assemble::{Assembler, Output};
use crate::change::{ChangeSource, SourceError};
use crate::checkpoint::{self, Keep};
use crate::deliver::{Delivery, Destination, Limits, Network, Queue, Work};
use crate::keys::{Keyer, Rules};
use crate::monitor::Monitor;
use crate::position::Position;
use crate::stats::{Stats, lock};

/// What is done where the log cannot be understood or does not reach back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGap {
    /// Empty every cluster, then go on.
    Flush,
    /// End with an error; nothing is skipped.
    Stop,
}

/// A cluster and the addresses of its routers (or its one server).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Its name in stats.
    pub name: String,
    /// Tried in this order.
    pub routers: Vec<String>,
}

/// What a pipeline is made of, beside its source.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The source's name, which the checkpoint is of.
    pub name: String,
    /// Where keys come from.
    pub rules: Rules,
    /// Where deletes go.
    pub clusters: Vec<Cluster>,
    /// Limits of batches and waits.
    pub limits: Limits,
    /// What a gap does.
    pub on_gap: OnGap,
    /// One key in so many is monitored; 0 for none.
    pub monitor_one_in: u32,
    /// Bytes of keys that a transaction may have.
    pub transaction_bytes_max: usize,
    /// How often positions are kept.
    pub checkpoint_every: Duration,
}

/// Where to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// Where the checkpoint says; at the log's present end if there is none.
    Checkpoint,
    /// At the log's present end.
    Now,
    /// After this position.
    Position(Position),
}

/// Why a pipeline ended.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::CheckpointError),
    /// The log cannot be understood and `on_gap` says stop.
    #[error(
        "{0}; nothing after it was delivered. Either repair it, or set on_gap = \"flush\", which empties the caches and goes on"
    )]
    Gap(String),
    /// The log does not reach back and `on_gap` says stop.
    #[error(
        "{0}; changes in between are lost to the caches. Set on_gap = \"flush\", which empties the caches and goes on; or flush them \
         yourself and start with --since now"
    )]
    Purged(String),
    /// What no repetition changes.
    #[error("{0}")]
    Wrong(String),
    /// A task of the pipeline ended by itself, which it never should.
    #[error("a task of the pipeline ended")]
    Broken,
}

/// What the pipeline uses of the world.
#[derive(Debug)]
pub struct World<N, K> {
    /// Makes connections to routers.
    pub network: Arc<N>,
    /// Keeps the checkpoint.
    pub keep: Arc<K>,
    /// Says what happens to who operates it.
    pub log: fn(&str),
}

/// The system's clock.
#[must_use]
pub fn system_now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Follows the source until something ends it; `stop` ends it in order, with everything read delivered if clusters answer.
///
/// # Errors
///
/// Why it ended, when not by `stop`.
pub async fn run<S, N, K>(
    mut source: S,
    plan: Plan,
    since: Since,
    world: World<N, K>,
    stats: Arc<Stats>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Ended>
where
    S: ChangeSource + 'static,
    N: Network,
    K: Keep,
{
    let kept = checkpoint::read(world.keep.as_ref(), &plan.name);
    let from = match since {
        Since::Checkpoint => kept?,
        Since::Now => None,
        Since::Position(position) => Some(position),
    };
    let mut tasks = JoinSet::new();
    let mut monitors = JoinSet::new();
    let (mut queues, mut acks) = (Vec::new(), Vec::new());
    for (index, cluster) in plan.clusters.iter().enumerate() {
        let router = cluster.routers.first().cloned().unwrap_or_default();
        let (monitor, sampler) =
            Monitor::new(plan.monitor_one_in, router, Arc::clone(&stats), index);
        monitors.spawn(monitor.run(Arc::clone(&world.network)));
        let network = Arc::clone(&world.network);
        let (destination, queue, acked) = Destination::new(
            network,
            cluster.routers.clone(),
            plan.limits,
            Arc::clone(&stats),
            index,
            sampler,
        );
        tasks.spawn(destination.run());
        queues.push(queue);
        acks.push(acked);
    }
    let (positions, positions_seen) = mpsc::unbounded_channel();
    let (confirm, confirmed) = watch::channel(None);
    let keeper = Keeper {
        name: plan.name.clone(),
        keep: Arc::clone(&world.keep),
        acks,
        positions: positions_seen,
        confirm,
        every: plan.checkpoint_every,
        stats: Arc::clone(&stats),
        log: world.log,
    };
    tasks.spawn(keeper.run());
    let mut follower = Follower {
        plan: &plan,
        queues,
        positions,
        confirmed,
        stats: Arc::clone(&stats),
        seq: 0,
        log: world.log,
    };
    let ended = tokio::select! {
        ended = follower.follow(&mut source, from) => ended,
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        _ = tasks.join_next() => Err(Ended::Broken),
    };
    // Queues end with the follower; what was read is delivered and its position kept, within reason.
    drop(follower);
    let _ = tokio::time::timeout(plan.limits.answer_within * 2, async {
        while tasks.join_next().await.is_some() {}
    })
    .await;
    ended
}

/// Reads the log.
struct Follower<'p> {
    plan: &'p Plan,
    queues: Vec<Queue>,
    positions: mpsc::UnboundedSender<(u64, Position)>,
    confirmed: watch::Receiver<Option<Position>>,
    stats: Arc<Stats>,
    seq: u64,
    log: fn(&str),
}

impl Follower<'_> {
    async fn follow(
        &mut self,
        source: &mut impl ChangeSource,
        from: Option<Position>,
    ) -> Result<(), Ended> {
        let start = self.open(source, from).await?;
        // Kept before anything is read, so that an end before the first commit does not begin later the next time.
        self.send(Work::Delete(Vec::new()), start.clone(), 0).await?;
        if self.confirmed.wait_for(Option::is_some).await.is_err() {
            return Err(Ended::Broken);
        }
        let keyer = Keyer::new(self.plan.rules.clone());
        let mut assembler = Assembler::new(keyer, start, self.plan.transaction_bytes_max);
        let mut pause = self.plan.limits.retry_first;
        loop {
            let began = Instant::now();
            let error = self.read(source, &mut assembler).await?;
            self.stats.source_connected.store(false, Relaxed);
            let from = assembler.restart();
            (self.log)(&format!("{error}; reading again from {from}"));
            // A connection that is made and breaks at once, again and again, must not be made without a rest.
            pause = if began.elapsed() < self.plan.limits.retry_max {
                (pause * 2).min(self.plan.limits.retry_max)
            } else {
                self.plan.limits.retry_first
            };
            sleep(pause).await;
            let opened = match error {
                SourceError::Lost(_) => self.open(source, Some(from)).await?,
                error => self.refused(source, error).await?,
            };
            assembler.jump(opened);
        }
    }

    /// Reads until the source fails, and answers how.
    async fn read(
        &mut self,
        source: &mut impl ChangeSource,
        assembler: &mut Assembler,
    ) -> Result<SourceError, Ended> {
        self.stats.source_connected.store(true, Relaxed);
        loop {
            let event = match source.next().await {
                Ok(event) => event,
                Err(error) => return Ok(error),
            };
            for output in assembler.push(event) {
                match output {
                    Output::Commit { keys, position, committed_us } => {
                        self.stats.transactions.fetch_add(1, Relaxed);
                        self.stats.keys.fetch_add(keys.len() as u64, Relaxed);
                        self.send(Work::Delete(keys), position, committed_us).await?;
                    }
                    Output::Gap(why) => self.gap(why).await?,
                }
            }
            self.stats.keys_too_long.store(assembler.too_long, Relaxed);
            self.stats.prepared.store(assembler.prepared() as u64, Relaxed);
            self.stats.behind_bytes.store(source.behind_bytes().unwrap_or(u64::MAX), Relaxed);
            if self.confirmed.has_changed().unwrap_or(false)
                && let Some(position) = self.confirmed.borrow_and_update().as_ref()
            {
                source.confirm(position);
            }
        }
    }

    async fn gap(&mut self, why: String) -> Result<(), Ended> {
        self.stats.gaps.fetch_add(1, Relaxed);
        match self.plan.on_gap {
            OnGap::Stop => Err(Ended::Gap(why)),
            OnGap::Flush => {
                (self.log)(&format!("{why}; every cluster is flushed"));
                self.push(Delivery {
                    seq: self.seq + 1,
                    work: Work::Flush,
                    position: Position::Lsn(0),
                    committed_us: 0,
                    read_at: Instant::now(),
                })
                .await
            }
        }
    }

    async fn send(
        &mut self,
        work: Work,
        position: Position,
        committed_us: u64,
    ) -> Result<(), Ended> {
        let delivery =
            Delivery { seq: self.seq + 1, work, position, committed_us, read_at: Instant::now() };
        // A flush has no position of its own; it is kept with what follows it.
        let _ = self.positions.send((delivery.seq, delivery.position.clone()));
        self.push(delivery).await
    }

    async fn push(&mut self, delivery: Delivery) -> Result<(), Ended> {
        self.seq = delivery.seq;
        let delivery = Arc::new(delivery);
        for queue in &self.queues {
            if !queue.push(&delivery).await {
                return Err(Ended::Broken);
            }
        }
        Ok(())
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
                Ok(position) => return Ok(self.opened(position)),
                Err(SourceError::Lost(why)) => (self.log)(&format!("{why}; trying again")),
                Err(error) => return self.refused(source, error).await,
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.plan.limits.retry_max);
        }
    }

    /// Begins at the present end after a part of the log was lost, if that is wanted.
    async fn refused(
        &mut self,
        source: &mut impl ChangeSource,
        error: SourceError,
    ) -> Result<Position, Ended> {
        let why = match error {
            SourceError::Purged(why) => why,
            SourceError::Lost(why) | SourceError::Wrong(why) => return Err(Ended::Wrong(why)),
        };
        self.stats.gaps.fetch_add(1, Relaxed);
        if self.plan.on_gap == OnGap::Stop {
            return Err(Ended::Purged(why));
        }
        let mut pause = self.plan.limits.retry_first;
        let position = loop {
            match source.open(None).await {
                Ok(position) => break self.opened(position),
                Err(SourceError::Lost(why)) => (self.log)(&format!("{why}; trying again")),
                Err(error) => return Err(Ended::Wrong(error.to_string())),
            }
            sleep(pause).await;
            pause = (pause * 2).min(self.plan.limits.retry_max);
        };
        (self.log)(&format!("{why}; every cluster is flushed, and reading goes on at {position}"));
        // The position was read before the flush, so what is cached after it is not older.
        self.send(Work::Flush, position.clone(), 0).await?;
        Ok(position)
    }

    fn opened(&self, position: Position) -> Position {
        self.stats.source_connects.fetch_add(1, Relaxed);
        (self.log)(&format!("reading from {position}"));
        position
    }
}

/// Keeps the oldest position that every cluster has acknowledged.
struct Keeper<K> {
    name: String,
    keep: Arc<K>,
    acks: Vec<watch::Receiver<u64>>,
    positions: mpsc::UnboundedReceiver<(u64, Position)>,
    confirm: watch::Sender<Option<Position>>,
    every: Duration,
    stats: Arc<Stats>,
    log: fn(&str),
}

impl<K: Keep> Keeper<K> {
    /// Runs until every cluster's task is gone.
    async fn run(mut self) {
        let mut waiting: VecDeque<(u64, Position)> = VecDeque::new();
        loop {
            let is_over = self.acks.iter().all(|acked| acked.has_changed().is_err());
            let acked = self.acks.iter().map(|acked| *acked.borrow()).min().unwrap_or(0);
            while let Ok(next) = self.positions.try_recv() {
                waiting.push_back(next);
            }
            let done = waiting.partition_point(|(seq, _)| *seq <= acked);
            let last = waiting.drain(..done).next_back();
            if let Some((seq, position)) = last
                && !self.kept(&position).await
            {
                waiting.push_front((seq, position));
            }
            if is_over {
                return;
            }
            sleep(self.every).await;
        }
    }

    async fn kept(&self, position: &Position) -> bool {
        let text = checkpoint::text(&self.name, position);
        let keep = Arc::clone(&self.keep);
        let written = tokio::task::spawn_blocking(move || keep.replace(text.as_bytes())).await;
        match written {
            Ok(Ok(())) => {
                self.stats.checkpoints.fetch_add(1, Relaxed);
                *lock(&self.stats.position) = position.to_string();
                // Nobody listens any more at the end.
                let _ = self.confirm.send(Some(position.clone()));
                true
            }
            Ok(Err(error)) => {
                self.stats.checkpoint_failures.fetch_add(1, Relaxed);
                (self.log)(&format!("checkpoint {}: {error}", self.keep.path().display()));
                false
            }
            Err(_) => false,
        }
    }
}
