//! Restarts the process in place after a panic, at the saved position.
//!
//! The library for MySQL's protocol panics when a packet is shorter than its event says. A program
//! built to abort on panic cannot catch that, but its panic hook still runs. The hook replaces the
//! process with a new one with the same process id. The saved position never passes an undelivered
//! delete, so nothing is skipped; some deletes are repeated. If the log causes a panic each time,
//! the pauses before a restart grow; other threads deliver read changes.
//!
//! Relaxed orderings are enough here: the counters are for `stats`, and `is_ending` carries no
//! data.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::panic::PanicHookInfo;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use crate::signals;
use crate::stats::Stats;
use crate::status_socket;

/// The first pause before a restart, and the longest, in milliseconds.
const PAUSES_MS: std::ops::RangeInclusive<u64> = 100..=30_000;

/// After a run of this length without a panic, pauses start at the shortest again.
const LONG: Duration = Duration::from_secs(60);

/// The interval at which a pause checks whether the process should end.
const TICK: Duration = Duration::from_millis(20);

/// The panics before this process image started, as text `COUNT:MILLISECONDS`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct History {
    /// Panics so far.
    pub(crate) panics: u64,
    /// The last pause, in milliseconds.
    pause_ms: u64,
}

/// Text that is not a history.
#[derive(Debug, thiserror::Error)]
#[error("'{0}' is not COUNT:MILLISECONDS")]
pub(crate) struct NotAHistory(String);

impl FromStr for History {
    type Err = NotAHistory;

    fn from_str(text: &str) -> Result<Self, NotAHistory> {
        let numbers = text.split_once(':').and_then(|(panics, pause_ms)| {
            Some(Self { panics: panics.parse().ok()?, pause_ms: pause_ms.parse().ok()? })
        });
        numbers.ok_or_else(|| NotAHistory(text.to_owned()))
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.panics, self.pause_ms)
    }
}

impl History {
    /// The history after one more panic of a process that ran for `ran`.
    fn next(self, ran: Duration) -> Self {
        let doubled = if ran >= LONG { 0 } else { self.pause_ms.saturating_mul(2) };
        let pause_ms = doubled.clamp(*PAUSES_MS.start(), *PAUSES_MS.end());
        Self { panics: self.panics.saturating_add(1), pause_ms }
    }
}

/// The options of the process, from which those of its successor are made.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// `--since`.
    pub(crate) since: Option<String>,
    /// `--on-gap`.
    pub(crate) on_gap: Option<String>,
    /// `--console`.
    pub(crate) console: Option<String>,
    /// `--after-panics`.
    pub(crate) before: History,
}

impl Start {
    /// Arguments of the successor. Once a position is saved, `--since` no longer applies.
    pub(crate) fn arguments(&self, next: History, is_kept: bool) -> Vec<OsString> {
        let mut all: Vec<OsString> = ["invalidate", "run", "--config"].map(OsString::from).into();
        all.push(self.config.clone().into());
        let since = self.since.as_ref().filter(|_| !is_kept);
        let before = next.to_string();
        let more = [
            ("--since", since),
            ("--on-gap", self.on_gap.as_ref()),
            ("--console", self.console.as_ref()),
            ("--after-panics", Some(&before)),
        ];
        for (name, value) in more {
            if let Some(value) = value {
                all.extend([OsString::from(name), OsString::from(value)]);
            }
        }
        all
    }
}

/// Makes a panic of any thread restart the process, unless it `is_ending`.
pub(crate) fn restart_on_panic(
    start: Start,
    stats: Arc<Stats>,
    is_ending: Arc<AtomicBool>,
    log: fn(&str),
) {
    let began = Instant::now();
    std::panic::set_hook(Box::new(move |panic| {
        restart(panic, &start, began.elapsed(), &stats, &is_ending, log);
    }));
}

fn restart(
    panic: &PanicHookInfo<'_>,
    start: &Start,
    ran: Duration,
    stats: &Stats,
    is_ending: &AtomicBool,
    log: fn(&str),
) {
    let next = start.before.next(ran);
    stats.panics.store(next.panics, Relaxed);
    log(&format!(
        "warning: what cannot be understood has come: {panic}; no position was kept for it, and reading begins again where that says, in {} ms. \
         If that does not end, the log there is damaged: see docs/invalidation.md",
        next.pause_ms
    ));
    let pause = Instant::now();
    while pause.elapsed() < Duration::from_millis(next.pause_ms) {
        if is_ending.load(Relaxed) {
            std::process::exit(1);
        }
        thread::sleep(TICK);
    }
    let error = begin_again(&start.arguments(next, stats.checkpoints.load(Relaxed) > 0));
    log(&format!("warning: it cannot begin again: {error}"));
    std::process::exit(1);
}

/// Replaces this process with a new one of the same process id, or ends it if a signal has
/// requested that. It returns only with an error.
pub(crate) fn begin_again(arguments: &[OsString]) -> io::Error {
    // By now, the path may lead to another file, or to none.
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    let program = own.unwrap_or_else(|| Path::new("/proc/self/exe").to_owned());
    let mut command = Command::new(program);
    match status_socket::pass_on(&mut command) {
        Ok(()) => {
            if signals::hold() {
                std::process::exit(0);
            }
            command.arg0("holdall").args(arguments).exec()
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_reset_after_a_long_run() {
        let mut before = History::default();
        let mut pauses = Vec::new();
        for _ in 0..12 {
            before = before.next(Duration::from_secs(1));
            pauses.push(before.pause_ms);
        }
        assert_eq!(pauses[..4], [100, 200, 400, 800]);
        assert_eq!(pauses[11], 30_000);
        let rested = before.next(LONG);
        assert_eq!((rested.panics, rested.pause_ms), (13, 100));
    }

    #[test]
    fn a_restart_keeps_its_arguments_but_uses_the_kept_position() {
        let before: History = "3:400".parse().unwrap();
        assert_eq!(before.to_string(), "3:400");
        assert!("3".parse::<History>().is_err() && "a:1".parse::<History>().is_err());
        let start = Start {
            config: "c.toml".into(),
            since: Some("now".to_owned()),
            on_gap: Some("flush".to_owned()),
            console: Some("127.0.0.1:8811".to_owned()),
            before,
        };
        let next = before.next(Duration::ZERO);
        let words = |is_kept| start.arguments(next, is_kept).join(&OsString::from(" "));
        assert_eq!(
            words(false),
            "invalidate run --config c.toml --since now --on-gap flush --console 127.0.0.1:8811 \
             --after-panics 4:800"
        );
        assert_eq!(
            words(true),
            "invalidate run --config c.toml --on-gap flush --console 127.0.0.1:8811 \
             --after-panics 4:800"
        );
    }
}
