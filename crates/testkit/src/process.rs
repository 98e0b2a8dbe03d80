//! Free ports, readings of a running process, and limits of open files, for tests.
//!
//! Relaxed is enough for `RssWatch`: the flag carries no data, and the result comes by the join.

use processes::usage;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Current resident memory of `pid` in bytes.
#[must_use]
pub fn rss_bytes(pid: u32) -> u64 {
    usage::rss_bytes(pid).expect("the process is alive")
}

/// Peak resident memory of `pid`, in bytes.
#[must_use]
pub fn peak_rss_bytes(pid: u32) -> u64 {
    usage::peak_rss_bytes(pid).expect("the process is alive")
}

/// CPU time of `pid` so far, user and system, in all its threads.
#[must_use]
pub fn cpu_time(pid: u32) -> Duration {
    usage::cpu_time(pid).expect("the process is alive")
}

/// A loopback port without a listener; see [`processes::free_port`].
#[must_use]
pub fn free_port() -> u16 {
    processes::free_port().expect("one of thousands of ports is free")
}

/// The number of files that `pid` has open.
#[must_use]
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Limits the open files of `pid` to `count`.
pub fn limit_open_files(pid: u32, count: u64) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
    let limit = Rlimit { current: Some(count), maximum: Some(count) };
    prlimit(Some(pid), Resource::Nofile, limit).expect("the limit of one's own child");
}

/// Raises this process's limit of open files to `wanted` and returns the new one, which may be
/// lower.
pub fn raise_open_files(wanted: u64) -> u64 {
    let now = getrlimit(Resource::Nofile);
    let enough = now.current.is_none_or(|current| current >= wanted);
    if !enough {
        let hard =
            Rlimit { current: Some(wanted), maximum: now.maximum.map(|max| max.max(wanted)) };
        if setrlimit(Resource::Nofile, hard).is_err() {
            let _ =
                setrlimit(Resource::Nofile, Rlimit { current: now.maximum, maximum: now.maximum });
        }
    }
    // No limit is the highest one.
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Watches the resident memory of a process from a separate thread.
///
/// The kernel's high-water mark would suffice for a limit; this one can cover a part of a run.
#[derive(Debug)]
pub struct RssWatch {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<u64>>,
}

impl RssWatch {
    /// Starts to read `pid` every ten milliseconds.
    #[must_use]
    pub fn start(pid: u32) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let reader = thread::spawn(move || {
            let mut most = 0;
            while !seen.load(Ordering::Relaxed) {
                most = most.max(rss_bytes(pid));
                thread::sleep(Duration::from_millis(10));
            }
            most
        });
        Self { stop, reader: Some(reader) }
    }

    /// The observed maximum, in bytes.
    pub fn most(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.reader.take().expect("asked once").join().expect("the process was there all the time")
    }
}

impl Drop for RssWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_of_this_process_are_plausible() {
        let pid = std::process::id();
        assert!(rss_bytes(pid) > 100_000);
        assert!(peak_rss_bytes(pid) >= rss_bytes(pid) / 2);
        assert!(open_files(pid) >= 3);
        let before = cpu_time(pid);
        let mut sum = 0_u64;
        for i in 0..200_000_000_u64 {
            sum = std::hint::black_box(sum.wrapping_add(i));
        }
        assert!(cpu_time(pid) > before, "a busy loop uses processor time");
    }
}
