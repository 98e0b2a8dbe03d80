//! The times of single commands, for clients that request them: `holdall bench stages`.
//!
//! ```text
//!     mn times  ->  MN
//!     get k     ->  VALUE .. END                    wait | parse | execute | write
//!     mn times  ->  MN times 310 620 8100 15400     of this get, in nanoseconds; the wait is last
//! ```
//!
//! It uses the path of announced traces, so other connections pay nothing for it.

use std::time::{Duration, Instant};

use net::Output;
use proto::meta;
use proto::text::Words;

use super::announced::{Announced, Times};
use super::context::Context;
use super::state::Session;

/// `mn` with these words: requests the times of the next command, and writes those of the last one.
/// False if the words do not request times.
pub(super) fn ask(session: &mut Session, words: Words<'_>, output: &mut Output<'_>) -> bool {
    if !meta::asks_for_times(words) || session.is_datagram() {
        return false;
    }
    output.stamp_arrivals();
    let out = output.buf();
    let before = session.trace.replace(Box::new(Announced::Untimed));
    match before.as_deref() {
        Some(&Announced::Timed(Times { wait, parse, execute, write })) => {
            let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
            let times = [parse, execute, write].into_iter().chain(wait).map(nanoseconds);
            meta::reply::write_times(out, times);
        }
        _ => out.extend_from_slice(meta::reply::NOOP),
    }
    true
}

/// Starts a command whose times are wanted: looks ahead, which parses it.
pub(super) fn begin(cx: &mut Context, input: &[u8], output: &Output<'_>) -> Announced {
    // If the clock was set back in the meantime, there is no wait.
    let wait = output.last_arrival().and_then(|at| at.elapsed().ok());
    let began = Instant::now();
    cx.lookahead.arrive(&cx.engine, input);
    Announced::Timing { wait, began, parsed: Instant::now() }
}

/// Sends the reply of the command. If the client does not take it now, there are no times.
pub(super) fn end(
    wait: Option<Duration>,
    began: Instant,
    parsed: Instant,
    output: &mut Output<'_>,
) -> Option<Announced> {
    let executed = Instant::now();
    output.flush().then(|| {
        let (parse, execute) = (parsed - began, executed - parsed);
        Announced::Timed(Times { wait, parse, execute, write: executed.elapsed() })
    })
}
