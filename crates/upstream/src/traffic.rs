//! A worker's traffic with clients and servers: numbers for statistics, which outlive servers and
//! configurations.
//!
//! Each worker has one [`Traffic`], which only it writes; [`Snapshot`] is their sum.

use std::sync::atomic::{AtomicU64, Ordering};

use proto::answer::MetaCode;
use proto::{Command, Failure};

use crate::counters::add;
use crate::reply::Outcome;

/// A kind of counted event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Count {
    /// Requests of clients.
    Asked(Command),
    /// Requests answered with an error of this program.
    FailedHere(Command),
    /// Requests answered with a server's error.
    FailedThere(Command),
    /// Requests whose item was present.
    Hit(Command),
    /// Requests whose item was absent.
    Missed(Command),
    /// Requests for a server, whether sent or not, except those of [`Self::SentAside`].
    Sent(Command),
    /// Requests for a server after another has failed, or of a shadow.
    SentAside(Command),
    /// Failures of [`Self::Sent`].
    Result(Failure),
    /// Failures of [`Self::SentAside`].
    ResultAside(Failure),
    /// Errors for clients, including those that did not wait for their answer.
    RepliedFailure(Failure),
    /// Everything else.
    Event(Event),
}

/// Events.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Event {
    /// A client has an answer that is not an error.
    RepliedWell,
    /// A client is answered with an error.
    RepliedError,
    /// A `cas`, or an `ms` with a cas unique, found another cas unique.
    CasExists,
    /// Requests that wait for room in the window: a level, not a count.
    Waiting,
    /// A request went on to another child after a failure, once for each request.
    Failover,
    /// All tried servers failed.
    FailoverFailed,
    /// The limit of failovers was reached.
    FailoverLimited,
    /// A failover in a fixed order; as for the names below, the policy that chose the child.
    FailoverInOrder,
    /// See [`Self::FailoverFailed`], also for the similar names below.
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
    /// A lease-set went to the server that granted its lease, which was not the first choice.
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
    /// The sum of the requests that waited before them.
    QueuedGetsAhead,
    /// The sum of their waits, in microseconds.
    QueuedGetsUs,
    /// Other commands that had to wait.
    QueuedUpdates,
    /// The sum of the requests that waited before them.
    QueuedUpdatesAhead,
    /// The sum of their waits, in microseconds.
    QueuedUpdatesUs,
    /// Deletes handed to the spool.
    Spooled,
    /// Deletes of these that are on disk.
    SpooledWell,
    /// The sum of the times for this, in microseconds.
    SpooledUs,
    /// A copy that no client waits for was dropped, since others held too much.
    CopyDropped,
    /// A pool started to use knocked-out servers.
    FailOpenEntered,
    /// A pool stopped using them.
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

    /// The counter for a client's answer that shows whether an item was present.
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
            // As servers count it: another cas unique.
            Outcome::Meta(MetaCode::Ex) => match op {
                Command::MetaDelete => Some(Self::Missed(op)),
                Command::MetaSet => Some(Self::Event(Event::CasExists)),
                _ => None,
            },
            Outcome::Failed(_)
            | Outcome::MetaInfo
            | Outcome::NotStored
            | Outcome::Ok
            | Outcome::OnlyDeleted
            | Outcome::StaleStored
            | Outcome::Version
            | Outcome::Meta(MetaCode::Me | MetaCode::Mn | MetaCode::Ns) => None,
        }
    }
}

/// One worker's numbers. Relaxed: a reader may see slightly old numbers.
#[derive(Debug)]
pub struct Traffic([AtomicU64; LEN]);

impl Default for Traffic {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; LEN])
    }
}

impl Traffic {
    /// Counts one more occurrence.
    #[inline]
    pub fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts one more occurrence.
    #[inline]
    pub fn event(&self, event: Event) {
        self.count(Count::Event(event));
    }

    /// Counts an answer for a client, whether it still waits or not.
    #[inline]
    pub fn replied(&self, outcome: Outcome) {
        match outcome.failure() {
            None => self.event(Event::RepliedWell),
            Some(failure) => self.count(Count::RepliedFailure(failure)),
        }
    }

    /// Counts an answer to a client.
    #[inline]
    pub fn answered(&self, op: Command, outcome: Outcome) {
        if let Some(count) = Count::of_answer(op, outcome) {
            self.count(count);
        }
    }

    /// Counts a failed request for a server.
    #[cold]
    pub fn failed(&self, failure: Failure, is_aside: bool) {
        self.count(if is_aside { Count::ResultAside(failure) } else { Count::Result(failure) });
    }

    /// Adds a number of events, or a time. Only the worker that owns this traffic calls it.
    #[inline]
    pub fn add(&self, what: Count, count: u64) {
        add(self.of(what), count);
    }

    /// Sets a level.
    pub fn set(&self, what: Event, level: u64) {
        self.of(Count::Event(what)).store(level, Ordering::Relaxed);
    }

    #[inline]
    fn of(&self, what: Count) -> &AtomicU64 {
        // Every index is below `LEN`.
        &self.0[what.index()]
    }
}

/// The sum of all workers' numbers at one time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot(Vec<u64>);

impl Default for Snapshot {
    /// A snapshot without events.
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

    /// The number of occurrences.
    #[must_use]
    pub fn get(&self, what: Count) -> u64 {
        self.0.get(what.index()).copied().unwrap_or(0)
    }

    /// The number of occurrences.
    #[must_use]
    pub fn event(&self, event: Event) -> u64 {
        self.get(Count::Event(event))
    }

    /// The number of answers for clients.
    #[must_use]
    pub fn replies(&self) -> u64 {
        let errors = Failure::ALL.map(|failure| self.get(Count::RepliedFailure(failure)));
        self.event(Event::RepliedWell) + errors.iter().sum::<u64>()
    }

    /// The counts since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().zip(&earlier.0).map(|(now, then)| now.saturating_sub(*then)).collect())
    }

    /// The sum of a count over all commands.
    #[must_use]
    pub fn sum(&self, what: fn(Command) -> Count) -> u64 {
        Command::ALL.iter().map(|op| self.get(what(*op))).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_has_its_own_place() {
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
