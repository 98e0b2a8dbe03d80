//! A thread of periodic work: it samples counters for rates, collects times of answers, writes
//! statistics files, keeps the saved configuration fresh, and logs servers that go down and come
//! back.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use upstream::{Address, State};

use crate::dump::{Dump, TOUCH_PERIOD};
use crate::history::{Moment, PERIOD};
use crate::latency::COLLECT_PERIOD;
use crate::shared::Shared;
use crate::stats::files::Files;
use crate::stats::is_due;

/// How often it looks.
const TICK: Duration = Duration::from_millis(100);

/// Starts it; it ends when `is_over` says so.
///
/// # Errors
///
/// When there is no thread.
pub(crate) fn start(
    shared: &Arc<Shared>,
    files: Option<Files>,
    is_over: impl Fn() -> bool + Send + 'static,
    log: impl Fn(&str) + Send + 'static,
) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let look = move || {
        let (mut noted, mut collected, mut written) = (Some(Instant::now()), None, None);
        let (mut servers, mut told) = (BTreeMap::new(), String::new());
        let every = Duration::from_millis(shared.options.stats_logging_interval);
        let (dump, mut touched) = (Dump::of(&shared.options), Some(Instant::now()));
        while !is_over() {
            if is_due(noted, PERIOD) {
                noted = Some(Instant::now());
                shared.history.note(Moment::of(&shared.registry));
            }
            if is_due(collected, COLLECT_PERIOD) {
                collected = Some(Instant::now());
                shared.recent.collect(&shared.registry, Instant::now());
            }
            if let Some(files) = files.as_ref().filter(|_| is_due(written, every)) {
                written = Some(Instant::now());
                let result = files.write(&shared).map_err(|error| error.to_string());
                let error = result.err().unwrap_or_default();
                if !error.is_empty() && error != told {
                    log(&format!("the files of statistics cannot be written: {error}"));
                }
                told = error;
            }
            if let Some(dump) = dump.as_ref().filter(|_| is_due(touched, TOUCH_PERIOD)) {
                touched = Some(Instant::now());
                dump.touch();
            }
            // Relaxed: the level stands alone.
            if shared.verbosity.load(Ordering::Relaxed) > 0 {
                tell_servers(&shared, &mut servers, &log);
            }
            thread::sleep(TICK);
        }
    };
    thread::Builder::new().name("observer".to_owned()).spawn(look).map(drop)
}

/// Tells of servers that were knocked out, or came back, since the last look.
fn tell_servers(shared: &Shared, before: &mut BTreeMap<Address, bool>, log: &impl Fn(&str)) {
    let reports = shared.registry.report();
    let now: BTreeMap<Address, bool> = reports
        .into_iter()
        .map(|report| (report.address, matches!(report.state, State::SoftTko | State::HardTko)))
        .collect();
    for (address, is_out) in &now {
        if before.get(address).copied().unwrap_or(false) != *is_out {
            let what = if *is_out { "is knocked out" } else { "is back" };
            log(&format!("the server {address} {what}"));
        }
    }
    *before = now;
}
