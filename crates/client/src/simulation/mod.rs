//! The core, as it is in programs, in simulated time between a network and servers that fail at random.
//!
//! ```text
//!     callers (workers, app::simulation, deletes::simulation) -> Core ... Destination -> system::Socket -> Net -> Server
//! ```
//!
//! Sockets, their poller and the clock are simulated (`system`), nothing else: what runs is what programs run, one turn at a time, on one
//! thread. A seed draws the shape of a run (protocol, servers, limits, routes), what callers ask, and what fails when; so the same seed
//! is the same run. Each run ends with the troubles: what then holds is what the tests are about.
//!
//! `SEEDS=n` sets how many runs, `SEED=n` which is the first. A run that fails says how to repeat it.

mod call;
pub(crate) mod door;
mod lies;
mod net;
mod recovery;
mod server;
mod shape;
pub(crate) mod system;
mod workers;

use std::time::Instant;

pub(crate) use call::{is_of, mark, unit};
pub(crate) use net::{Net, address};
use testkit::Rng;

/// Runs `run` with one seed after the other: `by_default` of them, or what the environment says.
pub(crate) fn seeds(by_default: u64, name: &str, mut run: impl FnMut(u64)) {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (first, count) = (number("SEED", 1), number("SEEDS", by_default));
    for seed in first..first + count {
        let _repeat = Repeat { name, seed };
        run(seed);
    }
}

/// Says how to repeat a run that fails.
struct Repeat<'a> {
    name: &'a str,
    seed: u64,
}

impl Drop for Repeat<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self { name, seed } = self;
            println!("again: SEED={seed} SEEDS=1 cargo test -p holdall-client --lib {name}");
        }
    }
}

/// How time passes in one run.
pub(crate) struct Clock {
    pub(crate) rng: Rng,
    /// How much too late a turn may be, in microseconds: threads have to wait for processors.
    pub(crate) lag_us: usize,
    /// Turns since time has passed.
    turns: u32,
}

/// Turns in which no time passes, at the most: more is a loop that has nothing to do and does not rest.
const TURNS_MAX: u32 = 20_000;

impl Clock {
    pub(crate) fn new(seed: u64, lag_us: usize) -> Self {
        Self { rng: Rng::new(seed), lag_us, turns: 0 }
    }

    /// Goes to when something happens, or one of the times in `due` has come; then perhaps a little further.
    pub(crate) fn pass(&mut self, due: impl IntoIterator<Item = Option<Instant>>) {
        let lag_us = if self.rng.one_in(4) { self.rng.below(self.lag_us + 1) } else { 0 };
        let turns = &mut self.turns;
        system::with(|net| {
            let times = due.into_iter().flatten().map(|time| net.us_of(time));
            let now_us = net.now_us();
            let next_us = times.chain(net.next_us()).min().unwrap_or(now_us).max(now_us);
            let next_us = if net.is_ready() { now_us } else { next_us };
            net.pass_to(next_us + lag_us as u64);
            *turns = if net.now_us() == now_us { *turns + 1 } else { 0 };
        });
        assert!(self.turns < TURNS_MAX, "a loop does not rest");
    }
}

/// The present microsecond.
pub(crate) fn now_us() -> u64 {
    system::with(|net| net.now_us())
}
