//! Files that the running server reads again: all of them on SIGHUP and by `refresh_certs`, and
//! changed ones, a second or two after the change.
//!
//! A file that is being written is read only when it has been the same for a second: half a file of
//! settings would give other settings, and half a file of users would lock users out.
//!
//! Files that could not be used are tried again every second, even without a change: the reason may
//! disappear, such as a file's owner or a lack of descriptors. Until then, a removed user can still
//! log in.

use std::cell::RefCell;
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use access::ReloadError;
use files::Stamp;
use metrics::supervisor;
use options::Options;

use super::Failure;
use super::live::Live;
use crate::entry::Entry;
use crate::log::Log;
use crate::reloads::Part;
use crate::shared::Shared;

/// The files of the parts, each in its state before the last reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen(Vec<(Part, PathBuf, Option<Stamp>)>);

impl Seen {
    /// The files that the options name, in their present state, and those of `settings`.
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

    /// The parts that have a different file in `now`.
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

/// The results of the last readings.
#[derive(Debug)]
struct State {
    seen: Seen,
    failed: Failed,
}

/// The parts that could not be used the last time, and the reasons.
#[derive(Debug, Default)]
struct Failed(Vec<(Part, String)>);

impl Failed {
    fn parts(&self) -> impl Iterator<Item = Part> {
        self.0.iter().map(|(part, _)| *part)
    }

    fn forget(&mut self, part: Part) {
        self.0.retain(|(known, _)| *known != part);
    }

    /// Returns true if the reason differs from the previous one.
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
    /// The last unusable file of users, rights, certificates or namespaces, and the reason.
    pub(super) fn all(&self) -> Result<(), ReloadError> {
        supervisor::reloading();
        let mut state = self.state();
        let State { seen, failed } = &mut *state;
        *seen = seen.now();
        // An explicit request reports each failure again.
        *failed = Failed::default();
        // Each part is independent: a failing one does not prevent the others from being read.
        let errors: Vec<_> =
            Part::ALL.into_iter().filter_map(|part| self.part(part, failed).err()).collect();
        supervisor::reloaded();
        errors.into_iter().next_back().map_or(Ok(()), Err)
    }

    /// Reads the parts again whose files have changed or could not be used, if the files are still
    /// as in `before`. Returns their present state.
    fn changed(&self, before: &Seen) -> Seen {
        let mut state = self.state();
        let now = state.seen.now();
        if now == *before {
            let mut due = state.seen.changed(&now);
            due.extend(state.failed.parts());
            state.seen = now.clone();
            for part in Part::ALL.into_iter().filter(|part| due.contains(part)) {
                // It has already reported this.
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
        let warn = |warning: String| warnings.borrow_mut().push(warning);
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
                Err(why) => self.warn_unchanged(part, why),
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
                    self.warn_unchanged(Part::Settings, &why);
                }
            }
        }
    }

    fn warn_unchanged(&self, part: Part, why: &dyn fmt::Display) {
        self.log.warning(format_args!("{}: unchanged: {why}", part.title()));
    }

    /// Held while files are read, so that readings do not overlap.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread that checks for changed files; it ends when this is dropped.
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
            // If it has panicked, the server still ends.
            let _ = thread.join();
        }
    }
}

/// The time between two checks of the files.
const PERIOD: Duration = Duration::from_secs(1);
