//! The delivery task of one cluster: sends batches of deletes, and retries those refused.
//!
//! ```text
//!     backlog -> gather (keys, bytes, time) -> quiet batch -> MN: acknowledged
//!                                                | a server behind the router is away
//!                                                +-> the batch again, each key with an answer;
//!                                                    refused keys are deferred, those that the
//!                                                    router keeps for later are watched
//! ```
//!
//! From memory, several batches are in flight at a time (`pipelined`).
//!
//! A failed connection keeps its batch and tries the next router. Deferred keys are retried after a
//! pause; until they are delivered or moved to the disk, nothing after them counts as acknowledged.
//! Deletes may be repeated and overtake each other: a delete of a key is correct at any time after
//! its commit.
//!
//! **A delete whose commit may not be visible yet is sent twice**, because a session that still
//! reads the old row would cache it after the first. The second follows after `repeat_after`, and
//! only then does the delete count as acknowledged. Where readers use lagging replicas, all deletes
//! may be sent twice (`repeats_seen`).
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

mod from_disk;
mod pipelined;

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::BufStream;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backlog::{Backlog, Source};
use crate::batch::{self, BatchError, Before, Hint, Wire};
use crate::clock::{micros, older};
use crate::compressed::Packer;
use crate::deferred::Deferred;
use crate::delivery::{Delivery, Flush, Work};
use crate::disk_queue::DiskQueue;
use crate::kept::Kept;
use crate::monitor::{Sample, Sampler};
use crate::network::Network;
use crate::stats::ClusterStats;

pub use crate::target::{DamagedSpool, Limits, Target};

/// The pause between attempts to reach a router while no deletes wait.
const REACH_EVERY: Duration = Duration::from_secs(1);

/// The pause before a refused delete is sent again, and between log lines about it.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One cluster's task.
pub struct Destination<N: Network, S> {
    target: Target<N>,
    backlog: Arc<Backlog<S>>,
    sampler: Sampler,
    next_router: usize,
    wire: Option<Wire<N::Stream>>,
    /// The packer for the router at the other end, if that accepts blocks.
    packer: Option<Packer>,
    pause: Duration,
    deferred: Deferred,
    /// Deletes to repeat: the time, their delivery, and the work.
    repeats: VecDeque<(Instant, u64, Work)>,
    /// The weight of `repeats` in a window of keys.
    repeats_weight: usize,
    /// The oldest commit on the disk with a part that a server refused, in microseconds since 1970;
    /// 0 if there is none, or it is unknown.
    refused_us: u64,
    /// The time from which refused deletes are logged again.
    tell_at: Instant,
    /// The last delivery whose keys are delivered or deferred.
    done: u64,
    /// The backlog's epoch of all this state; none for deliveries from the disk.
    epoch: Option<u64>,
}

impl<N: Network, S> std::fmt::Debug for Destination<N, S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Destination").field("routers", &self.target.routers).finish_non_exhaustive()
    }
}

impl<N: Network, S: DiskQueue> Destination<N, S> {
    /// A task for the deliveries in `backlog`.
    #[must_use]
    pub fn new(target: Target<N>, backlog: Arc<Backlog<S>>, sampler: Sampler) -> Self {
        Self {
            backlog,
            sampler,
            next_router: 0,
            wire: None,
            packer: None,
            pause: target.limits.retry_first,
            deferred: Deferred::default(),
            repeats: VecDeque::new(),
            repeats_weight: 0,
            refused_us: 0,
            tell_at: Instant::now(),
            done: 0,
            epoch: None,
            target,
        }
    }

    fn own(&self) -> &ClusterStats {
        &self.target.stats.clusters[self.target.index]
    }

