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
pub(crate) struct Away {
    sources: BTreeSet<String>,
    /// An answer could not be written to the folder, which has been reported.
    is_not_kept: bool,
}

impl Away {
    /// Reports newly unavailable sources, those that are back, and answers that are not kept, once.
    /// True if all sources are available.
    pub(crate) fn report(&mut self, discovery: &Discovery, log: &(impl Fn(&str) + ?Sized)) -> bool {
        let outcomes = discovery.outcomes();
        for (source, outcome) in &outcomes {
            match outcome {
                Err(reason) if self.sources.insert(source.clone()) => {
                    log(&format!(
                        "warning: {source}: {reason}; the servers that it named last stay"
                    ));
                }
                Ok(()) if self.sources.remove(source) => {
                    log(&format!("{source}: it names its servers again"));
                }
                _ => {}
            }
        }
        // Sources that the configuration no longer has.
        self.sources.retain(|source| outcomes.contains_key(source));
        let not_kept = discovery.not_kept();
        if let Some(reason) = not_kept.as_ref().filter(|_| !self.is_not_kept) {
            log(&format!("warning: --discovery-dir: an answer is not kept: {reason}"));
        }
        self.is_not_kept = not_kept.is_some();
        self.sources.is_empty()
    }

    /// Counts a failure for each unavailable source.
    pub(crate) fn count(&self, shared: &Shared) {
        let failed = u64::try_from(self.sources.len()).unwrap_or(u64::MAX);
        // Relaxed: a count, which orders nothing else.
        shared.config.failures.fetch_add(failed, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_answer_that_is_not_kept_is_reported_once() {
        let discovery = Discovery::new(Some(PathBuf::from("/nonexistent")));
        let lines = RefCell::new(Vec::new());
        let log = |line: &str| lines.borrow_mut().push(line.to_owned());
        let mut away = Away::default();
        for _ in 0..2 {
            discovery.servers("dns:127.0.0.1:7").unwrap();
            assert!(away.report(&discovery, &log));
        }
        let lines = lines.into_inner();
        let path = "/nonexistent/dns%3A127.0.0.1%3A7.servers: ";
        assert!(lines.len() == 1 && lines[0].contains(path), "{lines:?}");
    }
}
