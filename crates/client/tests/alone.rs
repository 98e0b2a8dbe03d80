//! A lone thread that waits for its answers. It is the only test of its process, because it counts
//! the activity of the client's thread.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test stops where it fails")]

mod echo;

use std::fs;
use std::time::{Duration, Instant};

use client::{BlockingClient, Client};
use echo::{Echo, value_of};

/// How often the threads of the clients of this process have slept.
fn sleeps() -> u64 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path());
    let background = tasks
        .filter(|task| fs::read_to_string(task.join("comm")).unwrap().trim() == "holdall-client");
    let of = |status: String| {
        let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap()
    };
    background.map(|task| of(fs::read_to_string(task.join("status")).unwrap())).sum()
}

/// The client's own thread checks a hundred times per second whether it is needed, not once for
/// each call.
#[test]
fn a_lone_caller_needs_no_other_thread() {
    const CALLS: u64 = 20_000;
    let server = Echo::new(|_| Duration::ZERO);
    let builder = Client::builder().servers([server.address.to_string()]);
    let client = BlockingClient::from(builder.timeout(Duration::from_secs(60)).build().unwrap());
    let (begun, before) = (Instant::now(), sleeps());
    for number in 0..CALLS {
        let key = format!("k{number}");
        let got = client.get(&key).unwrap().unwrap();
        assert_eq!(got.bytes, value_of(&key).into_bytes());
    }
    let (slept, ticks) = (sleeps() - before, begun.elapsed().as_millis() / 10);
    eprintln!("{slept} sleeps in {ticks} ticks, {CALLS} calls");
    // After each of its rests it may be woken for an answer, take over for a call or some, and see
    // that it is not needed.
    let most = u128::from(CALLS / 4) + 8 * ticks;
    assert!(u128::from(slept) <= most, "{slept} sleeps in {ticks} ticks");
}
