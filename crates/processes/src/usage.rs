//! Readings of a process from `/proc`. Each is `None` for a process that has ended.

use std::fs;
use std::time::Duration;

/// The present resident memory in bytes.
#[must_use]
pub fn rss_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmRSS:")
}

/// The maximum resident memory so far, in bytes.
#[must_use]
pub fn peak_rss_bytes(pid: u32) -> Option<u64> {
    status_bytes(pid, "VmHWM:")
}

fn status_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

/// CPU time of all threads, including ended ones, user and system: in clock ticks, mostly 10 ms.
#[must_use]
pub fn cpu_time(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in brackets and may contain spaces and brackets.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// CPU time of the running threads, in nanoseconds; also none if the kernel keeps no `schedstat`.
#[must_use]
pub fn cpu_time_of_live_threads(pid: u32) -> Option<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let line = fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        nanos += line.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

/// The running processes that the main thread of `pid` started; empty for a process that has ended.
#[must_use]
pub fn children(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

    use std::io::Read as _;
    use std::process::{self, Command, Stdio};

    use super::*;

    #[test]
    fn memory_figures_of_this_process_are_plausible() {
        let pid = process::id();
        assert!(rss_bytes(pid).unwrap() > 100_000);
        assert!(peak_rss_bytes(pid).unwrap() >= rss_bytes(pid).unwrap() / 2);
        assert_eq!(rss_bytes(u32::MAX), None);
    }

    #[test]
    fn both_clocks_of_a_process_agree() {
        // One thread: only one of the clocks counts ended threads.
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; read end";
        let mut child = Command::new("sh")
            .args(["-c", count])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let by_stat = cpu_time(child.id()).unwrap();
        let by_schedstat = cpu_time_of_live_threads(child.id());
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(by_stat >= Duration::from_millis(20), "{by_stat:?}");
        if let Some(by_schedstat) = by_schedstat {
            let apart = by_schedstat.abs_diff(by_stat);
            assert!(apart < Duration::from_millis(60), "{by_stat:?} and {by_schedstat:?}");
        }
    }
}
