//! Stalls one thread of a process, by a control group that freezes threads.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use testkit::Rng;

/// The kernel's first kind of control groups; the second freezes whole processes.
const ROOT: &str = "/sys/fs/cgroup/freezer";

/// A group whose threads stand still; they run again when it is dropped.
struct Frozen {
    folder: PathBuf,
    thread: String,
}

/// Lets one thread of the process stand still for a while.
pub(super) fn one_thread(pid: u32, rng: &mut Rng, pause: Duration) -> Result<(), String> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Ok(()) };
    let names = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    let mut threads: Vec<String> = names.collect();
    threads.sort();
    let thread = rng.pick(&threads).clone();
    let folder = Path::new(ROOT).join(format!("holdall-{}-{thread}", std::process::id()));
    let reason = |error: io::Error| format!("{}: {error}", folder.display());
    fs::create_dir(&folder).map_err(reason)?;
    let frozen = Frozen { folder: folder.clone(), thread };
    fs::write(folder.join("tasks"), &frozen.thread).map_err(reason)?;
    fs::write(folder.join("freezer.state"), "FROZEN").map_err(reason)?;
    thread::sleep(pause);
    drop(frozen);
    Ok(())
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("freezer.state"), "THAWED");
        let _ = fs::write(Path::new(ROOT).join("tasks"), &self.thread);
        let _ = fs::remove_dir(&self.folder);
    }
}
