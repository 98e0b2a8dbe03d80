//! `watch evictions`: a line for each item that a thread (a worker or the cleaner) evicts.

use std::io::Write;
use std::sync::Arc;

use proto::uri;
use store::{Item, Observer};
use watch::hub::{Events, Watchers};

use crate::clock::Clock;

/// One thread's reports.
#[derive(Debug)]
pub(crate) struct EvictionReports {
    watchers: Arc<Watchers>,
    clock: Clock,
    is_on: bool,
}

impl EvictionReports {
    pub(crate) fn new(watchers: &Arc<Watchers>, clock: Clock) -> Self {
        Self { watchers: Arc::clone(watchers), clock, is_on: false }
    }

    /// The thread's new observer, if it differs from the previous one.
    pub(crate) fn changed(&mut self) -> Option<Option<Observer>> {
        let is_wanted = self.watchers.watched().meets(Events::EVICTIONS);
        if is_wanted == self.is_on {
            return None;
        }
        self.is_on = is_wanted;
        let (watchers, clock) = (Arc::clone(&self.watchers), self.clock);
        Some(
            is_wanted.then(|| -> Observer {
                Box::new(move |item| report(&watchers, item, clock.secs()))
            }),
        )
    }
}

fn report(watchers: &Watchers, item: &Item<'_>, now_secs: u32) {
    watchers.report(Events::EVICTIONS, |line| {
        line.extend_from_slice(b"type=eviction key=");
        uri::encode(item.key(), line);
        let fetched = if item.is_fetched() { "yes" } else { "no" };
        let deadline = i64::from(item.deadline());
        let ttl = if deadline == 0 { -1 } else { deadline - i64::from(now_secs) };
        let _ = write!(
            line,
            " fetch={fetched} ttl={ttl} la={} clsid={} size={}",
            item.idle_secs(),
            item.class(),
            item.value_len()
        );
    });
}
