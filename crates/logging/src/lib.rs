//! Lines for the operator on stderr, written by a thread of their own.
//!
//! stderr is often a pipe. A pipe whose reader stops fills up, and from then on each write to it
//! waits. A server's event loops therefore never write to it: [`line()`] copies the line into a
//! queue of bounded size, and the thread of [`Writer`] writes what the queue holds. A line that
//! finds the queue full is lost, and the log says how many were.
//!
//! stderr belongs to the process, and so does the queue. Without a [`Writer`], as before a server
//! serves and in tests, [`line()`] writes directly.

#![forbid(unsafe_code)]

mod queue;
mod writer;

use std::fmt::Arguments;
use std::io::Write;

pub use writer::Writer;

use queue::{Push, Queue};

static QUEUE: Queue = Queue::new();

/// Writes `NAME: LINE` to stderr, at once or by the [`Writer`]. Allocates nothing and never waits
/// for stderr while there is a [`Writer`]. A line that cannot be written is lost.
pub fn line(name: &str, line: Arguments<'_>) {
    if QUEUE.push(format_args!("{name}: {line}\n")) == Push::NoWriter {
        let _ = writeln!(std::io::stderr(), "{name}: {line}");
    }
}