    /// Delivers until no more deliveries come and memory is empty; those on the disk stay there.
    ///
    /// # Errors
    ///
    /// When the disk lost deliveries and the settings flush nothing for that.
    pub async fn run(mut self) -> Result<(), DamagedSpool> {
        loop {
            match self.backlog.source() {
                Source::Memory { epoch } => {
                    if self.epoch != Some(epoch) {
                        self.forget();
                        self.epoch = Some(epoch);
                    }
                    if !self.memory_turn().await {
                        return Ok(());
                    }
                }
                Source::Disk if self.backlog.is_closed() => return Ok(()),
                Source::Disk => {
                    if self.epoch.take().is_some() {
                        self.forget();
                    }
                    self.disk_turn().await?;
                }
            }
        }
    }

    /// Drops the taken deliveries, which are now on the disk.
    fn forget(&mut self) {
        self.deferred = Deferred::default();
        self.repeats.clear();
        (self.repeats_weight, self.refused_us) = (0, 0);
        self.done = 0;
        self.own().deferred.store(0, Relaxed);
    }

    /// True while the work in hand was not moved to the disk.
    fn is_valid(&self) -> bool {
        match (self.epoch, self.backlog.source()) {
            (Some(own), Source::Memory { epoch }) => own == epoch,
            (Some(_), Source::Disk) => false,
            (None, _) => true,
        }
    }

    /// Delivers from memory until repeats are due, and then sends those. False at the end.
    async fn memory_turn(&mut self) -> bool {
        let due = self.next_turn();
        let wake = if self.reach().await { due } else { due.min(Instant::now() + REACH_EVERY) };
        if self.backlog.wait_for_work(wake).await {
            if Instant::now() < wake {
                self.stream().await;
            }
        } else if !self.is_valid() {
            return true;
        } else if self.deferred.oldest.is_none() && self.repeats.is_empty() {
            return false;
        } else {
            sleep_until(due).await;
        }
        self.again().await;
        true
    }

    /// The time of the next repeat; none if there is nothing to repeat.
    fn next_turn(&self) -> Instant {
        // Repeats that are due at nearly the same time are sent together.
        let together = self.target.limits.repeat_after / 4;
        let repeat = self.repeats.front().map(|(due, ..)| *due + together);
        let due = [self.deferred.retry_at, repeat].into_iter().flatten().min();
        due.unwrap_or_else(|| Instant::now() + Duration::from_secs(3600))
    }

    /// Sends the due repeats.
    async fn again(&mut self) {
        let now = Instant::now();
        if self.next_turn() > now {
            return;
        }
        let mut keys: Vec<(u64, Bytes)> = Vec::new();
        let mut flushes = Vec::new();
        let mut refused = Deferred::default();
        if self.deferred.retry_at.is_some_and(|at| at <= now) {
            refused = std::mem::take(&mut self.deferred);
            keys.append(&mut refused.keys);
        }
        while let Some((_, seq, work)) = self.repeats.pop_front_if(|(due, ..)| *due <= now) {
            self.repeats_weight -= work.weight();
            match work {
                Work::Delete(more) => keys.extend(more.into_iter().map(|key| (seq, key))),
                Work::Flush(flush) => flushes.push((seq, flush)),
            }
        }
        let since_us = refused.oldest_us;
        let all: Vec<(u64, &Bytes)> = keys.iter().map(|(seq, key)| (*seq, key)).collect();
        self.send_all(&all, &[]).await;
        self.deferred.note_age(since_us);
        for (seq, flush) in flushes {
            self.flush_with_retries(seq, &flush, since_us).await;
        }
        self.flush_rest(refused.flushes, since_us).await;
        self.own().deferred.store(self.deferred.keys.len() as u64, Relaxed);
        self.note_oldest(0);
        self.acknowledge();
    }

    /// Delivers a batch, however long it takes, unless it moves to the disk in the meantime.
    async fn deliver(&mut self, deliveries: &[Arc<Delivery>]) {
        let oldest_us = oldest_us(deliveries);
        self.note_oldest(oldest_us);
        let mut seen = HashSet::new();
        let mut keys: Vec<(u64, &Bytes)> = Vec::new();
        for delivery in deliveries {
            let fresh = delivery.keys().iter().filter(|key| seen.insert(*key));
            keys.extend(fresh.map(|key| (delivery.seq, key)));
        }
        self.send_all(&keys, deliveries).await;
        self.deferred.note_age(oldest_us);
        self.flush_group(deliveries).await;
        if self.is_valid() {
            self.repeat_later(deliveries, keys);
            self.finish(deliveries);
        }
    }

