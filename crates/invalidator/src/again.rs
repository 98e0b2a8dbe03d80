//! What a panic does: the process begins again in its place, at the position that was kept.
//!
//! The library for MySQL's protocol takes it for impossible that a packet is shorter than its event says, and panics, wherever it is just
//! then. A program that is built to abort at a panic cannot catch that; but its panic hook still runs, and replaces the process by itself:
//! same process id, nothing in memory. The position waits for what was delivered, so nothing is skipped; what was in hand is
//! delivered again. A log that makes it panic each time is read again less and less often, and delivery of what was read before goes on
//! meanwhile.

use std::ffi::OsString;
use std::fmt;
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

use crate::stats::Stats;

/// The first pause before it begins again, and the longest.
const PAUSES_MS: std::ops::RangeInclusive<u64> = 100..=30_000;

/// Who has run for so long without a panic begins with the first pause.
const LONG: Duration = Duration::from_secs(60);

/// How often somebody who waits looks whether it is to end.
const TICK: Duration = Duration::from_millis(20);

/// What happened before this process began: `COUNT:MILLISECONDS`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Before {
    /// Panics so far.
    pub(crate) panics: u64,
    /// The last pause, in milliseconds.
    pause_ms: u64,
}

impl FromStr for Before {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once(':').and_then(|(panics, pause_ms)| {
            Some(Self { panics: panics.parse().ok()?, pause_ms: pause_ms.parse().ok()? })
        });
        numbers.ok_or_else(|| format!("'{text}' is not COUNT:MILLISECONDS"))
    }
}

impl fmt::Display for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.panics, self.pause_ms)
    }
}

impl Before {
    /// As it is after one more panic of a process that ran for so long.
    fn next(self, ran: Duration) -> Self {
        let doubled = if ran >= LONG { 0 } else { self.pause_ms.saturating_mul(2) };
        let pause_ms = doubled.clamp(*PAUSES_MS.start(), *PAUSES_MS.end());
        Self { panics: self.panics.saturating_add(1), pause_ms }
    }
}

/// How the process began, which is how it begins again.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The configuration file.
    pub(crate) config: PathBuf,
    /// `--since`.
    pub(crate) since: Option<String>,
    /// `--on-gap`.
    pub(crate) on_gap: Option<String>,
    /// `--after-panics`.
    pub(crate) before: Before,
}

impl Start {
    /// Arguments for the next one. Once a position is kept it counts, and no other.
    fn arguments(&self, next: Before, is_kept: bool) -> Vec<OsString> {
        let mut all: Vec<OsString> = ["invalidate", "run", "--config"].map(OsString::from).into();
        all.push(self.config.clone().into());
        let since = self.since.as_ref().filter(|_| !is_kept);
        let before = next.to_string();
        let more = [
            ("--since", since),
            ("--on-gap", self.on_gap.as_ref()),
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

/// From here on a panic of any thread makes the process begin again, unless it `is_ending`.
pub(crate) fn begin_again_on_panic(
    start: Start,
    stats: Arc<Stats>,
    is_ending: Arc<AtomicBool>,
    log: fn(&str),
) {
    let began = Instant::now();
    std::panic::set_hook(Box::new(move |panic| {
        again(panic, &start, began.elapsed(), &stats, &is_ending, log);
    }));
}

fn again(
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
        "what cannot be understood has come: {panic}; no position was kept for it, and reading begins again where that says, in {} ms. \
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
    // The name may be another file's by now, or nobody's.
    let own = std::env::current_exe().ok().filter(|path| path.exists());
    let program = own.unwrap_or_else(|| Path::new("/proc/self/exe").to_owned());
    let arguments = start.arguments(next, stats.checkpoints.load(Relaxed) > 0);
    let error = Command::new(program).arg0("holdall").args(arguments).exec();
    log(&format!("it cannot begin again: {error}"));
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_forgotten_after_a_long_run() {
        let mut before = Before::default();
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
    fn it_begins_again_as_it_began_but_at_the_position_that_was_kept() {
        let before: Before = "3:400".parse().unwrap();
        assert_eq!(before.to_string(), "3:400");
        assert!("3".parse::<Before>().is_err() && "a:1".parse::<Before>().is_err());
        let start = Start {
            config: "c.toml".into(),
            since: Some("now".to_owned()),
            on_gap: Some("flush".to_owned()),
            before,
        };
        let next = before.next(Duration::ZERO);
        let words = |is_kept| start.arguments(next, is_kept).join(&OsString::from(" "));
        assert_eq!(
            words(false),
            "invalidate run --config c.toml --since now --on-gap flush --after-panics 4:800"
        );
        assert_eq!(
            words(true),
            "invalidate run --config c.toml --on-gap flush --after-panics 4:800"
        );
    }
}
