//! The thread that periodically queries sources of servers, and resolvers for the addresses of
//! names. Without either, there is no thread.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use std::{fmt, io, thread};

use crate::own_sources::OwnSources;
use routes::{Plan, Target};

/// A parsed configuration.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) plan: Arc<Plan>,
    /// Its servers come from a source, or have names whose addresses may change.
    pub(crate) is_dynamic: bool,
}

/// The watched configuration.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The configuration in use, if its servers may change.
    watched: Option<Arc<dyn Watched>>,
    /// Counts the configurations that were in use.
    generation: u64,
    /// Its plan; `None` before the first.
    plan: Option<Arc<Plan>>,
    /// Its servers with their addresses.
    targets: Vec<Target>,
    /// The sources of its servers.
    sources: Arc<OwnSources>,
    /// Dropped, it ends the thread.
    alive: Option<Sender<()>>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("targets", &self.targets).finish_non_exhaustive()
    }
}

impl State {
    /// Returns true if the plan with these servers differs from the one in use. Comparing the
    /// servers is not enough: one may have joined another pool, or have changed its place, name or
    /// tag there.
    fn differs(&self, plan: &Plan, targets: &[Target]) -> bool {
        let is_same = self.plan.as_ref().is_some_and(|in_use| in_use.config() == plan.config());
        !is_same || self.targets != targets
    }
}

impl Watch {
    /// The configuration in use, and its sources.
    pub(crate) fn in_use(&self) -> (Option<Arc<Plan>>, Arc<OwnSources>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.plan.clone(), Arc::clone(&state.sources))
    }
}

/// A configuration that can be rebuilt, and a client that accepts it.
trait Watched: Send + Sync {
    fn plan(&self, before: &Plan) -> Option<Planned>;
    fn replace(&self, plan: &Arc<Plan>) -> bool;
}

impl<P, R> Watched for (P, R)
where
    P: Fn(&Plan) -> Option<Planned> + Send + Sync,
    R: Fn(&Arc<Plan>) -> bool + Send + Sync,
{
    fn plan(&self, before: &Plan) -> Option<Planned> {
        self.0(before)
    }

    fn replace(&self, plan: &Arc<Plan>) -> bool {
        self.1(plan)
    }
}

/// Puts `planned` into use by `load`, in place of any other, and watches its servers, named by
/// `sources`. Every `period`, `plan` rebuilds the configuration, which follows the one in use. If
/// it differs, `replace` loads it, and returns whether it could.
///
/// The lock is held during `load`. Otherwise a query of the old sources could replace the new
/// configuration before it is noted, and no later query would see the difference.
///
/// # Errors
///
/// If there is no thread, or that of `load`; nothing changes then.
pub(crate) fn start(
    watch: &Arc<Watch>,
    period: Duration,
    sources: Arc<OwnSources>,
    planned: &Planned,
    load: impl FnOnce() -> io::Result<()>,
    plan: impl Fn(&Plan) -> Option<Planned> + Send + Sync + 'static,
    replace: impl Fn(&Arc<Plan>) -> bool + Send + Sync + 'static,
) -> io::Result<()> {
    let mut state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
    if planned.is_dynamic && state.alive.is_none() {
        state.alive = Some(spawn(Arc::downgrade(watch), period)?);
    }
    load()?;
    state.generation += 1;
    (state.targets, state.sources) = (planned.plan.targets(), sources);
    state.plan = Some(Arc::clone(&planned.plan));
    state.watched = planned.is_dynamic.then(|| Arc::new((plan, replace)) as Arc<dyn Watched>);
    Ok(())
}

/// Starts the thread, which ends when the sender is dropped.
fn spawn(watch: Weak<Watch>, period: Duration) -> io::Result<Sender<()>> {
    let (alive, is_over) = mpsc::channel::<()>();
    let run = move || {
        while is_over.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            look(&watch);
        }
    };
    thread::Builder::new().name("holdall-discovery".to_owned()).spawn(run).map(|_| alive)
}

/// Queries once. A failure changes nothing.
fn look(watch: &Weak<Watch>) {
    let (watched, generation, before) = {
        let Some(watch) = watch.upgrade() else { return };
        let state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.watched.clone(), state.generation, state.plan.clone())
    };
    // No lock is held while sources are queried, and the client may end.
    let Some((watched, before)) = watched.zip(before) else { return };
    let Some(planned) = watched.plan(&before) else { return };
    let Some(watch) = watch.upgrade() else { return };
    let mut state = watch.state.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = planned.plan.targets();
    let is_other = generation == state.generation && state.differs(&planned.plan, &fresh);
    if is_other && watched.replace(&planned.plan) {
        (state.targets, state.plan) = (fresh, Some(planned.plan));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::TryLockError;

    use routeconf::{MemorySources, Params, load};
    use routes::TreeFlags;
    use upstream::Settings;

    use super::*;

    fn planned(server: &str) -> Planned {
        let text =
            format!(r#"{{"pools": {{"A": {{"servers": ["{server}"]}}}}, "route": "PoolRoute|A"}}"#);
        let (params, mut none) = (Params::new("/././"), MemorySources::default());
        let loaded = load("test.json", &text, &params, &mut none).unwrap();
        let plan = Plan::new(loaded.config, Settings::default(), TreeFlags::default()).unwrap();
        Planned { plan: Arc::new(plan), is_dynamic: false }
    }

    fn start(
        watch: &Arc<Watch>,
        planned: &Planned,
        load: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (day, sources) = (Duration::from_secs(86_400), Arc::default());
        super::start(watch, day, sources, planned, load, |_| None, |_| true)
    }

    fn servers(watch: &Watch) -> Vec<Target> {
        watch.in_use().0.map(|plan| plan.targets()).unwrap_or_default()
    }

    /// A query that takes the lock after a new configuration was loaded finds it in use.
    #[test]
    fn no_query_comes_between_the_load_and_its_note() {
        let (watch, planned) = (Arc::new(Watch::default()), planned("127.0.0.1:1"));
        let mut is_locked = false;
        let load = || {
            is_locked = matches!(watch.state.try_lock(), Err(TryLockError::WouldBlock));
            Ok(())
        };
        start(&watch, &planned, load).unwrap();
        assert!(is_locked, "a query could replace what is loaded");
        assert_eq!(servers(&watch), planned.plan.targets());
    }

    #[test]
    fn a_failed_load_changes_nothing() {
        let (watch, one, two) =
            (Arc::new(Watch::default()), planned("127.0.0.1:1"), planned("127.0.0.1:2"));
        start(&watch, &one, || Ok(())).unwrap();
        start(&watch, &two, || Err(io::Error::other("closed"))).unwrap_err();
        assert_eq!(servers(&watch), one.plan.targets());
    }
}
