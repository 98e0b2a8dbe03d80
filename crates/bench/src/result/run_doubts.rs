//! Reasons to doubt a run.

use super::{RunResult, SECONDS_MIN};
use crate::sampler::Side;
use generator::spec::Pace;

/// Share of its time for which a thread may wait for a processor before its figures are doubtful.
const WAIT_MAX: f64 = 0.25;

/// Share of the requests due in an open loop that must be answered in the measurement.
const REACHED: f64 = 0.95;

impl RunResult {
    /// Reasons to doubt the figures, in plain words.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(failure) = &self.failure {
            doubts.push(format!("the run ended early: {failure}"));
        }
        let is_open = self.spec.pace != Pace::Closed;
        if self.total.requests == 0 {
            doubts.push("no request was answered: there are no latencies of replies".to_owned());
        }
        doubts.extend(self.missing_replies());
        doubts.extend(self.doubts_of_conditions());
        doubts.extend(self.unserved());
        if self.overloaded {
            doubts.push(
                "the generator gave up: too many requests waited for a free connection".to_owned(),
            );
        }
        let missed_rate = self.missed_rate();
        // The thread of an open loop spins between close requests, so it is the limit only if it
        // did not send them all.
        let is_behind = !is_open || missed_rate.is_some();
        doubts.extend(missed_rate);
        doubts.extend(self.silent_seconds());
        if is_behind && self.generator.busiest_thread > 0.95 {
            doubts.push(format!(
                "a generator thread was busy {:.0} % of the time: the generator may be the limit; use more --threads or hosts",
                self.generator.busiest_thread * 100.0
            ));
        }
        let median = self.total.latency.percentile(50.0);
        if is_open && self.generator.lag_p99 > median.max(100.0) {
            doubts.push(format!(
                "1 % of the requests that found a free connection left more than {:.0} us late: the generator was late; use more --threads or hosts",
                self.generator.lag_p99
            ));
        }
        doubts
    }

    /// The doubts about requests that were not served, however quickly they were answered.
    pub(crate) fn unserved(&self) -> Vec<String> {
        let kinds = [
            (self.wrong, "values were not what had been stored"),
            (self.lost, "UDP requests were lost; they are in no latency"),
            (self.total.refused, "requests were refused"),
        ];
        let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
        kinds.map(|(count, words)| format!("{count} {words}")).collect()
    }

    /// The doubt about requests without a reply at the end.
    fn missing_replies(&self) -> Option<String> {
        let count = self.unanswered;
        (count > 0).then(|| match self.spec.pace {
            Pace::Open { .. } => format!(
                "{count} requests that were due had no reply; the time that they waited is in the latencies"
            ),
            Pace::Closed => {
                format!("{count} requests had no reply at the end; they are in no latency")
            }
        })
    }

    /// The doubt about an open loop with fewer answered than due requests.
    pub(crate) fn missed_rate(&self) -> Option<String> {
        let Pace::Open { rate, .. } = self.spec.pace else { return None };
        #[allow(clippy::cast_precision_loss, reason = "counts of one run")]
        let due = (self.total.requests + self.unanswered + self.lost) as f64;
        let wanted = if self.spec.requests == 0 {
            due / self.seconds.max(1e-9)
        } else {
            // It lasts until all are answered. Random arrivals may be slower than their rate.
            rate * (1.0 - 3.0 / due.max(9.0).sqrt())
        };
        let missing = (wanted - self.total.rate) * self.seconds;
        // The last request may have become due just before the end.
        let is_missed = self.total.rate < wanted * REACHED && missing > 1.5;
        is_missed.then(|| {
            let percent = self.total.rate * 100.0 / rate;
            format!("the rate was not reached: the answers came at {percent:.0} % of it")
        })
    }

    /// The doubt about a closed loop without an answer for seconds: nothing was sent in them
    /// either, so hardly any latency shows them.
    fn silent_seconds(&self) -> Option<String> {
        if self.spec.pace != Pace::Closed || self.total.requests == 0 {
            return None;
        }
        let seconds = self.whole_series();
        let silent = seconds.iter().filter(|second| second.requests == 0).count();
        (silent > 0).then(|| {
            let all = seconds.len();
            format!("nothing was answered in {silent} of {all} seconds, which have no latency")
        })
    }

    /// Doubts that do not depend on the figures: gets that mostly missed, and a machine that is too
    /// busy.
    pub(crate) fn doubts_of_conditions(&self) -> Vec<String> {
        let missed = self.hit_percent().filter(|hit_percent| *hit_percent < 50.0);
        let missed = missed.map(|hit_percent| {
            format!(
                "only {hit_percent:.1} % of the keys were found, and a miss costs less than a hit; --preload stores them first"
            )
        });
        missed.into_iter().chain(self.starved()).collect()
    }

    /// The sides whose threads were ready to run without a processor, and for how long.
    fn starved(&self) -> Vec<String> {
        let Some(series) = self.cpu_series.as_ref().filter(|_| self.seconds >= SECONDS_MIN) else {
            return Vec::new();
        };
        // The threads are sampled up to the last reply.
        let seconds = series.seconds().max(SECONDS_MIN);
        let sides = [(Side::Generator, "the generator"), (Side::Server, "a server")];
        let waits = sides.map(|(side, name)| {
            let threads = series.threads.iter().filter(|thread| thread.side == side);
            (threads.map(|thread| thread.whole.waited_us).max().unwrap_or_default(), name)
        });
        #[allow(clippy::cast_precision_loss, reason = "times of one run")]
        let shares = waits.map(|(wait, name)| (wait as f64 / 1e6 / seconds, name));
        let starved = shares.into_iter().filter(|(share, _)| *share > WAIT_MAX);
        let words = starved.map(|(share, name)| {
            format!(
                "a thread of {name} waited {:.0} % of the time for a processor: the machine is too busy for these figures",
                share * 100.0
            )
        });
        words.collect()
    }
}

