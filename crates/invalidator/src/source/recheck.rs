//! Repeats the check of a server while its log is read, because its result may change.
//!
//! A finding is a gap, because the log may lack changes since the last good check; so is the first
//! good check after it. A table's change that the log itself reports is no second gap. A check that
//! the server refuses is a finding, because the log's losses are then unknown. A check without an
//! answer may succeed soon, so it is a note, and the last good check ages.
//!
//! Relaxed is enough for the one atomic: the notification after it orders it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::change_source::SourceError;
use crate::checks::{Checks, Results};
use crate::finding::Finding;
use crate::last_check::LastCheck;
use crate::log_room::LogRoom;
use crate::notes::Notes;

/// The result of a check.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) findings: Vec<Finding>,
    /// The parts of the tables. A removed or replaced part was changed by a statement that the log
    /// does not have; a new part is harmless.
    pub(super) parts: BTreeMap<String, String>,
    /// The space of the log, if it has a limit.
    pub(super) room: Option<LogRoom>,
}

/// The value of a part whose changes the log itself reports.
pub(super) const TOLD: &str = "told";

impl Checked {
    /// The first finding that means a loss of changes.
    pub(super) fn fatal(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.is_fatal)
    }

    /// The parts of a table lost since an earlier check.
    pub(super) fn lost_since(&self, before: &BTreeMap<String, String>) -> Option<String> {
        let is_same = |now: &String, value: &String| now == value || now == TOLD || value == TOLD;
        let lost = before
            .iter()
            .find(|(part, value)| self.parts.get(*part).is_none_or(|now| !is_same(now, value)));
        lost.map(|(part, _)| format!("{part} is not what it was, and the log does not tell why"))
    }
}

/// The time limit for one check.
const CHECK_MAX: Duration = Duration::from_secs(30);

/// The task that repeats checks.
#[derive(Debug)]
pub(super) struct Recheck {
    task: JoinHandle<()>,
    gaps: mpsc::Receiver<String>,
    wanted: Arc<Notify>,
    was_told: Arc<AtomicBool>,
    parts: Arc<Mutex<BTreeMap<String, String>>>,
    results: watch::Receiver<Results>,
    notes: Notes,
}

impl Recheck {
    /// Checks at this interval, and on request. The first check, which opened the log, has just
    /// succeeded with the result `first`; `notes` receive failed checks.
    pub(super) fn start<F, A>(every: Duration, first: Checked, notes: Notes, check: F) -> Self
    where
        F: Fn() -> A + Send + 'static,
        A: Future<Output = Result<Checked, SourceError>> + Send + 'static,
    {
        let (sender, gaps) = mpsc::channel(1);
        let wanted = Arc::new(Notify::new());
        let asked = Arc::clone(&wanted);
        let Checked { parts, room, .. } = first;
        let seen = Arc::new(Mutex::new(parts.clone()));
        let parts_seen = Arc::clone(&seen);
        let was_told = Arc::new(AtomicBool::new(false));
        let told_seen = Arc::clone(&was_told);
        let last = LastCheck { at: Instant::now(), every };
        let (results, results_seen) = watch::channel(Results { last, room });
        let notes_seen = notes.clone();
        let mut state = State { parts, has_failed: false };
        let task = tokio::spawn(async move {
            loop {
                tokio::select! { () = sleep(every) => {}, () = asked.notified() => {} }
                let is_told = told_seen.swap(false, Relaxed);
                let gap = match made(check()).await {
                    Ok(checked) => {
                        results.send_modify(|results| {
                            results.room = checked.room;
                            if checked.fatal().is_none() {
                                results.last.at = Instant::now();
                            }
                        });
                        state.judge(checked, is_told)
                    }
                    Err(SourceError::Wrong(why)) => {
                        told_seen.fetch_or(is_told, Relaxed);
                        Some(state.refused(&why))
                    }
                    // An unavailable server ends the log's connection, too.
                    Err(error) => {
                        notes.missed(&error.to_string());
                        results.send_modify(|_| {});
                        told_seen.fetch_or(is_told, Relaxed);
                        continue;
                    }
                };
                if let Some(why) = gap
                    && sender.send(why).await.is_err()
                {
                    return;
                }
                parts_seen.lock().clone_from(&state.parts);
            }
        });
        Self { task, gaps, wanted, was_told, parts: seen, results: results_seen, notes: notes_seen }
    }

    /// The results of these checks, from now on.
    pub(super) fn checks(&self) -> Checks {
        Checks { results: self.results.clone(), notes: self.notes.clone() }
    }

    /// The parts of the tables at the last check whose gap was taken.
    pub(super) fn parts(&self) -> BTreeMap<String, String> {
        self.parts.lock().clone()
    }

    /// Asks for a check now.
    pub(super) fn ask(&self) {
        self.wanted.notify_one();
    }

    /// The log reported that tables changed: the next check finds this, and only this change is no
    /// gap.
    pub(super) fn told(&self) {
        self.was_told.store(true, Relaxed);
        self.ask();
    }

