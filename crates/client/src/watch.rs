//! The thread that asks sources of servers, and resolvers for the addresses of names, now and then;
//! where there are neither, there is no thread.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::{io, thread};

use crate::builder::{Builder, Planned};
use crate::client::Inner;

/// What the client has of it.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What is in use; a configuration that another has replaced is asked for no more.
    builder: Option<Builder>,
    /// Counts those that were in use.
    generation: u64,
    /// Its servers with their addresses.
    membership: String,
    /// Dropped, it ends the thread.
    alive: Option<Sender<()>>,
}

fn membership(planned: &Planned) -> String {
    format!("{:?}", planned.plan.targets())
}

/// From here on, `planned` is in use, and comes from `builder`.
///
/// # Errors
///
/// When there is no thread.
pub(crate) fn start(inner: &Arc<Inner>, builder: Builder, planned: &Planned) -> io::Result<()> {
    let mut state = inner.watch.state.lock().unwrap_or_else(PoisonError::into_inner);
    let period = builder.period();
    state.generation += 1;
    state.membership = membership(planned);
    state.builder = planned.is_dynamic.then_some(builder);
    if !planned.is_dynamic || state.alive.is_some() {
        return Ok(());
    }
    let (alive, is_over) = mpsc::channel::<()>();
    state.alive = Some(alive);
    let client = Arc::downgrade(inner);
    let watch = move || {
        while is_over.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            look(&client);
        }
    };
    thread::Builder::new().name("holdall-discovery".to_owned()).spawn(watch).map(drop)
}

/// Asks once. What fails changes nothing.
fn look(client: &Weak<Inner>) {
    let (builder, generation) = {
        let Some(inner) = client.upgrade() else { return };
        let state = inner.watch.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.builder.clone(), state.generation)
    };
    let Some(planned) = builder.and_then(|builder| builder.plan().ok()) else { return };
    let Some(inner) = client.upgrade() else { return };
    let mut state = inner.watch.state.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = membership(&planned);
    let is_other = fresh != state.membership && generation == state.generation;
    if is_other && inner.replace(&planned.plan).is_ok() {
        state.membership = fresh;
    }
}
