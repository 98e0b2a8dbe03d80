//! Threads that query the members, one each: a member that does not answer delays no other.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tools::{Connection, Options};

use plan::Target;
use tools::{Reading, Wanted};

/// Bytes of a thread's stack: 200 members must not cost 400 MB of address space.
const STACK_BYTES: usize = 256 * 1024;

/// A member and its state.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its address and group.
    pub target: Target,
    /// The last answer.
    pub now: Option<Arc<Reading>>,
    /// The answer before that.
    pub before: Option<Arc<Reading>>,
    /// The last full answer.
    pub details: Option<Arc<Reading>>,
    /// The full answer before that.
    pub details_before: Option<Arc<Reading>>,
    /// The reason why it does not answer, if the last query failed.
    pub error: Option<String>,
}

impl Member {
    /// A member without a query yet.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        let (now, before, details, details_before) = (None, None, None, None);
        Self { target, now, before, details, details_before, error: None }
    }

    /// The growth of a count between the last two answers, per second; none after a reset.
    #[must_use]
    pub fn rate(&self, name: &str) -> Option<f64> {
        self.now.as_ref()?.rate_since(self.before.as_ref()?, name)
    }

    /// Takes in an answer; one that comes less than `apart` after the last has the same predecessor
    /// as that one.
    fn answered(&mut self, reading: Reading, is_full: bool, apart: Duration) {
        let reading = Arc::new(reading);
        if is_full {
            replace(&mut self.details, &mut self.details_before, Arc::clone(&reading), apart);
        }
        replace(&mut self.now, &mut self.before, reading, apart);
        self.error = None;
    }
}

/// Replaces the last answer, which becomes the one before, unless it is younger than `apart`. The
/// rates of two answers that are close together would only measure the queries themselves.
fn replace(
    now: &mut Option<Arc<Reading>>,
    before: &mut Option<Arc<Reading>>,
    reading: Arc<Reading>,
    apart: Duration,
) {
    let (at, last) = (reading.at, now.replace(reading));
    if let Some(last) = last.filter(|last| at.duration_since(last.at) >= apart) {
        *before = Some(last);
    }
}

/// The statistics to query in addition to those for rows.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Extras {
    /// The most popular keys, of all members.
    pub hot_keys: bool,
    /// Everything, of the member with this index.
    pub details_of: Option<usize>,
    /// Everything, of all members, at this interval.
    pub details_each: Option<Duration>,
}

impl Extras {
    /// The statistics to query of the member with this index; `is_due` says if details at such an
    /// interval are due.
    fn wanted(self, place: usize, is_due: impl FnOnce(Duration) -> bool) -> Wanted {
        Wanted {
            hot_keys: self.hot_keys,
            details: self.details_of == Some(place) || self.details_each.is_some_and(is_due),
        }
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// For the threads: the end, or a new wish.
    changed: Condvar,
    /// For the caller: a member was queried.
    asked: Condvar,
}

#[derive(Debug, Default)]
struct State {
    members: Vec<Member>,
    /// The number of queries to each member.
    asked: Vec<u64>,
    wish: Extras,
    is_ending: bool,
}

/// The threads, which end with it.
#[derive(Debug)]
pub struct Poller {
    shared: Arc<Shared>,
}

impl Poller {
    /// Starts to query the targets, each once per `interval`, for these statistics.
    ///
    /// # Errors
    ///
    /// When the system has no more threads.
    pub fn start(
        targets: Vec<Target>,
        options: &Options,
        interval: Duration,
        wish: Extras,
    ) -> std::io::Result<Self> {
        let members: Vec<Member> = targets.into_iter().map(Member::new).collect();
        let asked = vec![0; members.len()];
        let addresses: Vec<String> =
            members.iter().map(|member| member.target.address.clone()).collect();
        let state = State { members, asked, wish, ..State::default() };
        let shared = Arc::new(Shared { state: Mutex::new(state), ..Shared::default() });
        let poller = Self { shared };
        for (place, address) in addresses.into_iter().enumerate() {
            let (shared, options) = (Arc::clone(&poller.shared), options.clone());
            let ask = move || ask(&shared, place, &address, &options, interval);
            thread::Builder::new().stack_size(STACK_BYTES).spawn(ask)?;
        }
        Ok(poller)
    }

    /// The current state, in the order of the targets.
    #[must_use]
    pub fn members(&self) -> Vec<Member> {
        self.shared.state.lock().members.clone()
    }

