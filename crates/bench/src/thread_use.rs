//! The CPU time of threads, from `/proc` (proc(5)).

use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The CPU time of a thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadUse {
    /// Its name.
    pub name: String,
    /// Its kernel thread id.
    pub tid: u32,
    /// Ticks in the program.
    pub user: u64,
    /// Ticks in the kernel.
    pub system: u64,
    /// Context switches, voluntary and involuntary.
    pub switches: u64,
    /// Microseconds for which it was ready and no processor was free.
    #[serde(default)]
    pub waited_us: u64,
}

impl ThreadUse {
    /// Ticks on a processor.
    #[must_use]
    pub fn ticks(&self) -> u64 {
        self.user + self.system
    }
}

/// The CPU time of each thread of a process since its start.
///
/// # Errors
///
/// When the process is gone.
pub fn thread_use(pid: u32) -> Result<Vec<ThreadUse>> {
    let tasks = format!("/proc/{pid}/task");
    let mut threads = Vec::new();
    for task in fs::read_dir(&tasks).with_context(|| format!("{tasks}: the server ended"))? {
        let folder = task?.path();
        // A thread may end between listing and reading.
        let Ok(stat) = fs::read_to_string(folder.join("stat")) else { continue };
        let status = fs::read_to_string(folder.join("status")).unwrap_or_default();
        let schedule = fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        threads.extend(parse_thread(&stat, &status, &schedule));
    }
    threads.sort_by_key(|thread| thread.tid);
    Ok(threads)
}

/// Reads `stat`, `status` and `schedstat` of a thread (proc(5)).
fn parse_thread(stat: &str, status: &str, schedule: &str) -> Option<ThreadUse> {
    let (head, tail) = stat.rsplit_once(") ")?;
    let (tid, name) = head.split_once(" (")?;
    let mut fields = tail.split_whitespace().skip(11);
    let (user, system) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let count = |line: &str| {
        let (name, number) = line.split_once(':')?;
        name.ends_with("ctxt_switches").then(|| number.trim().parse::<u64>().ok())?
    };
    let switches = status.lines().filter_map(count).sum();
    let waited = schedule.split_whitespace().nth(1).and_then(|nanos| nanos.parse::<u64>().ok());
    Some(ThreadUse {
        name: name.to_owned(),
        tid: tid.parse().ok()?,
        user,
        system,
        switches,
        waited_us: waited.unwrap_or(0) / 1000,
    })
}

/// The time used between two readings by threads in both.
#[must_use]
pub fn used(before: &[ThreadUse], after: &[ThreadUse]) -> Vec<ThreadUse> {
    let pair = |now: &ThreadUse| {
        let then = before.iter().find(|then| then.tid == now.tid)?;
        Some(ThreadUse {
            user: now.user.saturating_sub(then.user),
            system: now.system.saturating_sub(then.system),
            switches: now.switches.saturating_sub(then.switches),
            waited_us: now.waited_us.saturating_sub(then.waited_us),
            ..now.clone()
        })
    };
    after.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_statistics_are_parsed_from_proc() {
        let stat = "77 (a (b) c) S 1 1 1 0 -1 0 5 0 0 0 120 30 0 0 20 0 4 0 100";
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t7\n";
        let thread = parse_thread(stat, status, "5000 7654321 9\n").unwrap();
        assert_eq!((thread.tid, thread.name.as_str()), (77, "a (b) c"));
        assert_eq!((thread.user, thread.system, thread.switches), (120, 30, 12));
        assert_eq!(thread.waited_us, 7654);
        assert_eq!(parse_thread("", "", ""), None);
    }

    #[test]
    fn this_process_has_threads() {
        assert!(!thread_use(std::process::id()).unwrap().is_empty());
        assert!(thread_use(u32::MAX).is_err());
    }
}
