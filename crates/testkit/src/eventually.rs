//! Waiting for a condition.

use std::thread;
use std::time::{Duration, Instant};

/// Returns when the condition holds, and panics with `what` if it does not within two minutes,
/// which is enough for a busy machine.
#[track_caller]
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
