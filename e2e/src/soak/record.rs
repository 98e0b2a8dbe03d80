//! The record of a run so far: troubles with their times, requests, errors and violations; and the
//! flags that end and settle a run.

use std::any::Any;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// The time after the end of a trouble in which it may cause an error: a client uses a cut
/// connection once more, and a server that was stopped may close clients that held a large value.
const AFTERMATH: Duration = Duration::from_secs(3);

/// The same for `302 try again`: after the kept deletes are executed and the other server, which
/// has the mark, is reachable, the proxy takes three to six seconds to trust a server.
const UNBELIEVED: Duration = Duration::from_secs(8);

/// A process whose trouble excuses an error.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Part {
    Proxy,
    Server(usize),
}

/// All troubles of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Trouble {
    pub(super) times: u64,
    /// The longest time from its start until everything worked again.
    pub(super) longest: Duration,
    /// The reason why it did not run.
    pub(super) not_run: Option<String>,
}

#[derive(Debug)]
struct Spell {
    number: usize,
    kind: &'static str,
    parts: Vec<Part>,
    begin: Instant,
    end: Option<Instant>,
}

#[derive(Debug)]
struct State {
    log: File,
    spells: Vec<Spell>,
    started: usize,
    troubles: BTreeMap<&'static str, Trouble>,
    requests: BTreeMap<&'static str, u64>,
    excused: u64,
    strays: u64,
    violations: Vec<String>,
}

/// The record of one run.
#[derive(Debug)]
pub(super) struct Record {
    begin: Instant,
    is_over: AtomicBool,
    is_interrupted: Arc<AtomicBool>,
    /// The number of requested settlements.
    settling: AtomicUsize,
    /// Owners that have settled, over all settlements.
    settled: AtomicUsize,
    state: Mutex<State>,
}

impl Record {
    pub(super) fn new(log: &Path, is_interrupted: Arc<AtomicBool>) -> Self {
        let state = State {
            log: File::create(log).unwrap(),
            spells: Vec::new(),
            started: 0,
            troubles: BTreeMap::new(),
            requests: BTreeMap::new(),
            excused: 0,
            strays: 0,
            violations: Vec::new(),
        };
        Self {
            begin: Instant::now(),
            is_over: AtomicBool::new(false),
            is_interrupted,
            settling: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The panic of a thread that held this lock is on record, and ends the run.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    // SeqCst: these are each other's partners. Speed does not matter here.
    pub(super) fn is_interrupted(&self) -> bool {
        self.is_interrupted.load(Ordering::SeqCst)
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.is_interrupted()
    }

    pub(super) fn end(&self) {
        // SeqCst: partner of `is_over`.
        self.is_over.store(true, Ordering::SeqCst);
    }

    /// Sleeps, but not beyond the end of the run.
    pub(super) fn sleep(&self, time: Duration) {
        let end = Instant::now() + time;
        while !self.is_over() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(Duration::from_millis(50)));
        }
    }

