//! Assertions about the reads that `staleness` has judged.

use staleness::Verdict;
use std::fmt::Write as _;

/// The share of hits that were at most this stale; 1 without any hit.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "a share to print and to compare")]
pub fn fresh_within(verdict: &Verdict, ns: u64) -> f64 {
    let fresh = verdict.stale_ns.iter().filter(|stale| **stale <= ns).count();
    if verdict.stale_ns.is_empty() { 1.0 } else { fresh as f64 / verdict.stale_ns.len() as f64 }
}

/// Panics with the faults, if there are any.
#[track_caller]
pub fn assert_consistent(verdict: &Verdict) {
    let show = |wrong: &[String]| {
        wrong.iter().take(10).fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "  {line}");
            text
        })
    };
    assert!(
        verdict.impossible.is_empty() && verdict.stale_at_the_end.is_empty(),
        "{} impossible reads:\n{}{} stale at the end:\n{}",
        verdict.impossible.len(),
        show(&verdict.impossible),
        verdict.stale_at_the_end.len(),
        show(&verdict.stale_at_the_end)
    );
}