#[cfg(test)]
pub(in crate::result) mod tests {
    use super::*;
    use crate::host::CpuTimes;
    use crate::result::SecondResult;
    use crate::sampler::{CpuSeries, Slice, ThreadSeries};
    use crate::thread_use::ThreadUse;
    use generator::Outcome;
    use generator::spec::{Arrival, Spec};

    /// A second without an answer, in which a thread of the server waited for this time.
    pub(in crate::result) fn result(waited_us: u64) -> RunResult {
        let whole =
            ThreadUse { name: String::new(), tid: 1, user: 0, system: 0, switches: 0, waited_us };
        let thread = ThreadSeries { side: Side::Server, whole, slices: Vec::new() };
        let slice = Slice { end: 1.0, times: CpuTimes::default(), processors: Vec::new() };
        let series =
            CpuSeries { machine: vec![slice], processors: Vec::new(), threads: vec![thread] };
        let outcome = Outcome { seconds: 1.0, elapsed: 1.0, ..Outcome::default() };
        RunResult::new(&Spec::default(), &outcome, (None, Some(series)), 0)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn missing_replies_and_a_busy_machine_are_doubts() {
        let said = |waited_us, words: &str| {
            result(waited_us).doubts().iter().any(|doubt| doubt.contains(words))
        };
        assert!(said(0, "no request was answered"));
        assert!(said(500_000, "a thread of a server waited 50 % of the time for a processor"));
        assert!(!said(100_000, "for a processor"));
    }

    /// A run of four seconds with this many requests due, and answered in them.
    fn open(due: u64, in_time: u64, requests: u64) -> RunResult {
        let pace = Pace::Open { rate: 1000.0, arrival: Arrival::Poisson };
        let spec = Spec { pace, requests, ..Spec::default() };
        let mut outcome = Outcome { seconds: 4.0, elapsed: 9.0, ..Outcome::default() };
        (outcome.record.gets.requests, outcome.record.gets.in_time) = (due, in_time);
        outcome.busiest = 0.97;
        RunResult::new(&spec, &outcome, (None, None), 0).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_rate_that_was_not_reached_is_a_doubt() {
        let missed = open(4050, 3400, 0);
        assert_eq!(missed.total.rate, 850.0);
        let doubts = missed.doubts();
        let words = "the rate was not reached: the answers came at 85 % of it";
        assert!(doubts.iter().any(|doubt| doubt == words), "{doubts:?}");
        assert!(doubts.iter().any(|doubt| doubt.contains("may be the limit")), "{doubts:?}");
        // Random arrivals, of which a few are always in flight.
        assert_eq!(open(3800, 3790, 0).missed_rate(), None);
        assert_eq!(open(2, 1, 0).missed_rate(), None);
        assert!(!open(4000, 4000, 0).doubts().iter().any(|doubt| doubt.contains("the limit")));
        // A number of requests that took longer than it should.
        assert!(open(2400, 2400, 800).missed_rate().is_some());
        assert_eq!(open(3800, 3800, 950).missed_rate(), None);
        // Datagrams that were lost.
        let lost = RunResult { lost: 1200, ..open(2800, 2800, 0) };
        assert!(lost.missed_rate().is_some_and(|doubt| doubt.contains("at 70 % of it")));
    }

    #[test]
    fn requests_without_a_reply_are_a_doubt_in_both_loops() {
        let mut run = result(0);
        assert!(!run.doubts().iter().any(|doubt| doubt.contains("had no reply")));
        run.unanswered = 10;
        let words = "10 requests had no reply at the end; they are in no latency";
        assert!(run.doubts().iter().any(|doubt| doubt == words), "{:?}", run.doubts());
        run.spec.pace = Pace::Open { rate: 1.0, arrival: Arrival::Fixed };
        let words = "10 requests that were due had no reply; the time that they waited";
        assert!(run.doubts().iter().any(|doubt| doubt.starts_with(words)), "{:?}", run.doubts());
    }

    #[test]
    fn seconds_without_replies_are_a_doubt_in_a_closed_loop() {
        let mut run = result(0);
        (run.seconds, run.total.requests) = (3.5, 9);
        let second = |requests| SecondResult { requests, p50: None, p99: None, max: None };
        run.series = [4, 0, 0, 5].map(second).to_vec();
        let words = "nothing was answered in 2 of 3 seconds, which have no latency";
        assert!(run.doubts().iter().any(|doubt| doubt == words), "{:?}", run.doubts());
        run.spec.pace = Pace::Open { rate: 1.0, arrival: Arrival::Fixed };
        assert!(!run.doubts().iter().any(|doubt| doubt.contains("nothing was answered")));
    }
}
