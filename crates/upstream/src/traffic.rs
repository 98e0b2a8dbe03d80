//! A worker's traffic with clients and servers: numbers for statistics, which outlive servers and
//! configurations.
//!
//! One [`Traffic`] a worker, written by it alone; [`Snapshot`] is their sum.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::answer::MetaCode;
use proto::{Command, Failure};

use crate::counters::add;
use crate::reply::Outcome;

/// One of the events that are counted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Count {
    /// Requests of clients.
    Asked(Command),
    /// Of them, those that were answered with an error made here.
    FailedHere(Command),
    /// Those that were answered with a server's error.
    FailedThere(Command),
    /// Those whose item was there.
    Hit(Command),
    /// Those whose item was not there.
    Missed(Command),
    /// Requests for a server, whether it was asked or not, but those of [`Self::SentAside`].
    Sent(Command),
    /// Requests for a server behind another that failed, or of a shadow.
    SentAside(Command),
    /// Failures of [`Self::Sent`].
    Result(Failure),
    /// Failures of [`Self::SentAside`].
    ResultAside(Failure),
    /// Errors for clients, those who did not wait for their answer among them.
    RepliedFailure(Failure),
    /// Everything else.
    Event(Event),
}

/// Things that happen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Event {
    /// There is an answer for a client, and it is no error.
    RepliedWell,
    /// A client is answered with an error.
    RepliedError,
    /// A `cas` found another cas unique.
    CasExists,
    /// Requests that wait for room in the window: a level, not a count.
    Waiting,
    /// A request went on to another child after a failure, once for each request.
    Failover,
    /// All that were tried failed.
    FailoverFailed,
    /// The limit of failovers was reached.
    FailoverLimited,
    /// A failover in a fixed order; as in the names below, the policy that chose the child.
    FailoverInOrder,
    /// See [`Self::FailoverFailed`]; so are the others.
    FailoverInOrderFailed,
    /// `LeastFailuresPolicy`
    FailoverLeastFailures,
    /// See above.
    FailoverLeastFailuresFailed,
    /// `DeterministicOrderPolicy`
    FailoverDeterministic,
    /// See above.
    FailoverDeterministicFailed,
    /// `RendezvousPolicy`
    FailoverRendezvous,
    /// See above.
    FailoverRendezvousFailed,
    /// A lease-set went where its lease was given, which was not the first choice.
    LeaseSetRedirected,
    /// A `DevNullRoute` swallowed a request.
    DevNull,
    /// Latency was added before a request.
    DelayedBefore,
    /// Latency was added after it.
    DelayedAfter,
    /// Latency was added up to a total.
    DelayedTotal,
    /// Gets that had to wait for an `OutstandingLimitRoute`.
    QueuedGets,
    /// The requests that waited before them, in sum.
    QueuedGetsAhead,
    /// Their waits in sum, in microseconds.
    QueuedGetsUs,
    /// Other commands that had to wait.
    QueuedUpdates,
    /// The requests that waited before them, in sum.
    QueuedUpdatesAhead,
    /// Their waits in sum, in microseconds.
    QueuedUpdatesUs,
    /// Deletes that were handed to the spool.
    Spooled,
    /// Of them, those that are on the disk.
    SpooledWell,
    /// The time that this took in sum, in microseconds.
    SpooledUs,
    /// A copy that nobody waits for was dropped, since others held too much.
    CopyDropped,
    /// A pool began to ask servers that are knocked out.
    FailOpenEntered,
    /// It ended that.
    FailOpenExited,
}

const OPS: usize = Command::Version as usize + 1;
const FAILURES: usize = Failure::ALL.len();
const RESULTS_AT: usize = 7 * OPS;
const EVENTS_AT: usize = RESULTS_AT + 3 * FAILURES;
const LEN: usize = EVENTS_AT + Event::FailOpenExited as usize + 1;

impl Count {
    #[inline]
    const fn index(self) -> usize {
        match self {
            Self::Asked(op) => op as usize,
            Self::FailedHere(op) => OPS + op as usize,
            Self::FailedThere(op) => 2 * OPS + op as usize,
            Self::Sent(op) => 3 * OPS + op as usize,
            Self::SentAside(op) => 4 * OPS + op as usize,
            Self::Hit(op) => 5 * OPS + op as usize,
            Self::Missed(op) => 6 * OPS + op as usize,
            Self::Result(failure) => RESULTS_AT + failure as usize,
            Self::ResultAside(failure) => RESULTS_AT + FAILURES + failure as usize,
            Self::RepliedFailure(failure) => RESULTS_AT + 2 * FAILURES + failure as usize,
            Self::Event(event) => EVENTS_AT + event as usize,
        }
    }

