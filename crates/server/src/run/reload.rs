//! Files that are read again while the server runs: all of them on SIGHUP and by `refresh_certs`,
//! and those that have changed, a second or two after the change.
//!
//! A file that is being written is left alone until it has been the same for a second: half a file
//! of settings would be one with other settings, and half a file of users would lock users out.
//!
//! What could not be used is tried again every second, though no file has changed since: the reason
//! may be one that passes, such as a file's owner or a lack of descriptors. A user that was removed
//! stays until then.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use access::{ReloadError, Warning};
use files::Stamp;
use metrics::supervisor;
use options::Options;

use super::Failure;
use super::live::Live;
use crate::entry::Entry;
use crate::log::Log;
use crate::reloads::Part;
use crate::shared::Shared;

/// The files of the parts, each as it was before it was read the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(Vec<(Part, PathBuf, Option<Stamp>)>);

impl Seen {
    /// The files that options name, as they are now, and those of `settings` as they were.
    pub(super) fn new(options: &Options, settings: &[(PathBuf, Option<Stamp>)]) -> Self {
        let settings = settings.iter().map(|(path, stamp)| (Part::Settings, path.clone(), *stamp));
        let users = [&options.auth.users, &options.auth.rights].into_iter().flatten();
        let users = users.map(|path| (Part::Users, path));
        let tls = options.tls.iter().flat_map(|tls| {
            [Some(&tls.chain_cert), Some(&tls.key), tls.ca_cert.as_ref()].into_iter().flatten()
        });
        let tls = tls.map(|path| (Part::Certificates, path));
        let namespaces = options.namespaces.iter().map(|path| (Part::Namespaces, path));
        let others = users.chain(tls).chain(namespaces);
        let others = others.map(|(part, path)| (part, path.clone(), Stamp::of(path)));
        Self(settings.chain(others).collect())
    }

    fn now(&self) -> Self {
        let now = |(part, path, _): &(_, PathBuf, _)| (*part, path.clone(), Stamp::of(path));
        Self(self.0.iter().map(now).collect())
    }

    /// The parts of which a file is another one in `now`.
    fn changed(&self, now: &Self) -> Vec<Part> {
        let differs = |part: Part| self.0.iter().zip(&now.0).any(|(a, b)| a.0 == part && a != b);
        Part::ALL.into_iter().filter(|&part| differs(part)).collect()
    }
}

/// Reads files again, one part at a time.
pub(super) struct Reload {
    live: Option<Arc<Live>>,
    entry: Entry,
    shared: Arc<Shared>,
    log: Log,
    state: Mutex<State>,
}

/// What came of the last readings.
#[derive(Debug)]
struct State {
    seen: Seen,
    failed: Failed,
}

/// The parts that could not be used the last time, and why.
#[derive(Debug, Default)]
struct Failed(Vec<(Part, String)>);

impl Failed {
    fn parts(&self) -> impl Iterator<Item = Part> {
        self.0.iter().map(|(part, _)| *part)
    }

    fn forget(&mut self, part: Part) {
        self.0.retain(|(known, _)| *known != part);
    }

    /// Answers whether the reason is another one than before.
    fn remember(&mut self, part: Part, why: &impl ToString) -> bool {
        let failure = (part, why.to_string());
        let is_news = !self.0.contains(&failure);
        self.forget(part);
        self.0.push(failure);
        is_news
    }
}

impl fmt::Debug for Reload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reload").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Reload {
    pub(super) fn new(
        live: Option<Arc<Live>>,
        entry: Entry,
        shared: &Arc<Shared>,
        log: Log,
        seen: Seen,
    ) -> Arc<Self> {
        let state = Mutex::new(State { seen, failed: Failed::default() });
        Arc::new(Self { live, entry, shared: Arc::clone(shared), log, state })
    }

    /// Reads everything again.
    ///
    /// # Errors
    ///
    /// The last file of users, rights, certificates or namespaces that could not be used, and why.
    pub(super) fn all(&self) -> Result<(), ReloadError> {
        supervisor::reloading();
        let mut state = self.state();
        let State { seen, failed } = &mut *state;
        *seen = seen.now();
        // Whoever asks for it reads of each failure anew.
        *failed = Failed::default();
        // Each part for itself: one that fails keeps no other from being read.
        let errors: Vec<_> =
            Part::ALL.into_iter().filter_map(|part| self.part(part, failed).err()).collect();
        supervisor::reloaded();
        errors.into_iter().next_back().map_or(Ok(()), Err)
    }

    /// Reads those parts again whose files are others now or could not be used, if the files are
    /// still as they were in `before`. Answers how they are now.
    fn changed(&self, before: &Seen) -> Seen {
        let mut state = self.state();
        let now = state.seen.now();
        if now == *before {
            let mut due = state.seen.changed(&now);
            due.extend(state.failed.parts());
            state.seen = now.clone();
            for part in Part::ALL.into_iter().filter(|part| due.contains(part)) {
                // It has said so.
                let _ = self.part(part, &mut state.failed);
            }
        }
        now
    }

    fn part(&self, part: Part, failed: &mut Failed) -> Result<(), ReloadError> {
        if part == Part::Settings {
            self.settings(failed);
            return Ok(());
        }
        let warnings = RefCell::new(Vec::new());
        let warn = |warning: Warning<'_>| warnings.borrow_mut().push(warning.to_string());
        let Some(read) = self.entry.reload(part, &self.shared.engine, warn) else { return Ok(()) };
        self.shared.reloads.of(part).note(read.is_ok());
        let is_news = match &read {
            Ok(()) => {
                failed.forget(part);
                true
            }
            Err(why) => failed.remember(part, why),
        };
        if is_news {
            let warnings = warnings.take();
            warnings.iter().for_each(|warning| self.log.warning(format_args!("{warning}")));
            match &read {
                Ok(()) => self.log.always(format_args!("{}: read again", part.title())),
                Err(why) => self.as_it_was(part, why),
            }
        }
        read
    }

    fn settings(&self, failed: &mut Failed) {
        let Some(live) = &self.live else { return };
        let read = live.reload();
        self.shared.reloads.of(Part::Settings).note(read == Ok(true));
        match read {
            Ok(_) => failed.forget(Part::Settings),
            Err(why) => {
                if failed.remember(Part::Settings, &why) {
                    self.as_it_was(Part::Settings, &why);
                }
            }
        }
    }

    fn as_it_was(&self, part: Part, why: &dyn fmt::Display) {
        self.log.warning(format_args!("{}: unchanged: {why}", part.title()));
    }

    /// Held while files are read, so that one reading comes after the other.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that looks for changed files; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watching {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watching {
    /// Starts it, if there are files.
    pub(super) fn start(reload: &Arc<Reload>) -> Result<Option<Self>, Failure> {
        let mut before = reload.state().seen.clone();
        if before.0.is_empty() {
            return Ok(None);
        }
        let (stop, stopped) = mpsc::channel::<()>();
        let reload = Arc::clone(reload);
        let body = move || {
            while stopped.recv_timeout(PERIOD) == Err(RecvTimeoutError::Timeout) {
                before = reload.changed(&before);
            }
        };
        let thread = thread::Builder::new()
            .name("files".to_owned())
            .spawn(body)
            .map_err(|error| Failure::os(format!("cannot start the thread of files: {error}")))?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread) }))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Should it have panicked, the server ends all the same.
            let _ = thread.join();
        }
    }
}

/// The time between two looks at the files.
const PERIOD: Duration = Duration::from_secs(1);
