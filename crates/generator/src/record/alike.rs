//! Requests that were sent together and answered together with equal answers: one entry of each
//! histogram.

use super::{Moment, Record};
use crate::waiting::{Reply, Waiting};
use crate::wire::Op;

/// A number of them.
#[derive(Clone, Debug)]
pub(super) struct Alike {
    count: u32,
    op: Op,
    keys: u32,
    sent_bytes: u32,
    intended: u64,
    sent: u64,
    reply: Reply,
    moment: Moment,
}

impl Alike {
    #[inline]
    pub(super) fn new(request: &Waiting, reply: Reply, count: u32, moment: Moment) -> Self {
        let Waiting { op, keys, sent_bytes, intended, sent, .. } = *request;
        Self { count, op, keys, sent_bytes, intended, sent, reply, moment }
    }

    /// Adds `next`, if it is equal to these.
    #[inline]
    pub(super) fn takes(&mut self, next: &Self) -> bool {
        let is_like = (self.intended, self.sent, self.moment.now)
            == (next.intended, next.sent, next.moment.now)
            && (self.op, self.keys, self.sent_bytes) == (next.op, next.keys, next.sent_bytes)
            && self.reply == next.reply;
        if is_like {
            self.count += next.count;
        }
        is_like
    }

    /// Adds these to the record, if they belong to the measurement.
    pub(super) fn count_in(&self, record: &mut Record) {
        let (moment, times) = (self.moment, u64::from(self.count));
        let (begin, end) = moment.measure;
        // Throughput counts by the time of the answer.
        if (begin..end).contains(&moment.now) {
            record.second(moment.now - begin).requests += times;
            record.of(self.op).in_time += times;
        }
        let at = if moment.is_open { self.intended } else { moment.now };
        if !(begin..end).contains(&at) {
            return;
        }
        let latency = moment.now.saturating_sub(self.intended);
        record.second(at - begin).latency.saturating_record_n(latency, self.count);
        let op = record.of(self.op);
        op.requests += times;
        op.keys += u64::from(self.keys) * times;
        op.hits += u64::from(self.reply.hits) * times;
        op.refused += u64::from(self.reply.is_refused) * times;
        op.sent_bytes += u64::from(self.sent_bytes) * times;
        op.received_bytes += self.reply.bytes * times;
        op.latency.saturating_record_n(latency, times);
        if moment.is_open {
            let service = moment.now.saturating_sub(self.sent);
            op.service.saturating_record_n(service, times);
        }
    }
}