    fn note_oldest(&self, committed_us: u64) {
        let refused_us = older(self.refused_us, self.deferred.oldest_us);
        self.own().oldest_us.store(older(committed_us, refused_us), Relaxed);
    }

    async fn flush_group(&mut self, deliveries: &[Arc<Delivery>]) {
        for delivery in deliveries {
            if let Work::Flush(flush) = &delivery.work {
                self.flush_with_retries(delivery.seq, flush, delivery.committed_us).await;
            }
        }
    }

    /// Sends keys, however long it takes, unless they move to the disk in the meantime.
    async fn send_all(&mut self, keys: &[(u64, &Bytes)], deliveries: &[Arc<Delivery>]) {
        for chunk in keys.chunks(self.target.limits.batch_keys.max(1)) {
            while self.is_valid()
                && let Err(error) = self.send(chunk, deliveries).await
            {
                self.failed(&error).await;
            }
        }
    }

    /// Flushes, however long it takes to find a router. A flush that misses an unreachable server
    /// is deferred: it delays nothing else and does not empty the other servers again.
    async fn flush_with_retries(&mut self, seq: u64, flush: &Flush, committed_us: u64) {
        while self.is_valid()
            && let Err(error) = self.flush(flush).await
        {
            if let BatchError::Refused(why) = error {
                self.own().fail(&why);
                self.defer_flush(seq, flush.clone(), committed_us);
                return;
            }
            self.failed(&error).await;
        }
    }

    /// Repeats flushes that did not reach every server, once every server is reachable.
    async fn flush_rest(&mut self, flushes: Vec<(u64, Flush)>, since_us: u64) {
        if flushes.is_empty() {
            return;
        }
        let within = self.target.limits.answer_within;
        let reached = match self.connected().await {
            Ok(wire) => answer(within, batch::reaches_all(wire)).await,
            Err(error) => Err(error),
        };
        if let Err(error) = &reached {
            self.failed(error).await;
        }
        for (seq, flush) in flushes {
            if matches!(reached, Ok(true)) {
                self.flush_with_retries(seq, &flush, since_us).await;
            } else {
                self.defer_flush(seq, flush, since_us);
            }
        }
    }

    fn defer_flush(&mut self, seq: u64, flush: Flush, committed_us: u64) {
        self.deferred.flush(seq, flush, self.target.limits.retry_max);
        self.deferred.note_age(committed_us);
    }

    fn repeat_later(&mut self, deliveries: &[Arc<Delivery>], keys: Vec<(u64, &Bytes)>) {
        let limits = &self.target.limits;
        let is_seen = deliveries.iter().all(|delivery| delivery.is_seen);
        if limits.repeat_after.is_zero() || is_seen && !limits.repeats_seen {
            return;
        }
        let due = Instant::now() + limits.repeat_after;
        if let Some((first, _)) = keys.first() {
            let first = *first;
            let keys = keys.into_iter().map(|(_, key)| key.clone()).collect();
            self.repeat(due, first, Work::Delete(keys));
        }
        for delivery in deliveries.iter().filter(|one| matches!(one.work, Work::Flush(_))) {
            self.repeat(due, delivery.seq, delivery.work.clone());
        }
    }

    fn repeat(&mut self, due: Instant, seq: u64, work: Work) {
        self.repeats_weight += work.weight();
        self.repeats.push_back((due, seq, work));
    }

