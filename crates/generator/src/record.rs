//! The record of a thread: counts and histograms, which add up exactly over threads and hosts.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::waiting::{Reply, Waiting};
use super::wire::Op;
use crate::number::fits;

mod alike;

use alike::Alike;

/// Minimum and maximum time in a histogram, in nanoseconds.
const NANOS: (u64, u64) = (100, 600_000_000_000);

/// All results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Of gets.
    pub gets: OpRecord,
    /// Of sets.
    pub sets: OpRecord,
    /// Gets and sets, cut into seconds.
    pub seconds: Vec<Second>,
    /// Open loop: how late requests were sent although a connection to their server was free when
    /// they were due, in nanoseconds.
    #[serde(with = "super::packed")]
    pub lag: Histogram<u64>,
    /// Requests without a reply at the end of the run; in the open loop, those due in the
    /// measurement, whose waiting counts as latency.
    pub unanswered: u64,
    /// Values that differ from the stored ones.
    pub wrong: u64,
    /// UDP requests without a reply.
    #[serde(default)]
    pub lost: u64,
    /// Reconnects.
    #[serde(default)]
    pub connects: u64,
    /// All answered requests, including those before and after the measurement.
    pub answered: u64,
    /// The last answered requests, not counted above yet.
    #[serde(skip)]
    alike: Option<Alike>,
}

/// The time of reading replies, in nanoseconds since the run's start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    /// Start and end of the measurement.
    pub(super) measure: (u64, u64),
    pub(super) is_open: bool,
}

/// The record of one kind of request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OpRecord {
    /// Answered requests; in the open loop, those due in the measurement, whenever they were
    /// answered.
    pub requests: u64,
    /// Requests answered in the measurement, whenever they were due.
    pub in_time: u64,
    /// Keys in them.
    pub keys: u64,
    /// Keys found.
    pub hits: u64,
    /// Requests refused by the server.
    pub refused: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// From the intended sending time to the last byte of the reply, in nanoseconds.
    #[serde(with = "super::packed")]
    pub latency: Histogram<u64>,
    /// From the actual sending time, in nanoseconds. In the closed loop, both are equal.
    #[serde(with = "super::packed")]
    pub service: Histogram<u64>,
}

/// One second of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Second {
    /// Requests answered in it.
    pub requests: u64,
    /// Latency, in nanoseconds, to two digits: of those requests, or in the open loop of those due
    /// in it.
    #[serde(with = "super::packed")]
    pub latency: Histogram<u32>,
}

/// A histogram of nanoseconds to three digits.
#[must_use]
pub fn nanoseconds() -> Histogram<u64> {
    histogram(3)
}

fn histogram<C: hdrhistogram::Counter>(digits: u8) -> Histogram<C> {
    // The bounds are constants that the crate accepts; a self-resizing histogram is equally good.
    Histogram::new_with_bounds(NANOS.0, NANOS.1, digits).unwrap_or_else(|_| {
        let mut any =
            Histogram::new(digits.min(5)).unwrap_or_else(|_| unreachable!("0 to 5 digits"));
        any.auto(true);
        any
    })
}

impl Default for Record {
    fn default() -> Self {
        Self {
            gets: OpRecord::default(),
            sets: OpRecord::default(),
            seconds: Vec::new(),
            lag: nanoseconds(),
            unanswered: 0,
            wrong: 0,
            lost: 0,
            connects: 0,
            answered: 0,
            alike: None,
        }
    }
}

impl Default for OpRecord {
    fn default() -> Self {
        Self {
            requests: 0,
            in_time: 0,
            keys: 0,
            hits: 0,
            refused: 0,
            sent_bytes: 0,
            received_bytes: 0,
            latency: nanoseconds(),
            service: nanoseconds(),
        }
    }
}

impl Record {
    /// The record of `op`.
    pub fn of(&mut self, op: Op) -> &mut OpRecord {
        match op {
            Op::Get => &mut self.gets,
            Op::Set => &mut self.sets,
        }
    }

