//! The queue between the logging threads and the thread that writes.

use std::fmt::{self, Arguments, Write};
use std::mem;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// The maximum size of waiting lines, in bytes: some thousand lines.
const WAITING_BYTES_MAX: usize = 256 * 1024;

/// Lines on their way to the writer.
pub(crate) struct Queue {
    state: Mutex<State>,
    /// There are lines, or the writer has to end.
    news: Condvar,
    /// The writer has nothing to do.
    idle: Condvar,
}

struct State {
    phase: Phase,
    /// Whole lines. Its memory is reserved by [`Queue::open`] and does not grow.
    waiting: Vec<u8>,
    lost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    NoWriter,
    Open,
    Ending,
}

/// The result for a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Push {
    Queued,
    Lost,
    /// There is no writer for it.
    NoWriter,
}

/// The lines that the writer takes in one step.
pub(crate) struct Taken {
    /// Lines that found the queue full, after those in the buffer.
    pub(crate) lost: u64,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        let state = State { phase: Phase::NoWriter, waiting: Vec::new(), lost: 0 };
        Self { state: Mutex::new(state), news: Condvar::new(), idle: Condvar::new() }
    }

    /// Makes room for lines and accepts them from now on. False: there is already a writer.
    pub(crate) fn open(&self) -> bool {
        let mut state = self.state.lock();
        let is_free = state.phase == Phase::NoWriter;
        if is_free {
            state.waiting = Vec::with_capacity(WAITING_BYTES_MAX);
            state.phase = Phase::Open;
        }
        is_free
    }

    /// A buffer to exchange with the queue's.
    pub(crate) fn buffer() -> Vec<u8> {
        Vec::with_capacity(WAITING_BYTES_MAX)
    }

    /// Adds a line, if there is room for all of it.
    pub(crate) fn push(&self, line: Arguments<'_>) -> Push {
        let mut state = self.state.lock();
        if state.phase == Phase::NoWriter {
            return Push::NoWriter;
        }
        let before = state.waiting.len();
        // Lines stay in order: none overtakes a lost one.
        if state.lost > 0 || Room(&mut state.waiting).write_fmt(line).is_err() {
            state.waiting.truncate(before);
            state.lost += 1;
            return Push::Lost;
        }
        drop(state);
        self.news.notify_one();
        Push::Queued
    }

    /// Waits for lines, and exchanges them for the empty `buffer`. `None`: the writer has to end,
    /// and nothing waits.
    pub(crate) fn take(&self, buffer: &mut Vec<u8>) -> Option<Taken> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && state.lost == 0 {
            self.idle.notify_all();
            if state.phase == Phase::Ending {
                state.phase = Phase::NoWriter;
                state.waiting = Vec::new();
                return None;
            }
            self.news.wait(&mut state);
        }
        mem::swap(&mut state.waiting, buffer);
        Some(Taken { lost: mem::take(&mut state.lost) })
    }

    /// Accepts no more lines: the writer could not be started.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::NoWriter;
        state.waiting = Vec::new();
    }

    /// Makes the writer end, and waits until all lines are written, or `until`.
    pub(crate) fn close(&self, until: Instant) {
        let mut state = self.state.lock();
        state.phase = Phase::Ending;
        self.news.notify_one();
        while state.phase == Phase::Ending {
            if self.idle.wait_until(&mut state, until).timed_out() {
                return;
            }
        }
    }
}

/// A buffer that takes only as much as fits into its capacity.
struct Room<'a>(&'a mut Vec<u8>);

impl Write for Room<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() > self.0.capacity() - self.0.len() {
            return Err(fmt::Error);
        }
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> Queue {
        let queue = Queue::new();
        assert!(queue.open());
        queue
    }

    #[test]
    fn without_a_writer_nothing_is_queued() {
        assert_eq!(Queue::new().push(format_args!("a\n")), Push::NoWriter);
    }

    #[test]
    fn a_second_writer_is_refused() {
        assert!(!opened().open());
    }

    #[test]
    fn lines_are_taken_in_order() {
        let queue = opened();
        for number in 0..3 {
            assert_eq!(queue.push(format_args!("{number}\n")), Push::Queued);
        }
        let mut buffer = Queue::buffer();
        assert_eq!(queue.take(&mut buffer).unwrap().lost, 0);
        assert_eq!(buffer, b"0\n1\n2\n");
    }

    #[test]
    fn a_full_queue_loses_whole_lines_and_counts_them() {
        let queue = opened();
        let long = "x".repeat(1000);
        let queued = (0..1000).filter(|_| queue.push(format_args!("{long}\n")) == Push::Queued);
        let queued = queued.count();
        assert_eq!(queue.push(format_args!("short\n")), Push::Lost, "order would be lost");
        let mut buffer = Queue::buffer();
        let taken = queue.take(&mut buffer).unwrap();
        assert_eq!(buffer.len(), queued * 1001);
        assert_eq!(queued as u64 + taken.lost, 1001);
        assert_eq!(buffer.capacity(), WAITING_BYTES_MAX, "nothing grew");
        buffer.clear();
        assert_eq!(queue.push(format_args!("later\n")), Push::Queued);
        assert_eq!(queue.take(&mut buffer).unwrap().lost, 0);
        assert_eq!(buffer, b"later\n");
    }

    #[test]
    fn a_stuck_writer_does_not_block_close() {
        let queue = opened();
        assert_eq!(queue.push(format_args!("a\n")), Push::Queued);
        queue.close(Instant::now());
        assert!(queue.state.lock().phase == Phase::Ending);
    }
}
