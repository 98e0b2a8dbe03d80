//! Sources of servers while the proxy runs. A separate thread queries them, so that a slow or
//! unavailable one does not delay the reading of changed files.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use discovery::Discovery;
use signal_hook::iterator::Handle;

use crate::shared::Shared;

/// The interval at which it checks for the end of the proxy.
const TICK: Duration = Duration::from_millis(100);

/// Queries all sources and looks up all names of servers at regular intervals. The receiver gets a
/// message after each time.
///
/// # Errors
///
/// If there is no thread.
pub(crate) fn start(
    discovery: &Arc<Discovery>,
    every: Duration,
    end: Handle,
) -> io::Result<Receiver<()>> {
    let (done, receiver) = mpsc::channel();
    let discovery = Arc::clone(discovery);
    let ask = move || {
        loop {
            let next = Instant::now() + every;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                if end.is_closed() {
                    return;
                }
                thread::sleep(left.min(TICK));
            }
            discovery.refresh();
            if end.is_closed() || done.send(()).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("sources".to_owned()).spawn(ask)?;
    Ok(receiver)
}

/// The unavailable sources.
#[derive(Debug, Default)]
pub(crate) struct Away(BTreeSet<String>);

impl Away {
    /// Reports newly unavailable sources, and those that are back, once. True if all are available.
    pub(crate) fn report(&mut self, discovery: &Discovery, log: &(impl Fn(&str) + ?Sized)) -> bool {
        let outcomes = discovery.outcomes();
        for (source, outcome) in &outcomes {
            match outcome {
                Err(reason) if self.0.insert(source.clone()) => {
                    log(&format!("{source}: {reason}; the servers that it named last stay"));
                }
                Ok(()) if self.0.remove(source) => {
                    log(&format!("{source}: it names its servers again"));
                }
                _ => {}
            }
        }
        // Sources that the configuration no longer has.
        self.0.retain(|source| outcomes.contains_key(source));
        self.0.is_empty()
    }

    /// Counts a failure for each unavailable source.
    pub(crate) fn count(&self, shared: &Shared) {
        let failed = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        // Relaxed: a count, which orders nothing else.
        shared.config.failures.fetch_add(failed, Ordering::Relaxed);
    }
}
