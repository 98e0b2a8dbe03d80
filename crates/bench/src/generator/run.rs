//! A whole run: connect, fill, start the threads together, gather what they saw.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::conn::Conn;
use super::record::Record;
use super::spec::{Pace, Spec};
use super::wire::Wire;
use super::worker::{Brought, Run, Worker};

pub use super::worker::Progress;

/// What a run brought.
#[derive(Debug)]
pub struct Outcome {
    /// What all threads saw.
    pub record: Record,
    /// Seconds that were measured; fewer than asked for when the run was cut short.
    pub seconds: f64,
    /// Share of its time that the busiest generator thread was on a processor, 0 to 1.
    pub busiest: f64,
    /// The open loop fell so far behind that it gave up: the servers do not take this rate.
    pub is_overloaded: bool,
    /// Why the run ended early; what was seen until then is kept.
    pub failure: Option<String>,
}

/// Stores every key once.
///
/// # Errors
///
/// When a server cannot be reached, breaks off, or refuses more than one store in a hundred.
pub fn fill(spec: &Spec, progress: &Progress) -> Result<u64> {
    let spec = Spec { pace: Pace::Closed, ..spec.clone() };
    let conns = connect(&spec)?;
    let wire = Wire::new(&spec);
    let run =
        Run { spec: &spec, wire: &wire, started: Instant::now(), measure: (0, u64::MAX), progress };
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

/// Measures what `spec` says.
///
/// # Errors
///
/// When a server cannot be reached. A failure after that is in the outcome, beside what was seen until then.
pub fn run(spec: &Spec, progress: &Progress) -> Result<Outcome> {
    let conns = connect(spec)?;
    let wire = Wire::new(spec);
    let nanos = |seconds: f64| {
        u64::try_from(Duration::from_secs_f64(seconds.max(0.0)).as_nanos()).unwrap_or(u64::MAX)
    };
    let begin = nanos(spec.warm_up);
    let measure = (begin, begin + nanos(spec.seconds));
    let run = Run { spec, wire: &wire, started: Instant::now(), measure, progress };
    let mut outcome = Outcome {
        record: Record::default(),
        seconds: 0.0,
        busiest: 0.0,
        is_overloaded: false,
        failure: None,
    };
    for part in spread(&run, conns, false)? {
        outcome.record.merge(&part.record);
        outcome.is_overloaded |= part.is_overloaded;
        let share = part.cpu.as_secs_f64() / part.elapsed.as_secs_f64().max(1e-9);
        outcome.busiest = outcome.busiest.max(share);
        if let Some(failure) = part.failure {
            outcome.failure = Some(format!("{failure:#}"));
        }
        let measured = part.elapsed.as_secs_f64().min(spec.warm_up + spec.seconds) - spec.warm_up;
        outcome.seconds = outcome.seconds.max(measured.max(0.0));
    }
    Ok(outcome)
}

/// The connections of every thread.
fn connect(spec: &Spec) -> Result<Vec<Vec<Conn>>> {
    let conns = |_| {
        let targets = spec.targets.iter().enumerate();
        targets
            .flat_map(|(index, target)| {
                (0..spec.connections).map(move |_| Conn::open(target, index))
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
                        // The others' figures would not be what was asked for.
                        run.progress.stop.store(true, Ordering::Relaxed);
                    }
                    brought
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    }))
}
