//! Deletes that could not be kept, for the log: a full disk must not be filled with lines, too.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// The interval between two lines.
const INTERVAL: Duration = Duration::from_secs(1);

/// The deletes since the last line.
#[derive(Debug, Default)]
pub(super) struct Unkept {
    count: u64,
    /// The destination of the last one, and the reason.
    last: String,
    logged_at: Option<Instant>,
}

impl Unkept {
    /// Counts a delete for `destination`.
    pub(super) fn add(&mut self, destination: &str, why: impl Display) {
        self.count += 1;
        self.last = format!("the spool for {destination}: {why}");
    }

    /// The line that is due now: at once, then once a second.
    pub(super) fn line(&mut self, now: Instant) -> Option<String> {
        if self.count == 0 || self.due().is_some_and(|due| now < due) {
            return None;
        }
        self.logged_at = Some(now);
        let (count, last) = (std::mem::take(&mut self.count), std::mem::take(&mut self.last));
        Some(format!("warning: {last}; deletes not kept since the last such line: {count}"))
    }

    /// The time of the next line, if there is anything to report and a line came before.
    pub(super) fn due(&self) -> Option<Instant> {
        self.logged_at.filter(|_| self.count > 0).map(|at| at + INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_gives_one_line_a_second_with_its_count() {
        let (mut unkept, start) = (Unkept::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!((unkept.line(start), unkept.due()), (None, None));
        unkept.add("a", "full");
        let line = |count| {
            format!(
                "warning: the spool for a: full; deletes not kept since the last such line: {count}"
            )
        };
        assert_eq!(unkept.line(at(0)), Some(line(1)));
        (0..3000).for_each(|_| unkept.add("a", "full"));
        assert_eq!((unkept.line(at(999)), unkept.due()), (None, Some(at(1000))));
        assert_eq!(unkept.line(at(1000)), Some(line(3000)));
        assert_eq!((unkept.line(at(9000)), unkept.due()), (None, None));
    }
}
