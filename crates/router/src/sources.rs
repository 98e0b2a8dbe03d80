//! Sources of servers while the proxy runs. They are asked in a thread of their own: one that is
//! slow or away keeps no changed file from being read.

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

/// How often it looks for the end of the proxy.
const TICK: Duration = Duration::from_millis(100);

/// Asks all sources, and looks up all names of servers, every so often. Whoever receives hears of
/// each time that it was done.
///
/// # Errors
///
/// When there is no thread.
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

/// The sources that are away.
#[derive(Debug, Default)]
pub(crate) struct Away(BTreeSet<String>);

impl Away {
    /// Reports sources that have gone away, and those that are back, once. True if all are there.
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
        // One that the configuration does not have any more.
        self.0.retain(|source| outcomes.contains_key(source));
        self.0.is_empty()
    }

    /// Counts a failure for each that is away.
    pub(crate) fn count(&self, shared: &Shared) {
        let failed = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        // Relaxed: a count, which orders nothing else.
        shared.config.failures.fetch_add(failed, Ordering::Relaxed);
    }
}