    /// Sends one batch; keys that single servers refuse are deferred.
    async fn send(
        &mut self,
        keys: &[(u64, &Bytes)],
        deliveries: &[Arc<Delivery>],
    ) -> Result<(), BatchError> {
        let plain: Vec<&Bytes> = keys.iter().map(|(_, key)| *key).collect();
        let takes = |(_, key): &&(u64, &Bytes)| self.sampler.takes(key);
        let (seqs, sampled): (Vec<u64>, Vec<&Bytes>) =
            keys.iter().filter(takes).map(|(seq, key)| (*seq, *key)).unzip();
        let within = self.target.limits.answer_within;
        let wire = self.connected().await?;
        match answer(within, batch::quiet(wire, &plain, &sampled)).await {
            Ok(quiet) => {
                self.sample(&seqs, &sampled, &quiet.before, deliveries);
                if quiet.refused.is_some() || quiet.has_kept {
                    self.refused(keys, quiet.refused).await?;
                }
            }
            Err(error) => return Err(error),
        }
        self.sent(plain.len());
        Ok(())
    }

    /// Asks for each key of a batch that was not executed as a whole. Keys that servers refuse are
    /// deferred; keys that the router keeps are watched.
    async fn refused(
        &mut self,
        keys: &[(u64, &Bytes)],
        why: Option<String>,
    ) -> Result<(), BatchError> {
        // A kept delete is already kept.
        let hint = if why.is_some() { Hint::Executed } else { Hint::Now };
        let why = why.unwrap_or_else(|| "a router keeps deletes for a server".to_owned());
        self.own().fail(&why);
        self.own().retried.fetch_add(1, Relaxed);
        let plain: Vec<&Bytes> = keys.iter().map(|(_, key)| *key).collect();
        let within = self.target.limits.answer_within;
        let wire = self.connected().await?;
        let answers = answer(within, batch::with_replies(wire, &plain, hint)).await?;
        let by = Some(self.next_router % self.target.routers.len());
        let committed_us = self.own().oldest_us.load(Relaxed);
        for ((seq, key), answer) in keys.iter().zip(answers) {
            let Some(answer) = answer else { continue };
            if hint == Hint::Executed && !batch::is_kept(&answer) {
                self.defer(*seq, key, &answer);
                continue;
            }
            let kept = Kept { key: (*key).clone(), committed_us, by };
            if self.target.kept.try_send(kept).is_err() {
                self.own().kept_unwatched.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Records an answered batch.
    fn sent(&mut self, keys: usize) {
        self.pause = self.target.limits.retry_first;
        let own = self.own();
        own.batches.fetch_add(1, Relaxed);
        // A full histogram refuses the value; nothing depends on it.
        let _ = own.batch_keys.lock().record(keys as u64);
    }

    async fn flush(&mut self, flush: &Flush) -> Result<(), BatchError> {
        let within = self.target.limits.answer_within;
        let wire = self.connected().await?;
        answer(within, batch::flush(wire, flush)).await?;
        self.own().flushes.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Hands samples to the monitor. Repeated deletes have no delivery and count once.
    fn sample(
        &self,
        seqs: &[u64],
        sampled: &[&Bytes],
        before: &Before,
        deliveries: &[Arc<Delivery>],
    ) {
        for ((seq, key), cas) in seqs.iter().zip(sampled).zip(before) {
            let at = deliveries.binary_search_by_key(seq, |delivery| delivery.seq);
            if let Some(delivery) = at.ok().and_then(|at| deliveries.get(at)) {
                let sample = Sample { key: (*key).clone(), cas: *cas, read_at: delivery.read_at };
                self.sampler.take(sample, &self.own().monitor);
            }
        }
    }

    /// The connection, opened if there is none.
    async fn connected(&mut self) -> Result<&mut Wire<N::Stream>, BatchError> {
        if self.wire.is_none() {
            let router = &self.target.routers[self.next_router % self.target.routers.len()];
            let dialed =
                timeout(self.target.limits.answer_within, self.target.network.dial(router)).await;
            let stream = dialed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let stream = stream
                .map_err(|error| io::Error::new(error.kind(), format!("{router}: {error}")))?;
            let mut wire = BufStream::with_capacity(4096, 1 << 16, stream);
            self.packer = if self.target.is_compressed {
                answer(self.target.limits.answer_within, Packer::ask(&mut wire)).await?
            } else {
                None
            };
            self.wire = Some(wire);
            self.own().connected.store(true, Relaxed);
            self.own().compressed.store(self.packer.is_some(), Relaxed);
        }
        match &mut self.wire {
            Some(wire) => Ok(wire),
            None => Err(io::Error::from(io::ErrorKind::NotConnected).into()),
        }
    }

    /// Opens the connection before there is anything to send, so that an unreachable router is
    /// known before the first change. Returns false on failure.
    async fn reach(&mut self) -> bool {
        if self.wire.is_some() || self.backlog.is_closed() {
            return true;
        }
        let Err(error) = self.connected().await else { return true };
        self.next_router = self.next_router.wrapping_add(1);
        let own = self.own();
        own.connected.store(false, Relaxed);
        own.compressed.store(false, Relaxed);
        own.fail(&error.to_string());
        false
    }

    /// Drops the connection and pauses; the next attempt uses the next router.
    async fn failed(&mut self, error: &BatchError) {
        self.wire = None;
        self.next_router = self.next_router.wrapping_add(1);
        let own = self.own();
        own.connected.store(false, Relaxed);
        own.compressed.store(false, Relaxed);
        own.retried.fetch_add(1, Relaxed);
        own.fail(&error.to_string());
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(self.target.limits.retry_max);
    }

    fn defer(&mut self, seq: u64, key: &Bytes, answer: &str) {
        let pause = if batch::is_client_error(answer) {
            self.tell(key, answer);
            REFUSED_PAUSE
        } else {
            self.target.limits.retry_max.min(self.target.limits.retry_first * 4)
        };
        self.deferred.key(seq, key, pause);
        self.own().deferred.store(self.deferred.keys.len() as u64, Relaxed);
    }

    /// Logs that a delete is refused, which waiting may not fix.
    fn tell(&mut self, key: &Bytes, answer: &str) {
        let now = Instant::now();
        if now < self.tell_at {
            return;
        }
        self.tell_at = now + REFUSAL_LOG_INTERVAL;
        let (cluster, key) = (&self.own().name, key.escape_ascii());
        (self.target.log)(&format!(
            "warning: cluster {cluster}: the delete of '{key}' is answered '{answer}'; it is sent again \
             every {REFUSED_PAUSE:?}, and the position waits for it"
        ));
    }

    /// Records that everything in these deliveries is delivered or deferred.
    fn finish(&mut self, deliveries: &[Arc<Delivery>]) {
        let now = Instant::now();
        let own = self.own();
        {
            let mut delivery_us = own.delivery_us.lock();
            for delivery in deliveries {
                delivery_us.saturating_record(micros(now.duration_since(delivery.read_at)));
            }
        }
        let keys: usize = deliveries.iter().map(|delivery| delivery.keys().len()).sum();
        own.delivered.fetch_add(keys as u64, Relaxed);
        self.note_oldest(0);
        if let Some(last) = deliveries.last() {
            if last.committed_us > 0 {
                own.committed_us.store(last.committed_us, Relaxed);
            }
            self.done = last.seq;
        }
        self.acknowledge();
    }

    fn acknowledge(&self) {
        let Some(epoch) = self.epoch else { return };
        let deferred = self.deferred.oldest.map(|seq| seq - 1);
        let repeat = self.repeats.front().map(|(_, seq, _)| seq - 1);
        let acked = [deferred, repeat].into_iter().flatten().fold(self.done, u64::min);
        let again = self.repeats_weight + self.deferred.keys.len() + self.deferred.flushes.len();
        self.backlog.acknowledge(epoch, self.done, acked, again);
    }
}

/// The oldest commit of the deliveries, in microseconds since 1970; 0 if unknown. On the disk,
/// refused deletes stand after newer ones.
fn oldest_us(deliveries: &[Arc<Delivery>]) -> u64 {
    deliveries.iter().fold(0, |oldest, delivery| older(oldest, delivery.committed_us))
}

async fn answer<T>(
    within: Duration,
    asked: impl Future<Output = Result<T, BatchError>>,
) -> Result<T, BatchError> {
    let answered = timeout(within, asked).await;
    answered.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

#[cfg(test)]
mod held_up_tests;
#[cfg(test)]
mod tests;
