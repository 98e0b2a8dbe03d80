//! The cleaner's thread: calls the store's [`Cleaner`] until it is stopped.
//!
//! While workers turn, it steps every few milliseconds. While none does, it wakes once per second,
//! when the clock's second changes and items expire, and does the steps of that second in a row.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use store::{Cleaner, Step, Store};

use super::Failure;
use super::pace::{Next, Pace};
use crate::activity::{Activity, Woken};
use crate::clock::Clock;
use crate::crawler::{CRAWLED_AT_ONCE, Crawler};
use crate::eviction_reports::EvictionReports;
use crate::shared::Shared;

/// The running thread.
#[derive(Debug)]
pub(super) struct CleanerThread {
    activity: Arc<Activity>,
    thread: JoinHandle<()>,
}

impl CleanerThread {
    /// Starts it.
    pub(super) fn start(
        store: &Arc<Store>,
        clock: Clock,
        service: &Shared,
    ) -> Result<Self, Failure> {
        let (store, crawler) = (Arc::clone(store), Arc::clone(&service.crawler));
        let mut evictions = EvictionReports::new(&service.watchers, clock);
        let activity = Arc::clone(&service.activity);
        let body = move || {
            // This succeeds: the store was made for more threads than the workers.
            let Some(mut cleaner) = Cleaner::new(&store) else { return };
            let (mut crawled_at, mut is_busy) = (None, false);
            let mut pace = Pace::default();
            loop {
                if let Some(observer) = evictions.changed() {
                    cleaner.on_evict(observer);
                }
                let step = cleaner.step(clock.secs(), if is_busy { BUSY_BUDGET } else { BUDGET });
                is_busy = step.busy;
                if is_busy {
                    // A worker on the same core gets its turn.
                    thread::yield_now();
                }
                let is_crawling = store.is_crawling();
                let is_idle = !is_crawling && !is_busy && step.reclaimed == 0;
                let mut pause = pause_after(step);
                if is_crawling {
                    pause = pause.min(crawl(&mut cleaner, clock, &crawler, &mut crawled_at));
                }
                let woken = match pace.after_step(is_idle) {
                    Next::Pause => activity.pause(pause),
                    Next::Step => activity.pause(Duration::ZERO),
                    Next::Sleep => {
                        let woken = activity.sleep(clock.until_next_second());
                        pace.after_sleep(woken);
                        woken
                    }
                };
                if woken == Woken::ByEnd {
                    return;
                }
            }
        };
        let thread = thread::Builder::new()
            .name("cleaner".to_owned())
            .spawn(body)
            .map_err(|error| Failure::os(format!("cannot start the cleaner: {error}")))?;
        Ok(Self { activity: Arc::clone(&service.activity), thread })
    }

    /// Stops it and waits for its end.
    pub(super) fn stop(self) {
        self.activity.end();
        if let Err(panic) = self.thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Does a step of a crawl if the pause since the last one is over; returns the wait until the next.
fn crawl(
    cleaner: &mut Cleaner,
    clock: Clock,
    crawler: &Crawler,
    crawled_at: &mut Option<Instant>,
) -> Duration {
    let wait = crawled_at.map_or(Duration::ZERO, |at| crawler.pause().saturating_sub(at.elapsed()));
    if !wait.is_zero() {
        return wait;
    }
    cleaner.crawl(clock.secs(), CRAWLED_AT_ONCE);
    *crawled_at = Some(Instant::now());
    crawler.pause()
}

/// Continues at once while there is work, soon after some, and otherwise often enough for new bags.
fn pause_after(step: Step) -> Duration {
    match step {
        Step { busy: true, .. } => Duration::ZERO,
        Step { reclaimed: 1.., .. } => PAUSE_ACTIVE,
        _ => PAUSE_IDLE,
    }
}

/// Items checked in one step: well under a millisecond of work.
const BUDGET: usize = 2000;

/// Items checked in one step while steps follow each other at once. A worker on the same core waits
/// for the duration of a step.
const BUSY_BUDGET: usize = 1000;

const PAUSE_ACTIVE: Duration = Duration::from_millis(2);

const PAUSE_IDLE: Duration = Duration::from_millis(10);
