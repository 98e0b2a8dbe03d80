//! Batches in flight to a router, one after the other, on one connection.
//!
//! ```text
//!     backlog -> feed -> written, not answered (up to IN_FLIGHT groups) -> settle, in order
//!                            |  the connection fails, or a server refuses: no new ones; what is
//!                            +-> left is delivered one by one
//! ```
//!
//! The router answers in order, and executes deletes of one key in the order of arrival.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncBufRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};

use super::{Destination, answer};
use crate::backlog::Backlog;
use crate::batch::{self, BatchError, Quiet};
use crate::compressed::Packer;
use crate::delivery::{Delivery, Work};
use crate::disk_queue::DiskQueue;
use crate::monitor::Sampler;
use crate::network::Network;
use crate::target::Limits;

/// Groups that may be written and unanswered. At a round trip of 80 ms, with a thousand keys in
/// each, that is 400,000 keys per second.
const IN_FLIGHT: usize = 32;

/// Deliveries that are written together.
pub(super) struct Group {
    pub(super) deliveries: Vec<Arc<Delivery>>,
    /// Each key once, with its delivery.
    pub(super) keys: Vec<(u64, Bytes)>,
    /// Keys per batch.
    batch_keys: usize,
    /// The keys to read before their delete.
    sampler: Sampler,
}

impl Group {
    fn of(deliveries: Vec<Arc<Delivery>>, limits: &Limits, sampler: &Sampler) -> Self {
        let mut seen = HashSet::new();
        let mut keys = Vec::new();
        for delivery in &deliveries {
            let fresh = delivery.keys().iter().filter(|key| seen.insert(*key));
            keys.extend(fresh.map(|key| (delivery.seq, key.clone())));
        }
        Self { deliveries, keys, batch_keys: limits.batch_keys.max(1), sampler: sampler.clone() }
    }

    fn batches(&self) -> impl Iterator<Item = &[(u64, Bytes)]> {
        self.keys.chunks(self.batch_keys)
    }

    /// The bytes of a batch.
    fn text(&self, batch: &[(u64, Bytes)]) -> Vec<u8> {
        let keys: Vec<&Bytes> = batch.iter().map(|(_, key)| key).collect();
        let sampled: Vec<&Bytes> =
            keys.iter().copied().filter(|key| self.sampler.takes(key)).collect();
        batch::quiet_text(&keys, &sampled)
    }

    fn has_flush(&self) -> bool {
        self.deliveries.iter().any(|delivery| matches!(delivery.work, Work::Flush(_)))
    }
}

/// A group whose batches were answered, with each answer.
type Answered = (Group, Vec<Quiet>);

/// The rest when no more groups are written.
#[derive(Default)]
struct Left {
    /// Groups with a refusal or a flush, and all after them.
    answered: Vec<Answered>,
    /// Groups without all of their answers.
    unanswered: Vec<Group>,
    error: Option<BatchError>,
}

impl<N: Network, S: DiskQueue> Destination<N, S> {
    /// Sends work from memory until something else must be done: a server refused, the connection
    /// failed, a flush came, deletes must be repeated, memory moved to the disk, or no more work
    /// comes.
    pub(super) async fn stream(&mut self) {
        if let Err(error) = self.connected().await {
            self.note_oldest(self.backlog.oldest_us());
            self.failed(&error).await;
            return;
        }
        let Some(wire) = self.wire.take() else { return };
        let (reader, mut writer) = tokio::io::split(wire);
        let mut reader = BufReader::new(reader);
        let (sender, mut groups) = mpsc::channel(IN_FLIGHT);
        let stop = Notify::new();
        let (backlog, limits) = (Arc::clone(&self.backlog), self.target.limits);
        let sampler = self.sampler.clone();
        let mut packer = self.packer.take();
        let mut left = {
            let out = Out { writer: &mut writer, packer: packer.as_mut() };
            let feed = feed(&backlog, limits, &sampler, out, sender, &stop);
            let settle = self.settle(&mut reader, &mut groups, &stop);
            tokio::pin!(feed, settle);
            tokio::select! {
                left = &mut settle => left,
                () = &mut feed => settle.await,
            }
        };
        self.packer = packer;
        if left.error.is_none() && reader.buffer().is_empty() {
            self.wire = Some(reader.into_inner().unsplit(writer));
        } else {
            let said = || BatchError::Unexpected("more than the answers".to_owned());
            let error = left.error.take().unwrap_or_else(said);
            self.failed(&error).await;
        }
        for (group, answers) in left.answered {
            self.settle_slowly(group, answers).await;
        }
        for group in left.unanswered {
            if self.is_valid() {
                self.deliver(&group.deliveries).await;
            }
        }
    }