    /// The next gap. Loses none when the future is dropped.
    pub(super) async fn gap(&mut self) -> String {
        match self.gaps.recv().await {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Recheck {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A check within its time limit.
async fn made(
    check: impl Future<Output = Result<Checked, SourceError>>,
) -> Result<Checked, SourceError> {
    let late = |_| Err(SourceError::Lost(format!("no answer within {CHECK_MAX:?}")));
    timeout(CHECK_MAX, check).await.unwrap_or_else(late)
}

/// The state between checks.
struct State {
    parts: BTreeMap<String, String>,
    has_failed: bool,
}

impl State {
    /// The reason why the log may lack changes since the last check.
    fn judge(&mut self, checked: Checked, is_told: bool) -> Option<String> {
        let found = checked.fatal().map(|finding| finding.text.clone());
        let lost = checked.lost_since(&self.parts).filter(|_| !is_told);
        let had_failed = std::mem::replace(&mut self.has_failed, found.is_some());
        self.parts = checked.parts;
        if found.is_none() && had_failed {
            return Some("the log lacked changes until now".to_owned());
        }
        found.or(lost)
    }

    /// The same for a check that cannot be made. The next compares with the last successful one.
    fn refused(&mut self, why: &str) -> String {
        self.has_failed = true;
        format!("cannot check the log for missing changes: {why}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(fatal: Option<&str>, parts: &[(&str, &str)]) -> Checked {
        let findings = fatal.map(|text| Finding::fatal(text.to_owned())).into_iter().collect();
        let parts = parts.iter().map(|(part, value)| ((*part).to_owned(), (*value).to_owned()));
        Checked { findings, parts: parts.collect(), room: None }
    }

    #[test]
    fn a_finding_is_a_gap_at_each_check_and_once_when_it_clears() {
        let mut state = State { parts: BTreeMap::new(), has_failed: false };
        assert_eq!(state.judge(checked(None, &[]), false), None);
        assert_eq!(state.judge(checked(Some("gone"), &[]), false).as_deref(), Some("gone"));
        assert_eq!(state.judge(checked(Some("gone"), &[]), false).as_deref(), Some("gone"));
        assert!(
            state.judge(checked(None, &[]), false).is_some_and(|why| why.contains("until now"))
        );
        assert_eq!(state.judge(checked(None, &[]), false), None);
    }

    #[test]
    fn a_changed_or_missing_part_is_a_gap_and_a_new_one_is_not() {
        let mut state = State { parts: BTreeMap::new(), has_failed: false };
        assert_eq!(state.judge(checked(None, &[("table t", "1")]), false), None);
        assert_eq!(
            state.judge(checked(None, &[("column a", "int"), ("table t", "1")]), false),
            None
        );
        let lost = state.judge(checked(None, &[("column a", "text"), ("table t", "1")]), false);
        assert!(lost.is_some_and(|why| why.contains("column a")));
        assert!(state.judge(checked(None, &[("table t", "1")]), false).is_some());
        assert_eq!(state.judge(checked(None, &[("table t", "1")]), false), None);
    }

    #[test]
    fn changes_reported_by_the_log_are_not_a_second_gap() {
        let mut state = State { parts: BTreeMap::new(), has_failed: false };
        assert_eq!(state.judge(checked(None, &[("table t", "1")]), false), None);
        assert_eq!(state.judge(checked(None, &[("table t", "2")]), true), None);
        assert_eq!(state.judge(checked(None, &[("table t", "2")]), false), None);
        assert!(state.judge(checked(Some("gone"), &[]), true).is_some());
        // From now on, the log always reports it.
        let mut state = State { parts: BTreeMap::new(), has_failed: false };
        assert_eq!(state.judge(checked(None, &[("file", "1")]), false), None);
        assert_eq!(state.judge(checked(None, &[("file", TOLD)]), false), None);
        assert_eq!(state.judge(checked(None, &[("file", "2")]), false), None);
        assert!(state.judge(checked(None, &[]), false).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_check_is_a_gap_and_an_unanswered_one_is_not() {
        let turn = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let check = move || {
            let turn = turn.fetch_add(1, Relaxed);
            async move {
                match turn {
                    0 => Err(SourceError::Lost("away".to_owned())),
                    1 => Err(SourceError::Wrong("denied".to_owned())),
                    _ => Ok(checked(None, &[])),
                }
            }
        };
        let (every, notes) = (Duration::from_secs(60), Notes::default());
        let mut recheck = Recheck::start(every, Checked::default(), notes, check);
        let begin = Instant::now();
        assert!(recheck.gap().await.ends_with("missing changes: denied"));
        assert_eq!(begin.elapsed(), Duration::from_secs(120));
        assert!(recheck.gap().await.contains("until now"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_the_last_check_grows_while_checks_fail() {
        let turn = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let check = move || {
            let turn = turn.fetch_add(1, Relaxed);
            async move {
                match turn {
                    0 => std::future::pending().await,
                    1 => Err(SourceError::Lost("away".to_owned())),
                    2 => Ok(checked(None, &[])),
                    _ => Ok(checked(Some("gone"), &[])),
                }
            }
        };
        let (every, notes) = (Duration::from_secs(60), Notes::default());
        let recheck = Recheck::start(every, Checked::default(), notes.clone(), check);
        let mut said = Vec::new();
        for (secs, age) in [(59, 59), (40, 99), (60, 159), (60, 9), (60, 69)] {
            // Time passes in steps, as the task's waits end.
            for _ in 0..secs {
                sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(recheck.results.borrow().last.age().as_secs(), age);
            said.push(notes.take());
        }
        let missed = "warning: cannot check the log for missing changes now: no answer within 30s";
        assert_eq!(said.concat(), [missed]);
        assert_eq!(said[1], [missed], "after 90 s");
    }

    #[tokio::test(start_paused = true)]
    async fn checks_run_at_the_interval_and_on_request() {
        let every = Duration::from_secs(60);
        let found = || async { Ok(checked(Some("gone"), &[])) };
        let mut recheck = Recheck::start(every, Checked::default(), Notes::default(), found);
        let begin = Instant::now();
        assert_eq!(recheck.gap().await, "gone");
        assert_eq!(begin.elapsed(), every);
        recheck.ask();
        assert_eq!(recheck.gap().await, "gone");
        assert_eq!(begin.elapsed(), every);
    }
}
