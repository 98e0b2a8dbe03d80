//! Delivery from the disk, one chunk at a time. Refused parts of a chunk are queued last, so that
//! they delay nothing.
//!
//! The atomics here are counters for `stats`. Relaxed is enough: no other data depends on them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use tokio::time::{Instant, sleep, sleep_until};

use super::{Destination, oldest_us};
use crate::clock::older;
use crate::deferred::Deferred;
use crate::delivery::{Delivery, Flush, OnGap, Work};
use crate::disk_queue::{Chunk, DiskQueue};
use crate::network::Network;
use crate::target::DamagedSpool;

impl<N: Network, S: DiskQueue> Destination<N, S> {
    /// The oldest chunk of the disk, until all of it is delivered or refused.
    pub(super) async fn disk_turn(&mut self) -> Result<(), DamagedSpool> {
        let chunk = match self.backlog.read().await {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return Ok(()),
            Err(error) => {
                self.own().fail(&format!("the spool: {error}"));
                self.backlog.until_written().await;
                return Ok(());
            }
        };
        let Some(last) = chunk.records.last().map(|(number, ..)| *number) else {
            self.backlog.until_written().await;
            return Ok(());
        };
        let deliveries = self.deliveries(chunk)?;
        let committed_us = oldest_us(&deliveries);
        if committed_us != 0 && committed_us <= self.refused_us {
            // The refused work is in this chunk and is retried.
            self.refused_us = 0;
        }
        self.deliver(&deliveries).await;
        while !self.repeats.is_empty() {
            sleep_until(self.next_turn()).await;
            self.again().await;
        }
        let deferred = std::mem::take(&mut self.deferred);
        let since_us = refused_since(&deferred, &deliveries);
        self.refused_us = older(self.refused_us, since_us);
        let left = left(deferred, since_us);
        let is_left = !left.is_empty();
        if !is_left && self.refused_us == 0 {
            self.own().deferred.store(0, Relaxed);
        }
        self.note_oldest(0);
        self.backlog.acknowledge_chunk(last, left).await;
        if is_left {
            sleep(self.target.limits.retry_first * 4).await;
        }
        Ok(())
    }

    /// A chunk's records as deliveries, after a flush if some are lost.
    fn deliveries(&self, chunk: Chunk) -> Result<Vec<Arc<Delivery>>, DamagedSpool> {
        let read_at = Instant::now();
        // Record numbers start at 0, delivery numbers at 1.
        let delivery = |(number, work, committed_us)| {
            // Records do not store whether it was visible.
            Arc::new(Delivery { seq: number + 1, work, committed_us, read_at, is_seen: false })
        };
        let mut deliveries: Vec<_> = chunk.records.into_iter().map(delivery).collect();
        if chunk.lost > 0 {
            let (seq, work) = (deliveries[0].seq, Work::Flush(self.lost()?));
            let flush = Delivery { seq, work, committed_us: 0, read_at, is_seen: false };
            deliveries.insert(0, Arc::new(flush));
        }
        Ok(deliveries)
    }

    /// The flush that replaces deliveries lost on the disk.
    fn lost(&self) -> Result<Flush, DamagedSpool> {
        let own = self.own();
        let why = DamagedSpool { cluster: own.name.clone() };
        own.fail(&why.to_string());
        self.target.stats.gaps.fetch_add(1, Relaxed);
        match &self.target.on_gap {
            OnGap::Flush(flush) => {
                (self.target.log)(&format!("warning: {why}; the cluster is flushed instead"));
                Ok(flush.clone())
            }
            OnGap::Stop => Err(why),
        }
    }
}

/// The oldest commit of refused work, in microseconds since 1970; 0 if unknown.
fn refused_since(deferred: &Deferred, deliveries: &[Arc<Delivery>]) -> u64 {
    let keys = deferred.keys.iter().map(|(seq, _)| *seq);
    let seqs = keys.chain(deferred.flushes.iter().map(|(seq, _)| *seq));
    let refused = seqs.filter_map(|seq| {
        let at = deliveries.binary_search_by_key(&seq, |delivery| delivery.seq).ok()?;
        deliveries.get(at)
    });
    refused.fold(0, |oldest, delivery| older(oldest, delivery.committed_us))
}

/// The deliveries that replace refused work.
fn left(deferred: Deferred, committed_us: u64) -> Vec<Arc<Delivery>> {
    let read_at = Instant::now();
    let left = |work| Arc::new(Delivery { seq: 0, work, committed_us, read_at, is_seen: false });
    let keys: Vec<Bytes> = deferred.keys.into_iter().map(|(_, key)| key).collect();
    let keys = (!keys.is_empty()).then_some(Work::Delete(keys));
    let flushes = deferred.flushes.into_iter().map(|(_, flush)| Work::Flush(flush));
    keys.into_iter().chain(flushes).map(left).collect()
}
