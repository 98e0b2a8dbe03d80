//! Past numbers, for rates and means over the last four minutes, mcrouter's window.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use upstream::{Registry, Snapshot, Totals};

/// The interval of the samples.
pub(crate) const PERIOD: Duration = Duration::from_secs(4);

/// The covered time.
const WINDOW: Duration = Duration::from_secs(240);

/// All numbers at one time.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    at: Instant,
    pub(crate) traffic: Snapshot,
    /// The totals of the servers in use.
    pub(crate) totals: Totals,
}

impl Moment {
    /// The current numbers.
    pub(crate) fn of(registry: &Registry) -> Self {
        let mut totals = Totals::default();
        registry.report().iter().for_each(|report| totals.add_totals(&report.totals));
        Self { at: Instant::now(), traffic: registry.traffic(), totals }
    }

    /// Seconds since another moment, never 0.
    pub(crate) fn secs_since(&self, earlier: &Self) -> f64 {
        self.at.saturating_duration_since(earlier.at).as_secs_f64().max(0.001)
    }
}

/// The moments of the last minutes, oldest first.
#[derive(Debug)]
pub(crate) struct History(Mutex<VecDeque<Moment>>);

impl History {
    /// Creates a history that starts now.
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(Mutex::new(VecDeque::from([Moment::of(registry)])))
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Moment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the current numbers.
    pub(crate) fn note(&self, now: Moment) {
        let mut moments = self.lock();
        // One older than the window stays, so that there is always a whole window.
        while let Some(second) = moments.get(1)
            && now.at.saturating_duration_since(second.at) >= WINDOW
        {
            moments.pop_front();
        }
        moments.push_back(now);
    }

    /// The numbers at the start of the window, or of the process.
    pub(crate) fn oldest(&self) -> Option<Moment> {
        self.lock().front().cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_spans_the_window() {
        let registry = Registry::default();
        let history = History::new(&registry);
        let start = history.oldest().unwrap().at;
        let mut last = start;
        for secs in (4..=400).step_by(4) {
            last = start + Duration::from_secs(secs);
            history.note(Moment { at: last, ..Moment::of(&registry) });
        }
        assert_eq!(last - history.oldest().unwrap().at, WINDOW);
    }
}