    /// Sets the statistics to query from now on.
    pub fn want(&self, wish: Extras) {
        let mut state = self.shared.state.lock();
        if state.wish != wish {
            state.wish = wish;
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every member was queried this many times.
    pub fn wait_for(&self, times: u64) {
        let mut state = self.shared.state.lock();
        while state.asked.iter().any(|asked| *asked < times) {
            self.shared.asked.wait(&mut state);
        }
    }
}

impl Drop for Poller {
    /// A thread that waits for a member's answer runs until its timeout.
    fn drop(&mut self) {
        self.shared.state.lock().is_ending = true;
        self.shared.changed.notify_all();
    }
}

/// A thread's loop.
fn ask(shared: &Shared, place: usize, address: &str, options: &Options, interval: Duration) {
    let mut connection = None;
    let mut seen = shared.state.lock().wish;
    let mut wanted = seen.wanted(place, |_| true);
    let mut detailed: Option<Instant> = None;
    let apart = interval / 2;
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
                    if wanted.details {
                        detailed = Some(begin);
                    }
                    member.answered(reading, wanted.details, apart);
                }
                Err(error) => {
                    let why = error.to_string();
                    // The address is shown next to it.
                    let own = format!("{address}: ");
                    member.error = Some(why.strip_prefix(&own).unwrap_or(&why).to_owned());
                }
            }
        }
        if let Some(asked) = state.asked.get_mut(place) {
            *asked += 1;
        }
        shared.asked.notify_all();
        // After a slow answer, too, the next is far enough away for rates.
        let next = (begin + interval).max(Instant::now() + apart);
        loop {
            if state.is_ending {
                return;
            }
            let wish = state.wish;
            let is_due = |each| detailed.is_none_or(|at| at + each <= next);
            let now = wish.wanted(place, is_due);
            let asks_more = (now.hot_keys && !wanted.hot_keys) || (now.details && !wanted.details);
            let is_new = std::mem::replace(&mut seen, wish) != wish;
            wanted = now;
            // Details that a user has just opened are queried at once.
            if (is_new && asks_more) || shared.changed.wait_until(&mut state, next).timed_out() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// A holdall server, and the number of queries for its curve.
    fn server() -> (String, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                // Relaxed: the answer that the test waits for comes later.
                counted.fetch_add(u32::from(line == "stats mrc"), Ordering::Relaxed);
                let own = if line == "stats" { "STAT holdall_version 1\r\n" } else { "" };
                // The poller may be gone.
                let _ = write!(stream, "{own}END\r\n");
            }
        });
        (address, asked)
    }

    #[test]
    fn details_are_requested_at_their_own_interval() {
        let (address, asked) = server();
        let target = Target { address, group: String::new() };
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let (interval, wish) = (Duration::from_millis(1), Extras::default());
        let poller = Poller::start(vec![target], &options, interval, wish).unwrap();
        poller.wait_for(2);
        assert!(poller.members()[0].details.is_none(), "nobody wishes any");
        let details_each = Some(Duration::from_secs(3600));
        poller.want(Extras { details_each, ..Extras::default() });
        while poller.members()[0].details.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let times = poller.shared.state.lock().asked[0];
        poller.wait_for(times + 5);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(poller.members()[0].details_before.is_none());
        // Of one member, with every query.
        poller.want(Extras { details_of: Some(0), ..Extras::default() });
        while poller.members()[0].details_before.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(asked.load(Ordering::Relaxed) > 1);
    }

    fn reading(at: Instant) -> Reading {
        let (role, round_trip, stats) = (tools::Role::Server, Duration::ZERO, BTreeMap::new());
        Reading { role, at, round_trip, stats }
    }

    #[test]
    fn an_extra_answer_shortens_no_rate() {
        let begin = Instant::now();
        let after = |millis| begin + Duration::from_millis(millis);
        let mut member = Member::new(Target { address: String::new(), group: String::new() });
        for (millis, before) in [(0, None), (1, None), (1000, Some(1)), (1001, Some(1))] {
            member.answered(reading(after(millis)), true, Duration::from_millis(500));
            for (now, then) in
                [(&member.now, &member.before), (&member.details, &member.details_before)]
            {
                assert_eq!(now.as_ref().unwrap().at, after(millis));
                assert_eq!(then.as_ref().map(|then| then.at), before.map(after), "{millis}");
            }
        }
    }

    #[test]
    fn the_first_wish_costs_no_second_query() {
        let (address, _) = server();
        let target = Target { address, group: String::new() };
        let options = Options { timeout: Duration::from_secs(20), ..Options::default() };
        let (interval, wish) =
            (Duration::from_millis(300), Extras { hot_keys: true, ..Extras::default() });
        let poller = Poller::start(vec![target], &options, interval, wish).unwrap();
        poller.wait_for(2);
        let member = &poller.members()[0];
        let (now, before) = (member.now.as_ref().unwrap(), member.before.as_ref().unwrap());
        assert!(now.at - before.at >= interval / 2);
    }
}
