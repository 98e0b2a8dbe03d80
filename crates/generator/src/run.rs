//! A whole run: connect, fill, start the threads together, collect their results.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::conn::Conn;
use super::record::Record;
use super::security::Security;
use super::spec::{Pace, Spec};
use super::wire::Wire;
use super::worker::{Brought, Run, Worker};
use crate::number::nanos;

pub use super::worker::{Latest, Progress};

/// The outcome of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// The merged record of all threads.
    pub record: Record,
    /// Measured seconds; fewer than requested when the run was cut short.
    pub seconds: f64,
    /// Seconds from the start of the warm-up to the last reply: an open loop continues after the
    /// measurement until its due requests are answered.
    pub elapsed: f64,
    /// Share of its time that the busiest generator thread was on a processor, 0 to 1.
    pub busiest: f64,
    /// The open loop fell so far behind that it gave up: the servers cannot serve this rate.
    pub is_overloaded: bool,
    /// The reason why the run ended early; the results until then are kept.
    pub failure: Option<String>,
}

/// Stores every key once.
///
/// # Errors
///
/// When a server is unreachable, disconnects, or refuses more than one store in a hundred.
pub fn fill(spec: &Spec, progress: &Progress) -> Result<u64> {
    let spec = Spec { pace: Pace::Closed, reconnect: 0, ..spec.clone() };
    let security = Security::of(&spec)?;
    let conns = connections(&spec, &security)?;
    let wire = Wire::new(&spec);
    let run = Run {
        spec: &spec,
        wire: &wire,
        security: &security,
        started: Instant::now(),
        measure: (0, u64::MAX),
        progress,
    };
    let brought = spread(&run, conns, true)?;
    let mut record = Record::default();
    for part in brought {
        if let Some(failure) = part.failure {
            return Err(failure.context("storing the keys"));
        }
        record.merge(&part.record);
    }
    let refused = record.sets.refused;
    ensure!(
        refused * 100 <= spec.keys,
        "{refused} of {} stores were refused while storing the keys",
        spec.keys
    );
    Ok(refused)
}

/// A run whose connections are open.
#[derive(Debug)]
pub struct Ready {
    spec: Spec,
    conns: Vec<Vec<Conn>>,
    security: Security,
}

/// Opens the connections of `spec`.
///
/// # Errors
///
/// When a server is unreachable.
pub fn connect(spec: &Spec) -> Result<Ready> {
    let security = Security::of(spec)?;
    Ok(Ready { spec: spec.clone(), conns: connections(spec, &security)?, security })
}

/// Measures according to `spec`.
///
/// # Errors
///
/// When a server is unreachable. A later failure is in the outcome, together with the results until
/// then.
pub fn run(spec: &Spec, progress: &Progress) -> Result<Outcome> {
    connect(spec)?.run(progress)
}

impl Ready {
    /// Measures.
    ///
    /// # Errors
    ///
    /// When the threads cannot be started. A failure after that is in the outcome.
    pub fn run(self, progress: &Progress) -> Result<Outcome> {
        let spec = &self.spec;
        let wire = Wire::new(spec);
        let of_seconds = |seconds: f64| nanos(Duration::from_secs_f64(seconds.max(0.0)));
        let begin = of_seconds(spec.warm_up);
        let measure = (begin, begin + of_seconds(spec.seconds));
        let security = &self.security;
        let run = Run { spec, wire: &wire, security, started: Instant::now(), measure, progress };
        let (mut outcome, mut elapsed) = (Outcome::default(), Duration::ZERO);
        for part in spread(&run, self.conns, false)? {
            outcome.record.merge(&part.record);
            outcome.is_overloaded |= part.is_overloaded;
            let share = part.cpu.as_secs_f64() / part.elapsed.as_secs_f64().max(1e-9);
            outcome.busiest = outcome.busiest.max(share);
            if let Some(failure) = part.failure {
                outcome.failure = Some(format!("{failure:#}"));
            }
            elapsed = elapsed.max(part.elapsed);
        }
        // Whole nanoseconds, so that a measurement of three seconds has three.
        let measured = nanos(elapsed).min(measure.1).saturating_sub(measure.0);
        let measured = Duration::from_nanos(measured);
        outcome.record.cover(measured.as_secs());
        (outcome.seconds, outcome.elapsed) = (measured.as_secs_f64(), elapsed.as_secs_f64());
        Ok(outcome)
    }
}

impl Outcome {
    /// Adds another host's results of the same run; `who` names its failure.
    pub fn merge(&mut self, other: &Self, who: &str) {
        self.record.merge(&other.record);
        self.seconds = self.seconds.max(other.seconds);
        self.elapsed = self.elapsed.max(other.elapsed);
        self.busiest = self.busiest.max(other.busiest);
        self.is_overloaded |= other.is_overloaded;
        if let Some(failure) = &other.failure {
            let known = self.failure.take().map(|known| known + "; ").unwrap_or_default();
            self.failure = Some(format!("{known}{who}{failure}"));
        }
    }
}

/// The connections of every thread.
fn connections(spec: &Spec, security: &Security) -> Result<Vec<Vec<Conn>>> {
    let conns = |_| {
        let targets = spec.targets.iter().enumerate();
        targets
            .flat_map(|(index, target)| {
                (0..spec.connections).map(move |_| Conn::open(target, index, security))
            })
            .collect()
    };
    (0..spec.threads).map(conns).collect::<Result<_>>().context("connecting")
}

fn spread(run: &Run<'_>, conns: Vec<Vec<Conn>>, fills: bool) -> Result<Vec<Brought>> {
    let mut workers = Vec::new();
    for (index, conns) in conns.into_iter().enumerate() {
        let worker = Worker::new(run, conns, index)?;
        workers.push(if fills { worker.filling(index) } else { worker });
    }
    Ok(thread::scope(|scope| {
        let threads: Vec<_> = workers
            .into_iter()
            .enumerate()
            .map(|(index, worker)| {
                scope.spawn(move || {
                    let brought = worker.go(index);
                    if brought.failure.is_some() {
                        // The other threads' results would not be of the requested load.
                        run.progress.stop.store(true, Ordering::Relaxed);
                    }
                    brought
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    }))
}
