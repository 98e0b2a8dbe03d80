//! A simulated network, its servers and its clock, for tests of programs that connect to servers.
//!
//! ```text
//!     workers of routes, drivers of the client, the spooler -> Core .. Destination
//!         -> upstream::system (sockets, poller, time) -> Net -> Server
//! ```
//!
//! Only sockets, their poller and the clock are simulated: the code under test is the code of
//! programs, one turn at a time, on one thread. A seed draws the shape of a run (protocol, servers,
//! limits, routes), the requests, and the failures; equal seeds are equal runs. At the end of each
//! run, the failures are repaired, and the tests check the result.
//!
//! `SEEDS=n` sets the number of runs, `SEED=n` the first seed. A failed run prints the line that
//! repeats it.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::cast_possible_truncation,
    reason = "a test stops where it fails"
)]

mod call;
pub mod handshake;
mod lies;
mod net;
mod server;
pub mod system;

use std::time::Instant;

pub use call::{is_of, mark, unit};
pub use net::{Net, Trouble, address};
pub use server::Server;
use testkit::Rng;

/// The passing of time in one run.
#[derive(Debug)]
pub struct Clock {
    /// The choices of the run.
    pub rng: Rng,
    /// The maximum delay of a late turn, in microseconds: threads wait for processors.
    pub lag_us: usize,
    /// Turns since time last advanced.
    turns: u32,
}

/// Maximum number of turns without a change of time: more is a loop that spins.
const TURNS_MAX: u32 = 20_000;

impl Clock {
    /// Turns may be up to `lag_us` microseconds late.
    #[must_use]
    pub fn new(seed: u64, lag_us: usize) -> Self {
        Self { rng: Rng::new(seed), lag_us, turns: 0 }
    }

    /// Advances to the next event or the earliest time in `due`, sometimes a little further.
    ///
    /// # Panics
    ///
    /// If no time has passed for `TURNS_MAX` turns.
    pub fn pass(&mut self, due: impl IntoIterator<Item = Option<Instant>>) {
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
#[must_use]
pub fn now_us() -> u64 {
    system::with(|net| net.now_us())
}
