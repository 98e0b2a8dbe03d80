//! A schedule: threads that run one at a time, and stop at any use of an atomic or a lock.
//!
//! With the feature `schedule`, each operation of [`crate::sync`] is a point. A thread of a [`run`]
//! that comes to a point continues, or waits while others run, as the caller's random numbers
//! decide. So their seed names one interleaving, and a failure can be repeated. Occasionally a
//! thread is stopped for thousands of turns, like a preempted one.
//!
//! The threads of a run are coroutines of one system thread: a turn takes nanoseconds, however busy
//! the machine is.
//!
//! The schedule tries no weak orderings: the next thread sees all writes of the previous one. The
//! loom models cover weak orderings.

use coroutines::{Generator, Gn};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Turns after which a run counts as making no progress.
const TURNS_MAX: u64 = 20_000_000;

/// The stack of a thread, in words.
const STACK_WORDS: usize = 1 << 16;

/// Points of a turn: each run chooses one of these as the maximum.
const POINTS_MAX: [u64; 4] = [3, 30, 300, 3000];

/// Marks a system thread that is in no turn.
const NO_TURN: u64 = u64::MAX;

/// A thread's work.
pub type Body<'a> = Box<dyn FnOnce() + Send + 'a>;

/// The source of a run's choices.
struct Random<'a>(Box<dyn FnMut() -> u64 + 'a>);

/// The threads of a run that have not ended, and the state that decides the next turn.
struct Schedule<'a> {
    threads: Vec<Thread<'a>>,
    random: Random<'a>,
    points_max: u64,
    turns: u64,
}

struct Thread<'a> {
    stack: Generator<'a, (), ()>,
    /// The turn before which it does not run.
    stopped_until: u64,
}

thread_local! {
    /// Points that the running thread passes before it ends its turn.
    static POINTS_LEFT: Cell<u64> = const { Cell::new(NO_TURN) };
    static MOMENTS: Cell<u64> = const { Cell::new(0) };
}

/// Runs `bodies`, each as a thread, in the order that the numbers of `random` choose, to their
/// ends.
///
/// # Panics
///
/// When a body panics, with its panic; and when no progress is made.
pub fn run<'a>(random: impl FnMut() -> u64 + 'a, bodies: Vec<Body<'a>>) {
    let mut random = Random(Box::new(random));
    let points_max = POINTS_MAX[random.below(POINTS_MAX.len())];
    let threads = bodies.into_iter().map(Thread::new).collect();
    let mut schedule = Schedule { threads, random, points_max, turns: 0 };
    MOMENTS.set(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        while !schedule.threads.is_empty() {
            schedule.turn();
        }
    }));
    // The rest of a failed run is unwound before its panic continues.
    drop(schedule);
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// A point: the running thread may lose its turn. Does nothing outside a run.
#[inline]
pub fn point() {
    match POINTS_LEFT.get() {
        NO_TURN => {}
        0 => give_turn(),
        more => POINTS_LEFT.set(more - 1),
    }
}

/// The running thread waits until another one has run.
pub fn wait() {
    if is_running() {
        give_turn();
    } else {
        std::hint::spin_loop();
    }
}

/// `true` within a run.
#[must_use]
pub fn is_running() -> bool {
    POINTS_LEFT.get() != NO_TURN
}

/// The next moment of the run: later moments have greater numbers.
#[must_use]
pub fn moment() -> u64 {
    let moment = MOMENTS.get();
    MOMENTS.set(moment + 1);
    moment
}

#[cold]
#[expect(deprecated, reason = "a scope cannot be handed through the operations of atomics")]
fn give_turn() {
    // A thread that fails runs to its end: it may hold locks.
    if !std::thread::panicking() {
        coroutines::yield_with(());
    }
}

impl<'a> Thread<'a> {
    fn new(body: Body<'a>) -> Self {
        Self { stack: Gn::new_opt(STACK_WORDS, body), stopped_until: 0 }
    }
}

impl Schedule<'_> {
    /// One turn of one thread.
    fn turn(&mut self) {
        self.turns += 1;
        assert!(self.turns < TURNS_MAX, "no progress in {TURNS_MAX} turns");
        let chosen = self.choose();
        let points = self.points();
        let thread = &mut self.threads[chosen];
        let turn = Turn::begin(points);
        thread.stack.resume();
        drop(turn);
        if thread.stack.is_done() {
            self.threads.swap_remove(chosen);
        }
    }

    /// Points of the next turn: mostly few or many, depending on the run, at times very few.
    fn points(&mut self) -> u64 {
        let most = if self.random.below(8) == 0 { 4 } else { self.points_max };
        self.random.next() % most
    }

    /// The thread that has the next turn.
    fn choose(&mut self) -> usize {
        if self.random.below(500) == 0 {
            let stopped = self.random.below(self.threads.len());
            self.threads[stopped].stopped_until = self.turns + self.random.next() % 5000;
        }
        let may_run = |thread: &Thread<'_>| thread.stopped_until <= self.turns;
        let ready: Vec<usize> =
            (0..self.threads.len()).filter(|&thread| may_run(&self.threads[thread])).collect();
        // If all are stopped, any of them.
        match ready.len() {
            0 => self.random.below(self.threads.len()),
            count => ready[self.random.below(count)],
        }
    }
}

/// The time in which points count, also when it ends by a panic.
struct Turn;

impl Turn {
    fn begin(points: u64) -> Self {
        POINTS_LEFT.set(points);
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        POINTS_LEFT.set(NO_TURN);
    }
}

impl Random<'_> {
    fn next(&mut self) -> u64 {
        (self.0)()
    }

    /// Below `bound`, which is not 0.
    fn below(&mut self, bound: usize) -> usize {
        narrow::to_usize(self.next() % bound as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn random(seed: u64) -> impl FnMut() -> u64 {
        let mut random = fastrand::Rng::with_seed(seed);
        move || random.u64(..)
    }

    /// Two threads add one by a load and a store.
    fn lost_updates(seed: u64) -> usize {
        let sum = AtomicUsize::new(0);
        let add = || {
            for _ in 0..20 {
                point();
                let seen = sum.load(Ordering::Relaxed);
                point();
                sum.store(seen + 1, Ordering::Relaxed);
            }
        };
        run(random(seed), vec![Box::new(add), Box::new(add)]);
        40 - sum.into_inner()
    }

    #[test]
    fn a_seed_reproduces_its_interleaving() {
        for seed in 0..50 {
            assert_eq!(lost_updates(seed), lost_updates(seed), "seed {seed}");
        }
    }

    #[test]
    fn interleavings_differ() {
        let lost: std::collections::BTreeSet<_> = (0..50).map(lost_updates).collect();
        assert!(lost.len() > 5 && *lost.first().unwrap_or(&1) == 0, "{lost:?}");
    }

    #[test]
    #[should_panic(expected = "the cause")]
    fn a_panic_ends_the_run() {
        let endless = || loop {
            wait();
        };
        let fails = || {
            point();
            panic!("the cause");
        };
        run(random(1), vec![Box::new(endless), Box::new(fails), Box::new(endless)]);
    }
}
