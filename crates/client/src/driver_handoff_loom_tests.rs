//! Models of the hand-over of the driver: every waiting caller is answered, and no thread sleeps
//! while there is work.
//!
//! The model's background driver and callers take the same steps as `driver_guard.rs`, `inbox.rs`,
//! `signal.rs` and `waiting.rs`, with a mutex for the inbox and a condition for eventfds and
//! servers. A server answers at once, but only a thread that polls it, or the next driving thread,
//! notices. Nothing here has a timeout: no hand-over relies on one. A lost wake-up shows as a
//! deadlock.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::time::Instant;

use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use loom::thread;

use super::{DriverHandoff, DriverKind, Next};

/// The state of the driving thread: its sent requests.
#[derive(Debug, Default)]
struct Driver {
    sent: Vec<usize>,
}

/// The inbox, with stand-ins for descriptors and slots.
#[derive(Default)]
struct State {
    handoff: DriverHandoff<Driver>,
    jobs: Vec<usize>,
    outstanding: usize,
    is_closed: bool,
    notified: [bool; 2],
    /// Requests that servers have.
    sent: usize,
    /// A server's answer has not been read yet.
    is_readable: bool,
    answered: [bool; 2],
}

impl State {
    fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.outstanding > 0 || self.is_closed
    }

    fn take_notice(&mut self, kind: DriverKind) -> bool {
        std::mem::take(&mut self.notified[kind as usize])
    }

    fn leave(&mut self, driver: Driver, has_work: bool) {
        if self.handoff.leave(driver, None, has_work) {
            self.notified[DriverKind::Background as usize] = true;
        }
    }

    fn call(&mut self) {
        if let Some(kind) = self.handoff.call() {
            self.notified[kind as usize] = true;
        }
    }
}

struct World {
    state: Mutex<State>,
    changed: Condvar,
    now: Instant,
    /// Servers answer when they have this number of requests.
    patience: usize,
}

impl World {
    fn new(patience: usize) -> Arc<Self> {
        let mut state = State::default();
        state.leave(Driver::default(), false);
        let (state, changed, now) = (Mutex::new(state), Condvar::new(), Instant::now());
        Arc::new(Self { state, changed, now, patience })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn wait_until(&self, is_over: impl Fn(&mut State) -> bool) {
        let mut state = self.lock();
        while !is_over(&mut state) {
            state = self.changed.wait(state).unwrap();
        }
    }

    /// Reads the answers to sent requests, and sends the inbox's. It does not hold the lock
    /// throughout.
    fn turn(&self, driver: &mut Driver) {
        let mut state = self.lock();
        if std::mem::take(&mut state.is_readable) {
            for caller in driver.sent.drain(..) {
                state.answered[caller] = true;
                state.outstanding -= 1;
            }
        }
        drop(state);
        let mut state = self.lock();
        state.handoff.wake();
        let jobs = std::mem::take(&mut state.jobs);
        state.sent += jobs.len();
        state.is_readable |= !jobs.is_empty() && state.sent >= self.patience;
        driver.sent.extend(jobs);
        drop(state);
        self.changed.notify_all();
    }

    /// Sleeps like the driving thread: until its eventfd is written or a server answers, unless
    /// there are jobs.
    fn sleep(&self, kind: DriverKind, is_woken: impl Fn(&State) -> bool) {
        let may_sleep = {
            let mut state = self.lock();
            let has_jobs = !state.jobs.is_empty();
            state.handoff.may_sleep(has_jobs)
        };
        if may_sleep {
            self.wait_until(|state| {
                state.take_notice(kind) || state.is_readable || is_woken(state)
            });
        }
    }

    fn keep(&self) {
        let mut has_news = false;
        loop {
            let mut state = self.lock();
            let has_work = state.has_work();
            let next = state.handoff.next(self.now, has_work, has_news);
            drop(state);
            has_news = false;
            match next {
                Next::Drive(mut driver) => {
                    loop {
                        self.turn(&mut driver);
                        if driver.sent.is_empty() {
                            break;
                        }
                        self.sleep(DriverKind::Background, |_| false);
                    }
                    let mut state = self.lock();
                    if state.is_closed && state.jobs.is_empty() {
                        return;
                    }
                    state.leave(driver, false);
                }
                Next::Pause(_) => {
                    self.wait_until(|state| state.take_notice(DriverKind::Background))
                }
                Next::Watch(_) => {
                    has_news = true;
                    self.wait_until(|state| {
                        state.take_notice(DriverKind::Background) || state.is_readable
                    });
                }
            }
        }
    }

    /// A caller that drives if it may, and leaves with its answer.
    fn ask(&self, caller: usize) {
        let mut state = self.lock();
        let was_idle = !state.has_work();
        state.jobs.push(caller);
        state.outstanding += 1;
        let free = if was_idle { state.handoff.take_for_caller() } else { None };
        if free.is_none() {
            state.call();
        }
        drop(state);
        self.changed.notify_all();
        if let Some(mut driver) = free {
            self.turn(&mut driver);
            let mut state = self.lock();
            let others_work = !state.jobs.is_empty() || state.is_closed;
            state.leave(driver, others_work);
            let free = state.handoff.take_for_caller();
            drop(state);
            self.changed.notify_all();
            if let Some(driver) = free {
                self.drive(caller, driver);
            }
        }
        self.wait_until(|state| state.answered[caller]);
    }

    fn drive(&self, caller: usize, mut driver: Driver) {
        while !self.lock().answered[caller] {
            self.sleep(DriverKind::Caller, |state| state.answered[caller]);
            self.turn(&mut driver);
        }
        let mut state = self.lock();
        let has_work = state.has_work();
        state.leave(driver, has_work);
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.call();
        drop(state);
        self.changed.notify_all();
    }
}

/// `interruptions`: the maximum number of times that a runnable thread is interrupted.
fn model(callers: usize, patience: usize, interruptions: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(move || {
        let world = World::new(patience);
        let background = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.keep())
        };
        let asking: Vec<_> = (1..callers)
            .map(|caller| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.ask(caller))
            })
            .collect();
        world.ask(0);
        asking.into_iter().for_each(|thread| thread.join().unwrap());
        world.close();
        background.join().unwrap();
        let state = world.lock();
        assert_eq!((state.outstanding, state.jobs.len()), (0, 0));
    });
}

#[test]
fn a_lone_caller_is_answered() {
    model(1, 1, 3);
}

#[test]
fn two_callers_are_answered_with_either_as_leader() {
    model(2, 1, 3);
}

/// A caller driver that waits for a server that waits for another's request.
#[test]
fn a_leader_sees_requests_of_other_callers() {
    model(2, 2, 2);
}