    /// The count of a client's answer that says whether an item was there.
    #[inline]
    const fn of_answer(op: Command, outcome: Outcome) -> Option<Self> {
        match outcome {
            Outcome::Deleted
            | Outcome::Found
            | Outcome::Number
            | Outcome::Stored
            | Outcome::Touched
            | Outcome::Meta(MetaCode::Hd | MetaCode::Va) => Some(Self::Hit(op)),
            Outcome::Lease | Outcome::NotFound | Outcome::Meta(MetaCode::En | MetaCode::Nf) => {
                Some(Self::Missed(op))
            }
            Outcome::Exists => Some(Self::Event(Event::CasExists)),
            Outcome::Failed(_)
            | Outcome::MetaInfo
            | Outcome::NotStored
            | Outcome::Ok
            | Outcome::StaleStored
            | Outcome::Version
            | Outcome::Meta(MetaCode::Ex | MetaCode::Me | MetaCode::Mn | MetaCode::Ns) => None,
        }
    }
}

/// One worker's numbers. Relaxed: a reader sees each as it was a moment ago.
#[derive(Debug)]
pub struct Traffic([AtomicU64; LEN]);

impl Default for Traffic {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; LEN])
    }
}

impl Traffic {
    /// It happened once more.
    #[inline]
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// It happened once more.
    #[inline]
    pub fn event(&self, event: Event) {
        self.count(Count::Event(event));
    }

    /// There is an answer for a client, whether it still waits or not.
    #[inline]
    pub fn replied(&self, outcome: Outcome) {
        match outcome.failure() {
            None => self.event(Event::RepliedWell),
            Some(failure) => self.count(Count::RepliedFailure(failure)),
        }
    }

    /// A client is answered.
    #[inline]
    pub fn answered(&self, op: Command, outcome: Outcome) {
        if let Some(count) = Count::of_answer(op, outcome) {
            self.count(count);
        }
    }

    /// A request for a server has failed.
    #[cold]
    pub fn failed(&self, failure: Failure, is_aside: bool) {
        self.count(if is_aside { Count::ResultAside(failure) } else { Count::Result(failure) });
    }

    /// Adds a number of events, or a time. Only the worker whose traffic this is calls it.
    #[inline]
    pub fn add(&self, what: Count, count: u64) {
        add(self.of(what), count);
    }

    /// The level is this now.
    pub fn set(&self, what: Event, level: u64) {
        self.of(Count::Event(what)).store(level, Ordering::Relaxed);
    }

    #[inline]
    fn of(&self, what: Count) -> &AtomicU64 {
        // Every index is below `LEN`.
        &self.0[what.index()]
    }
}

/// The sum of all workers' numbers at a moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot(Vec<u64>);

impl Default for Snapshot {
    /// Nothing has happened.
    fn default() -> Self {
        Self(vec![0; LEN])
    }
}

impl Snapshot {
    pub(crate) fn add(&mut self, traffic: &Traffic) {
        for (sum, number) in self.0.iter_mut().zip(&traffic.0) {
            *sum += number.load(Ordering::Relaxed);
        }
    }

    /// The number of times that it happened.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.0.get(what.index()).copied().unwrap_or(0)
    }

    /// The number of times that it happened.
    #[must_use]
    pub fn event(&self, event: Event) -> u64 {
        self.get(Count::Event(event))
    }

    /// The number of answers that there were for clients.
    #[must_use]
    pub fn replies(&self) -> u64 {
        let errors = Failure::ALL.map(|failure| self.get(Count::RepliedFailure(failure)));
        self.event(Event::RepliedWell) + errors.iter().sum::<u64>()
    }

    /// The counts since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// The number of times that something happened that is counted for each command.
    #[must_use]
    pub fn sum(&self, what: fn(Command) -> Count) -> u64 {
        Command::ALL.iter().map(|op| self.get(what(*op))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_a_place_of_its_own() {
        let ops = Command::ALL.iter().flat_map(|op| {
            [
                Count::Asked(*op),
                Count::FailedHere(*op),
                Count::FailedThere(*op),
                Count::Sent(*op),
                Count::SentAside(*op),
                Count::Hit(*op),
                Count::Missed(*op),
            ]
        });
        let failures = Failure::ALL.into_iter();
        let results = failures.flat_map(|one| {
            [Count::Result(one), Count::ResultAside(one), Count::RepliedFailure(one)]
        });
        let ends = [Event::RepliedWell, Event::FailOpenExited].map(Count::Event);
        let mut places: Vec<usize> = ops.chain(results).chain(ends).map(Count::index).collect();
        let count = places.len();
        places.sort_unstable();
        places.dedup();
        assert_eq!((places.len(), places.last()), (count, Some(&(LEN - 1))));
    }

    #[test]
    fn a_snapshot_is_the_sum_of_all_workers() {
        let (one, other, mut sum) = (Traffic::default(), Traffic::default(), Snapshot::default());
        one.count(Count::Asked(Command::Get));
        other.add(Count::Asked(Command::Get), 4);
        other.event(Event::DevNull);
        sum.add(&one);
        let before = sum.clone();
        sum.add(&other);
        assert_eq!((sum.get(Count::Asked(Command::Get)), sum.event(Event::DevNull)), (5, 1));
        assert_eq!(
            (sum.since(&before).sum(Count::Asked), before.since(&sum).sum(Count::Asked)),
            (4, 0)
        );
    }
}