    /// Reads the answers to groups in their order.
    async fn settle<R>(
        &mut self,
        reader: &mut R,
        groups: &mut mpsc::Receiver<Group>,
        stop: &Notify,
    ) -> Left
    where
        R: AsyncBufRead + Unpin,
    {
        let mut left = Left::default();
        loop {
            let due = self.next_turn();
            if Instant::now() >= due {
                stop.notify_one();
            }
            let group = match timeout_at(due, groups.recv()).await {
                Ok(group) => group,
                Err(_) => {
                    stop.notify_one();
                    groups.recv().await
                }
            };
            let Some(group) = group else { return left };
            let oldest_us = group.deliveries.first().map_or(0, |first| first.committed_us);
            self.note_oldest(oldest_us);
            let within = self.target.limits.answer_within;
            let answers = match answers(within, reader, &group).await {
                Ok(answers) => answers,
                Err(error) => {
                    left.error = Some(error);
                    left.unanswered.push(group);
                    groups.close();
                    while let Some(group) = groups.recv().await {
                        left.unanswered.push(group);
                    }
                    return left;
                }
            };
            let is_done = |quiet: &Quiet| quiet.refused.is_none() && !quiet.has_kept;
            let is_plain = answers.iter().all(is_done) && !group.has_flush();
            if is_plain && left.answered.is_empty() {
                self.sample_group(&group, &answers);
                self.finish_group(&group);
            } else {
                stop.notify_one();
                left.answered.push((group, answers));
            }
        }
    }

    /// Sends the batches one after the other, for a group with a refusal or a flush.
    async fn settle_slowly(&mut self, group: Group, answers: Vec<Quiet>) {
        if !self.is_valid() {
            return;
        }
        self.note_oldest(group.deliveries.first().map_or(0, |first| first.committed_us));
        self.sample_group(&group, &answers);
        for (batch, quiet) in group.batches().zip(answers) {
            if quiet.refused.is_none() && !quiet.has_kept {
                continue;
            }
            let keys: Vec<(u64, &Bytes)> = batch.iter().map(|(seq, key)| (*seq, key)).collect();
            if let Err(error) = self.refused(&keys, quiet.refused).await {
                self.failed(&error).await;
                self.send_all(&keys, &[]).await;
            }
        }
        let oldest_us = group.deliveries.first().map_or(0, |first| first.committed_us);
        self.deferred.note_age(oldest_us);
        self.flush_group(&group.deliveries).await;
        self.finish_group(&group);
    }

    fn sample_group(&self, group: &Group, answers: &[Quiet]) {
        for (batch, quiet) in group.batches().zip(answers) {
            let sampled = batch.iter().filter(|(_, key)| self.sampler.takes(key));
            let (seqs, keys): (Vec<u64>, Vec<&Bytes>) =
                sampled.map(|(seq, key)| (*seq, key)).unzip();
            self.sample(&seqs, &keys, &quiet.before, &group.deliveries);
        }
    }

    fn finish_group(&mut self, group: &Group) {
        for batch in group.batches() {
            self.sent(batch.len());
        }
        if self.is_valid() {
            let keys = group.keys.iter().map(|(seq, key)| (*seq, key)).collect();
            self.repeat_later(&group.deliveries, keys);
            self.finish(&group.deliveries);
        }
    }
}

/// The answers to a group's batches.
async fn answers<R>(
    within: Duration,
    reader: &mut R,
    group: &Group,
) -> Result<Vec<Quiet>, BatchError>
where
    R: AsyncBufRead + Unpin,
{
    let mut answers = Vec::new();
    for batch in group.batches() {
        let sampled = batch.iter().filter(|(_, key)| group.sampler.takes(key)).count();
        answers.push(answer(within, batch::quiet_answer(reader, sampled)).await?);
    }
    Ok(answers)
}

/// The sending side of a connection to a router.
struct Out<'a, W> {
    writer: &'a mut W,
    packer: Option<&'a mut Packer>,
}

impl<W: AsyncWrite + Unpin> Out<'_, W> {
    async fn write(&mut self, batch: Vec<u8>) -> io::Result<()> {
        let batch = match &mut self.packer {
            Some(packer) => packer.pack(batch)?,
            None => batch,
        };
        self.writer.write_all(&batch).await
    }
}

/// Writes groups until it is stopped, the connection fails, a flush comes, or no more work comes.
async fn feed<S: DiskQueue>(
    backlog: &Backlog<S>,
    limits: Limits,
    sampler: &Sampler,
    mut out: Out<'_, impl AsyncWrite + Unpin>,
    groups: mpsc::Sender<Group>,
    stop: &Notify,
) {
    let far = || Instant::now() + Duration::from_secs(3600);
    loop {
        let is_there = tokio::select! {
            biased;
            () = stop.notified() => return,
            is_there = backlog.wait_for_work(far()) => is_there,
        };
        if !is_there {
            return;
        }
        let until = Instant::now() + limits.batch_wait;
        backlog.until_waiting(limits.batch_keys, until).await;
        // The receiver is gone when it saw the connection fail.
        let Ok(permit) = groups.reserve().await else { return };
        let deliveries = backlog.take(limits.batch_keys, limits.batch_bytes);
        if deliveries.is_empty() {
            return;
        }
        let group = Group::of(deliveries, &limits, sampler);
        let texts: Vec<Vec<u8>> = group.batches().map(|batch| group.text(batch)).collect();
        let has_flush = group.has_flush();
        permit.send(group);
        for text in texts {
            if out.write(text).await.is_err() {
                return;
            }
        }
        if out.writer.flush().await.is_err() || has_flush {
            return;
        }
    }
}
