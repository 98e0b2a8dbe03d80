//! `holdall bench` as a user runs it: it reports faults, and measures servers that require a login.
//! `bench_latency.rs` tests that the latencies it reports are true.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod access;
mod certificates;
mod faults;
mod measured;
mod other_programs;
mod stages;

use std::path::PathBuf;
use std::process::Output;

use measured::{command, measured};

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The standard output and the standard error.
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}
