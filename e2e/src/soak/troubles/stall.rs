//! Stalls one thread of a process.

use std::fs;
use std::thread;
use std::time::Duration;

use processes::FrozenThread;
use testkit::Rng;

/// Freezes one thread of the process for a while.
pub(super) fn one_thread(pid: u32, rng: &mut Rng, pause: Duration) -> Result<(), String> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Ok(()) };
    let ids = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let mut threads: Vec<u32> = ids.collect();
    threads.sort_unstable();
    let frozen = FrozenThread::new(*rng.pick(&threads)).map_err(|error| error.to_string())?;
    thread::sleep(pause);
    drop(frozen);
    Ok(())
}