    /// Runs a thread's work. A panic is a violation.
    pub(super) fn guard(&self, what: &str, work: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            self.violated(&format!("{what}: {}", text_of(panic.as_ref())));
        }
    }

    /// Records a violation, unless the run was interrupted, and ends the run.
    pub(super) fn violated(&self, what: &str) {
        // An interrupt also reaches the servers, possibly before this process.
        thread::sleep(Duration::from_millis(100));
        if !self.is_interrupted() {
            self.write(&format!("VIOLATION {what}"));
            self.lock().violations.push(what.to_owned());
        }
        self.end();
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    /// Records the start of a trouble that keeps these parts from serving. Returns its number.
    pub(super) fn began(&self, kind: &'static str, parts: &[Part]) -> usize {
        let number = {
            let mut state = self.lock();
            state.started += 1;
            let number = state.started;
            let (parts, begin) = (parts.to_vec(), Instant::now());
            state.spells.push(Spell { number, kind, parts, begin, end: None });
            number
        };
        self.write(&format!("{number} begins: {kind} {parts:?}"));
        number
    }

    /// Records that a trouble has ended and everything works again, or that it was impossible.
    pub(super) fn ended(&self, number: usize, outcome: Result<(), String>) {
        let mut state = self.lock();
        let State { spells, troubles, .. } = &mut *state;
        let Some(spell) = spells.iter_mut().find(|spell| spell.number == number) else { return };
        let (kind, took) = (spell.kind, spell.begin.elapsed());
        spell.end = Some(Instant::now());
        let trouble = troubles.entry(kind).or_default();
        match &outcome {
            Ok(()) => {
                trouble.times += 1;
                trouble.longest = trouble.longest.max(took);
            }
            Err(reason) => trouble.not_run = Some(reason.clone()),
        }
        // Requests end within their timeouts; older troubles excuse nothing.
        let old = Duration::from_secs(120);
        spells.retain(|spell| spell.end.is_none_or(|end| end.elapsed() < old));
        drop(state);
        self.write(&format!("{number} ends: {kind} after {took:.1?} {outcome:?}"));
    }

    /// Records a part of the run that this machine cannot execute.
    pub(super) fn not_run(&self, what: &'static str, reason: &str) {
        self.lock().troubles.entry(what).or_default().not_run = Some(reason.to_owned());
    }

    /// True when a trouble held one of these parts since then, or shortly before.
    pub(super) fn was_held(&self, parts: &[Part], since: Instant) -> bool {
        let is_own = |part: &Part| parts.contains(part);
        self.had_trouble(is_own, since, AFTERMATH)
    }

    /// True when a trouble held one of these parts since, or less than `aftermath` before.
    fn had_trouble(
        &self,
        is_one: impl Fn(&Part) -> bool,
        since: Instant,
        aftermath: Duration,
    ) -> bool {
        let lasted = |spell: &Spell| spell.end.is_none_or(|end| end + aftermath > since);
        let spells = &self.lock().spells;
        spells.iter().any(|spell| spell.parts.iter().any(&is_one) && lasted(spell))
    }

    /// Records a failed request on this path, started at `since`: a trouble excuses it, or it is a
    /// violation.
    pub(super) fn failed(&self, parts: &[Part], since: Instant, what: &str) {
        let is_held_back =
            || what.contains("302 try again") && self.had_trouble(|_| true, since, UNBELIEVED);
        if self.was_held(parts, since) || is_held_back() {
            self.lock().excused += 1;
        } else if !self.is_over() {
            self.lock().strays += 1;
            self.violated(&format!("an error outside of any trouble on {parts:?}: {what}"));
        }
    }

    /// Counts answered requests of a kind.
    pub(super) fn count(&self, kind: &'static str, requests: u64) {
        *self.lock().requests.entry(kind).or_default() += requests;
    }

    pub(super) fn requests(&self) -> BTreeMap<&'static str, u64> {
        self.lock().requests.clone()
    }

    pub(super) fn excused(&self) -> u64 {
        self.lock().excused
    }

    /// Errors that no trouble excuses.
    pub(super) fn strays(&self) -> u64 {
        self.lock().strays
    }

    pub(super) fn troubles(&self) -> BTreeMap<&'static str, Trouble> {
        self.lock().troubles.clone()
    }

    /// Makes each of `owners` settle, and waits until all of them have.
    pub(super) fn settle(&self, owners: usize) {
        // SeqCst: partners of `settlements` and `has_settled`.
        let wanted = self.settling.fetch_add(1, Ordering::SeqCst) + 1;
        let end = Instant::now() + Duration::from_secs(120);
        while self.settled.load(Ordering::SeqCst) < wanted * owners && !self.is_over() {
            assert!(Instant::now() < end, "the owners of keys do not settle");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of settlements so far, including the present one. SeqCst: partner of `settle`.
    pub(super) fn settlements(&self) -> usize {
        self.settling.load(Ordering::SeqCst)
    }

    pub(super) fn has_settled(&self) {
        // SeqCst: partner of `settle`.
        self.settled.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn progress(&self, round: u64) -> String {
        let state = self.lock();
        let requests: u64 = state.requests.values().sum();
        let troubles: u64 = state.troubles.values().map(|trouble| trouble.times).sum();
        format!(
            "{:>6.1} min, round {}: {requests} requests, {troubles} troubles, {} errors in them, settled",
            self.begin.elapsed().as_secs_f64() / 60.0,
            round + 1,
            state.excused
        )
    }

    fn write(&self, line: &str) {
        let _ = writeln!(self.lock().log, "{:>10.3} s {line}", self.begin.elapsed().as_secs_f64());
    }
}

/// The message of a panic.
fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}