    /// Adds `count` equal requests with equal answers if they belong to the measurement: in the
    /// closed loop by the time of the reply, in the open loop by their due time, whenever they were
    /// answered. Those answered in the measurement are the throughput, and counted separately.
    ///
    /// They are counted when a different one comes, or by [`Record::settle`]: the replies of a turn
    /// mostly answer requests of one earlier turn, and histograms are far apart in memory.
    #[inline]
    pub(super) fn keep(&mut self, request: &Waiting, reply: Reply, count: u32, moment: Moment) {
        self.answered += u64::from(count);
        let next = Alike::new(request, reply, count, moment);
        if !self.alike.as_mut().is_some_and(|last| last.takes(&next)) {
            self.settle();
            self.alike = Some(next);
        }
    }

    /// Counts the requests that [`Record::keep`] deferred: at the end of each turn, because a
    /// second is reported when it ends.
    #[inline]
    pub(super) fn settle(&mut self) {
        if let Some(alike) = self.alike.take() {
            alike.count_in(self);
        }
    }

    /// The second that contains `nanos` since the measurement's start.
    pub fn second(&mut self, nanos: u64) -> &mut Second {
        let index: usize = fits(nanos / 1_000_000_000);
        if self.seconds.len() <= index {
            let empty = || Second { requests: 0, latency: histogram(2) };
            self.seconds.resize_with(index + 1, empty);
        }
        &mut self.seconds[index]
    }

    /// Counts requests of the open loop that never had a reply: they were due `into` nanoseconds
    /// after the measurement's start, and waited at least `nanos`.
    pub(super) fn waited(&mut self, op: Op, into: u64, nanos: u64, count: u32) {
        self.of(op).latency.saturating_record_n(nanos, u64::from(count));
        self.second(into).latency.saturating_record_n(nanos, count);
    }

    /// Adds entries for each of the first `seconds` seconds, including those without answers.
    pub(super) fn cover(&mut self, seconds: u64) {
        if let Some(last) = seconds.checked_sub(1) {
            self.second(last.saturating_mul(1_000_000_000));
        }
    }

    /// Adds the results of another thread or host in the same run.
    pub fn merge(&mut self, other: &Self) {
        self.gets.merge(&other.gets);
        self.sets.merge(&other.sets);
        for (index, second) in other.seconds.iter().enumerate() {
            let mine = self.second(index as u64 * 1_000_000_000);
            mine.requests += second.requests;
            add(&mut mine.latency, &second.latency);
        }
        add(&mut self.lag, &other.lag);
        self.unanswered += other.unanswered;
        self.wrong += other.wrong;
        self.lost += other.lost;
        self.connects += other.connects;
        self.answered += other.answered;
    }

    /// Gets and sets together.
    #[must_use]
    pub fn total(&self) -> OpRecord {
        let mut total = self.gets.clone();
        total.merge(&self.sets);
        total
    }
}

impl OpRecord {
    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.in_time += other.in_time;
        self.keys += other.keys;
        self.hits += other.hits;
        self.refused += other.refused;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        add(&mut self.latency, &other.latency);
        add(&mut self.service, &other.service);
    }
}

/// Both have the same bounds, so nothing is lost.
fn add<C: hdrhistogram::Counter>(to: &mut Histogram<C>, from: &Histogram<C>) {
    to.add(from).unwrap_or_else(|_| unreachable!("histograms of one shape"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_records_add_up_to_one() {
        let (mut whole, mut merged) = (Record::default(), Record::default());
        for host in 0..8u64 {
            let mut part = Record::default();
            for n in 1..5_000u64 {
                let nanos = n * n * 37 + host * 1_000_003;
                for record in [&mut part, &mut whole] {
                    record.gets.requests += 1;
                    record.gets.latency.saturating_record(nanos);
                    record.second(nanos).requests += 1;
                    record.second(nanos).latency.saturating_record(nanos);
                }
            }
            // The form in which an agent sends it.
            let text = serde_json::to_string(&part).unwrap();
            merged.merge(&serde_json::from_str(&text).unwrap());
        }
        assert_eq!(merged.gets.latency, whole.gets.latency);
        assert_eq!(merged.gets.requests, whole.gets.requests);
        for (merged, whole) in merged.seconds.iter().zip(&whole.seconds) {
            assert_eq!(merged.latency, whole.latency);
        }
        let requests = |record: &Record| -> Vec<u64> {
            record.seconds.iter().map(|second| second.requests).collect()
        };
        assert_eq!(requests(&merged), requests(&whole));
    }
}
