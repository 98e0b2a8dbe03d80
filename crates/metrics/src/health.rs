//! Health of a process: the phase of its life, and if its threads turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A thread counts as stuck if it was woken and has not turned within this time. A worker turns
/// within milliseconds, also under full load.
const TURN_PATIENCE: Duration = Duration::from_secs(10);

/// One condition of health, with the reason if it does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Its name: one lowercase word.
    pub name: &'static str,
    /// A sentence; `None` while all is well.
    pub fault: Option<String>,
}

impl Check {
    /// The condition `name`, which holds unless there is a `fault`.
    #[must_use]
    pub const fn new(name: &'static str, fault: Option<String>) -> Self {
        Self { name, fault }
    }

    /// The condition `name`, which holds if `is_well`; else `fault` gives the reason.
    #[must_use]
    pub fn that(name: &'static str, is_well: bool, fault: impl FnOnce() -> String) -> Self {
        Self { name, fault: (!is_well).then(fault) }
    }
}

/// The phase of a process's life: it starts, serves, and ends.
#[derive(Debug, Default)]
pub struct Health {
    has_started: AtomicBool,
    /// The time when the last connections are closed, once the shutdown has started.
    ends_at: Mutex<Option<Instant>>,
}

impl Health {
    /// Clients are served from now on.
    pub fn start(&self) {
        // Relaxed: a number for people, which orders nothing else.
        self.has_started.store(true, Ordering::Relaxed);
    }

    /// The shutdown has started: clients are served for `window`, and should go elsewhere.
    pub fn end_in(&self, window: Duration) {
        *self.ends_at.lock() = Some(Instant::now() + window);
    }

    /// The condition of having started.
    #[must_use]
    pub fn started(&self) -> Check {
        // Relaxed: see `start`.
        let has_started = self.has_started.load(Ordering::Relaxed);
        Check::that("started", has_started, || "clients are not served yet".to_owned())
    }

    /// The condition of not shutting down.
    #[must_use]
    pub fn staying(&self) -> Check {
        let fault = self.ends_at.lock().map(|end| {
            let left = end.saturating_duration_since(Instant::now());
            format!("ending: connections are closed in {} s", left.as_secs_f64().ceil())
        });
        Check::new("staying", fault)
    }
}

/// Checks that threads still turn, from the numbers of their turns at each look.
///
/// After each look the caller wakes the threads: a thread that sleeps because it has no work turns
/// by the next look, one that hangs does not.
#[derive(Debug, Default)]
pub struct Turns {
    /// The number of each thread's turns, and the time when it was first seen.
    seen: Mutex<Vec<(u64, Instant)>>,
}

impl Turns {
    /// Takes the present numbers, one of each thread; the caller must wake the threads after this.
    #[must_use]
    pub fn look(&self, turns: &[u64]) -> Check {
        Self::check(&self.stuck(turns, Instant::now()))
    }

    /// The number of hanging threads, by the same look.
    #[must_use]
    pub fn hung(&self, turns: &[u64]) -> usize {
        self.stuck(turns, Instant::now()).len()
    }

    fn check(stuck: &[(usize, u64)]) -> Check {
        let first = stuck.first();
        let fault =
            first.map(|(index, secs)| format!("worker {index} has not turned for {secs} s"));
        Check::new("workers", fault)
    }

    /// The hanging threads, and the seconds for which each hangs.
    fn stuck(&self, turns: &[u64], now: Instant) -> Vec<(usize, u64)> {
        let mut seen = self.seen.lock();
        seen.resize(turns.len(), (u64::MAX, now));
        let mut stuck = Vec::new();
        for (index, (count, (known, since))) in turns.iter().zip(seen.iter_mut()).enumerate() {
            if known != count {
                (*known, *since) = (*count, now);
                continue;
            }
            let secs = now.saturating_duration_since(*since);
            if secs >= TURN_PATIENCE {
                stuck.push((index, secs.as_secs()));
            }
        }
        stuck
    }
}

/// The answer about conditions: true if all hold, and a JSON object that names each.
pub(crate) fn json(checks: &[Check]) -> (bool, String) {
    let is_well = checks.iter().all(|check| check.fault.is_none());
    let of_check = |check: &Check| match &check.fault {
        None => serde_json::json!({ "name": check.name, "ok": true }),
        Some(reason) => serde_json::json!({ "name": check.name, "ok": false, "reason": reason }),
    };
    let all: Vec<_> = checks.iter().map(of_check).collect();
    let status = if is_well { "ok" } else { "failing" };
    (is_well, format!("{}\n", serde_json::json!({ "status": status, "checks": all })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_from_start_to_shutdown() {
        let health = Health::default();
        assert!(health.started().fault.is_some());
        health.start();
        assert_eq!((health.started().fault, health.staying().fault), (None, None));
        health.end_in(Duration::from_secs(30));
        assert_eq!(health.started().fault, None);
        let fault = health.staying().fault.unwrap();
        assert_eq!(fault, "ending: connections are closed in 30 s");
    }

    #[test]
    fn a_thread_without_progress_is_stuck_until_it_continues() {
        let (turns, begin) = (Turns::default(), Instant::now());
        let at = |secs: u64, counts: &[u64]| {
            let stuck = turns.stuck(counts, begin + Duration::from_secs(secs));
            (stuck.len(), Turns::check(&stuck).fault)
        };
        assert_eq!(at(0, &[5, 5]), (0, None));
        // A long pause between looks is no fault: the threads were woken at the first.
        assert_eq!(at(100, &[6, 6]), (0, None));
        assert_eq!(at(109, &[7, 6]), (0, None));
        assert_eq!(at(110, &[7, 6]), (1, Some("worker 1 has not turned for 10 s".to_owned())));
        assert_eq!(at(111, &[8, 7]), (0, None));
    }

    #[test]
    fn the_answer_gives_reasons() {
        let checks = [Check::new("a", None), Check::new("b", Some("it \"hangs\"".to_owned()))];
        let (is_well, text) = json(&checks);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(!is_well);
        assert_eq!(read["status"], "failing");
        assert_eq!(read["checks"][0]["ok"], true);
        assert_eq!(read["checks"][1]["reason"], "it \"hangs\"");
        assert!(json(&checks[..1]).0);
    }
}
