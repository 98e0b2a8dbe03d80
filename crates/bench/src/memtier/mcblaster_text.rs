//! mcblaster's text, which scripts read: counts and round trips of each kind of request, and their
//! distribution by tenths of a millisecond.
//!
//! Source: the fields that mcblaster prints, of `test/mcblaster` of Facebook's memcached.

use std::fmt::Write as _;

use anyhow::Result;

use crate::result::{OpResult, RunResult};

/// Width of a bucket, and the upper limit of all, in microseconds.
const BUCKET: u64 = 100;
const BUCKETS_END: u64 = 10_000;

/// A run.
///
/// # Errors
///
/// When a histogram of the result is damaged.
pub(crate) fn of(run: &RunResult) -> Result<String> {
    let mut text = String::new();
    for (name, op) in [("get", &run.gets), ("set", &run.sets)] {
        if op.requests > 0 {
            counts(&mut text, name, op, run);
            buckets(&mut text, name, op)?;
        }
    }
    Ok(text)
}

fn counts(text: &mut String, name: &str, op: &OpResult, run: &RunResult) {
    let latency = &op.latency;
    let _ = writeln!(text, "{name} stats:");
    let _ = writeln!(text, "Requests sent: {}", op.requests);
    let _ = writeln!(text, "Rate per second: {:.2}", op.rate);
    let _ = writeln!(text, "Measured RTTs: {}", op.requests);
    let _ = writeln!(
        text,
        "RTT min/avg/max: {:.2}/{:.2}/{:.2} usec",
        latency.min, latency.mean, latency.max
    );
    let _ = writeln!(text, "Timeouts: {}", run.lost);
    let _ = writeln!(text, "Errors: {}", op.refused);
    let _ = writeln!(text, "Invalid replies: {}\n", run.wrong);
}

/// The numbers of round trips by time; empty buckets are left out.
fn buckets(text: &mut String, name: &str, op: &OpResult) -> Result<()> {
    let mut counts = vec![0u64; usize::try_from(BUCKETS_END / BUCKET)?];
    let mut over = 0;
    for value in op.latency.histogram()?.iter_recorded() {
        let bucket = usize::try_from(value.value_iterated_to() / 1000 / BUCKET)?;
        match counts.get_mut(bucket) {
            Some(count) => *count += value.count_at_value(),
            None => over += value.count_at_value(),
        }
    }
    let _ = writeln!(text, "RTT distribution for '{name}' requests:");
    for (from, count) in (0u64..).step_by(usize::try_from(BUCKET)?).zip(counts) {
        if count > 0 {
            let _ = writeln!(text, "[{from:>6}-{:>6}]: {count}", from + BUCKET - 1);
        }
    }
    let _ = writeln!(text, "Over {BUCKETS_END} usec: {over}\n");
    Ok(())
}
