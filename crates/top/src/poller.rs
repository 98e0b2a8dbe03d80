//! Threads that ask the members, one each: a member that does not answer delays no other.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tools::{Connection, Options};

use plan::Target;
use tools::{Reading, Wanted};

/// Bytes of a thread's stack: 200 members shall not cost 400 MB of address space.
const STACK_BYTES: usize = 256 * 1024;

/// A member and what is known of it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Where it is.
    pub(crate) target: Target,
    /// What it said last.
    pub(crate) now: Option<Arc<Reading>>,
    /// What it said before that.
    pub(crate) before: Option<Arc<Reading>>,
    /// Why it does not answer, if the last question had no answer.
    pub(crate) error: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// For the threads: the end, or more is wanted.
    changed: Condvar,
    /// For the caller: a member was asked.
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// How often each member was asked.
    asked: Vec<u64>,
    wants_hot_keys: bool,
    wants_details_of: Option<usize>,
    is_ending: bool,
}

/// The threads, which end with it.
#[derive(Debug)]
pub(crate) struct Poller {
    shared: Arc<Shared>,
}

impl Poller {
    /// Begins to ask the targets, each once in `interval`.
    ///
    /// # Errors
    ///
    /// When the system has no thread more.
    pub(crate) fn start(
        targets: Vec<Target>,
        options: &Options,
        interval: Duration,
    ) -> std::io::Result<Self> {
        let member = |target| Member { target, now: None, before: None, error: None };
        let members: Vec<Member> = targets.into_iter().map(member).collect();
        let asked = vec![0; members.len()];
        let addresses: Vec<String> =
            members.iter().map(|member| member.target.address.clone()).collect();
        let state = State { members, asked, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), ..Shared::default() });
        let poller = Self { shared };
        for (place, address) in addresses.into_iter().enumerate() {
            let (shared, options) = (Arc::clone(&poller.shared), options.clone());
            let ask = move || ask(&shared, place, &address, &options, interval);
            thread::Builder::new().stack_size(STACK_BYTES).spawn(ask)?;
        }
        Ok(poller)
    }

    /// What is known now, in the order of the targets.
    #[must_use]
    pub(crate) fn members(&self) -> Vec<Member> {
        self.shared.state.lock().members.clone()
    }

    /// Which groups of statistics to ask for from now on: the hot keys of all, and everything of
    /// one member.
    pub(crate) fn want(&self, hot_keys: bool, details_of: Option<usize>) {
        let mut state = self.shared.state.lock();
        if (state.wants_hot_keys, state.wants_details_of) != (hot_keys, details_of) {
            (state.wants_hot_keys, state.wants_details_of) = (hot_keys, details_of);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every member was asked so often.
    pub(crate) fn wait_for(&self, times: u64) {
        let mut state = self.shared.state.lock();
        while state.asked.iter().any(|asked| *asked < times) {
            self.shared.asked.wait(&mut state);
        }
    }
}

impl Drop for Poller {
    /// A thread that waits for a member's answer is left to its timeout.
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.changed.notify_all();
    }
}

/// The life of a thread.
fn ask(shared: &Shared, place: usize, address: &str, options: &Options, interval: Duration) {
    let mut connection = None;
    let mut wanted = Wanted::default();
    loop {
        let begin = Instant::now();
        let answer = match connection.take() {
            Some(connection) => Ok(connection),
            None => Connection::open(address, options),
        };
        let answer = answer.and_then(|mut open| {
            let reading = Reading::take(&mut open, wanted)?;
            Ok((reading, open))
        });
        let mut state = shared.state.lock();
        if let Some(member) = state.members.get_mut(place) {
            match answer {
                Ok((reading, open)) => {
                    connection = Some(open);
                    member.before = member.now.replace(Arc::new(reading));
                    member.error = None;
                }
                Err(error) => {
                    let why = error.to_string();
                    // The address stands beside it.
                    let own = format!("{address}: ");
                    member.error = Some(why.strip_prefix(&own).unwrap_or(&why).to_owned());
                }
            }
        }
        if let Some(asked) = state.asked.get_mut(place) {
            *asked += 1;
        }
        shared.asked.notify_all();
        let next = begin + interval;
        loop {
            if state.is_ending {
                return;
            }
            let now = Wanted {
                hot_keys: state.wants_hot_keys,
                details: state.wants_details_of == Some(place),
            };
            let asks_more = (now.hot_keys && !wanted.hot_keys) || (now.details && !wanted.details);
            wanted = now;
            // What somebody has begun to look at is asked for at once.
            if asks_more || shared.changed.wait_until(&mut state, next).timed_out() {
                break;
            }
        }
    }
}
