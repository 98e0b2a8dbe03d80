//! Lets the background threads sleep while no worker turns, and wakes them when one does.
//!
//! A thread that has found no work for a while sleeps here. Workers check one flag in each turn. It
//! is written only when a thread falls asleep or wakes, so each processor keeps its copy.
//!
//! Relaxed is enough: a turn that misses the flag leaves a thread asleep until the next turn or the
//! end of its sleep, which is at most one second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// The place where background threads wait.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// A thread sleeps until a worker turns.
    is_awaited: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The server is ending.
    is_over: bool,
    /// The number of times that sleepers were woken.
    wakes: u64,
}

/// The reason why a thread continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The time is over.
    InTime,
    /// A worker turned.
    ByTurn,
    /// The server is ending.
    ByEnd,
}

impl Activity {
    /// Notes that a worker's turn starts.
    #[inline]
    pub(crate) fn turn(&self) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.is_awaited.store(false, Ordering::Relaxed);
        self.state.lock().wakes += 1;
        self.changed.notify_all();
    }

    /// Waits for `time`, or until the server ends.
    pub(crate) fn pause(&self, time: Duration) -> Woken {
        self.wait(time, false)
    }

    /// Waits for `time`, or until a worker turns or the server ends.
    pub(crate) fn sleep(&self, time: Duration) -> Woken {
        self.wait(time, true)
    }

    fn wait(&self, time: Duration, until_turn: bool) -> Woken {
        let until = Instant::now() + time;
        let mut state = self.state.lock();
        let before = state.wakes;
        loop {
            if state.is_over {
                return Woken::ByEnd;
            }
            if time.is_zero() {
                return Woken::InTime;
            }
            if until_turn && state.wakes != before {
                return Woken::ByTurn;
            }
            if until_turn {
                // Set under the lock that the waking thread takes next, so the wake is not missed.
                self.is_awaited.store(true, Ordering::Relaxed);
            }
            if self.changed.wait_until(&mut state, until).timed_out() {
                return if state.is_over { Woken::ByEnd } else { Woken::InTime };
            }
        }
    }

    /// Notes that the server is ending: no thread waits any more.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::sync::Arc;
    use std::thread;

    const LONG: Duration = Duration::from_secs(3600);

    fn waiting(
        activity: &Arc<Activity>,
        how: fn(&Activity, Duration) -> Woken,
    ) -> thread::JoinHandle<Woken> {
        let activity = Arc::clone(activity);
        thread::spawn(move || how(&activity, LONG))
    }

    #[test]
    fn a_turn_wakes_a_sleeping_thread_but_not_a_pausing_one() {
        let activity = Arc::new(Activity::default());
        let sleeper = waiting(&activity, Activity::sleep);
        let pausing = waiting(&activity, Activity::pause);
        // Whenever the sleeper falls asleep, the next turn wakes it.
        while !sleeper.is_finished() {
            activity.turn();
            thread::yield_now();
        }
        assert_eq!(sleeper.join().unwrap(), Woken::ByTurn);
        assert!(!pausing.is_finished());
        activity.end();
        assert_eq!(pausing.join().unwrap(), Woken::ByEnd);
        assert_eq!(activity.sleep(LONG), Woken::ByEnd);
    }

    #[test]
    fn one_turn_wakes_two_sleeping_threads() {
        let activity = Arc::new(Activity::default());
        let both = [waiting(&activity, Activity::sleep), waiting(&activity, Activity::sleep)];
        while !both.iter().all(thread::JoinHandle::is_finished) {
            activity.turn();
            thread::yield_now();
        }
        for sleeper in both {
            assert_eq!(sleeper.join().unwrap(), Woken::ByTurn);
        }
    }

    #[test]
    fn a_sleep_without_a_turn_times_out() {
        assert_eq!(Activity::default().sleep(Duration::from_millis(1)), Woken::InTime);
    }
}
