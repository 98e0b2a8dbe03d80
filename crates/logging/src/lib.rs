//! Lines for the operator on stderr, written by a separate thread.
//!
//! ```text
//!     tracing's events -> filter -> Lines (text or JSON) -> queue -> Writer's thread -> stderr
//! ```
//!
//! stderr is often a pipe. If its reader stops, the pipe fills up, and from then on each write to
//! it waits. A server's event loops therefore never write to it: an event goes into a queue of
//! bounded size, and the thread of [`Writer`] writes the queue's content. A line that finds the
//! queue full is lost, and the log reports the number of lost lines.
//!
//! stderr, queue and filter belong to the process. Without a [`Writer`], for example before a
//! server serves, events are written directly; without [`start()`] they are dropped.

#![forbid(unsafe_code)]

mod fatal;
mod faults;
mod filter;
mod lines;
mod queue;
mod writer;

use std::fmt::Arguments;
use std::io::Write;
use std::sync::OnceLock;

use tracing_subscriber::Registry;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};

pub use fatal::fatal;
pub use faults::fault;
pub use filter::{BadFilter, Filter, PARTS};
pub use lines::{BadFormat, Format};
pub use writer::Writer;

use lines::Lines;
use queue::{Push, Queue};

static QUEUE: Queue = Queue::new();

/// The filter of the process, once there is one.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// The form of the process's lines, once there is one.
static LINES: OnceLock<Lines> = OnceLock::new();

/// Writes events as lines from now on. `name` starts each; a process has one log, so a second call
/// changes only the filter.
pub fn start(name: &'static str, format: Format, filter: &Filter) {
    let (targets, handle) = reload::Layer::new(filter.targets());
    let lines = Lines::new(name, format);
    let subscriber = Registry::default().with(targets).with(lines);
    if tracing::subscriber::set_global_default(subscriber).is_ok() {
        // The first subscriber is set once.
        let _ = FILTER.set(handle);
        let _ = LINES.set(lines);
    } else {
        set_filter(filter);
    }
}

/// `true` once [`start()`] was called.
#[must_use]
pub fn is_started() -> bool {
    FILTER.get().is_some()
}

/// Changes the selection of events.
pub fn set_filter(filter: &Filter) {
    if let Some(handle) = FILTER.get() {
        // It fails when the subscriber is gone, but a process keeps its subscriber.
        let _ = handle.modify(|targets| *targets = filter.targets());
    }
}

/// Writes a line of the proxy or the invalidator; one that starts with `warning: ` is a warning.
pub fn told(part: Part, line: &str) {
    match (part, line.strip_prefix("warning: ")) {
        (Part::Route, Some(line)) => tracing::warn!(target: "route", "{line}"),
        (Part::Route, None) => tracing::info!(target: "route", "{line}"),
        (Part::Invalidate, Some(line)) => tracing::warn!(target: "invalidate", "{line}"),
        (Part::Invalidate, None) => tracing::info!(target: "invalidate", "{line}"),
    }
}

/// A part of the log with lines of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The proxy.
    Route,
    /// The invalidator.
    Invalidate,
}

/// Writes a line at once or by the [`Writer`]. Never waits for stderr while there is a [`Writer`].
/// A line that cannot be written is lost.
fn write(line: Arguments<'_>) {
    if QUEUE.push(line) == Push::NoWriter {
        let _ = std::io::stderr().write_fmt(line);
    }
}
