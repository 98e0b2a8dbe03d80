//! A thread of periodic work: it samples counters for rates, collects times of answers, writes
//! statistics files, keeps the saved configuration fresh, and logs servers that go down and come
//! back.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use crate::dump::{Dump, TOUCH_PERIOD};
use crate::history::{Moment, PERIOD};
use crate::latency::COLLECT_PERIOD;
use crate::outages::Outages;
use crate::shared::Shared;
use crate::stats::files::Files;
use crate::stats::is_due;

/// The interval of its checks.
const TICK: Duration = Duration::from_millis(100);

/// Starts the thread, which ends when `is_over` returns true.
///
/// # Errors
///
/// If there is no thread.
pub(crate) fn start(
    shared: &Arc<Shared>,
    files: Option<Files>,
    is_over: impl Fn() -> bool + Send + 'static,
    log: impl Fn(&str) + Send + 'static,
) -> io::Result<()> {
    let shared = Arc::clone(shared);
    let look = move || {
        let (mut noted, mut collected, mut written) = (Some(Instant::now()), None, None);
        let (mut outages, mut told) = (Outages::default(), String::new());
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
                    log(&format!("warning: the files of statistics cannot be written: {error}"));
                }
                told = error;
            }
            if let Some(dump) = dump.as_ref().filter(|_| is_due(touched, TOUCH_PERIOD)) {
                touched = Some(Instant::now());
                dump.touch();
            }
            // Relaxed: no other data depends on the level.
            let is_verbose = shared.verbosity.load(Ordering::Relaxed) > 0;
            outages.look(&shared.registry.report(), is_verbose, Instant::now(), &log);
            thread::sleep(TICK);
        }
    };
    thread::Builder::new().name("observer".to_owned()).spawn(look).map(drop)
}
