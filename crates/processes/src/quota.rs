//! A share of one processor, by a control group of the kernel.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The period in which the share is granted anew, in microseconds.
const PERIOD_US: u32 = 10_000;

/// A control group, removed when dropped, which needs its processes gone.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// The percentage of a processor that all processes inside share. `name` is this process's for
    /// the group.
    ///
    /// # Errors
    ///
    /// With the path, when control groups cannot be made: who is not root may not.
    pub fn new(name: &str, percent: u32) -> io::Result<Self> {
        let old = PathBuf::from("/sys/fs/cgroup/cpu");
        let is_old = old.join("cpu.cfs_quota_us").exists();
        let root = if is_old { old } else { PathBuf::from("/sys/fs/cgroup") };
        let folder = root.join(format!("holdall-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(at(&folder))?;
        let quota = Self { folder };
        let quota_us = percent * PERIOD_US / 100;
        if is_old {
            quota.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            quota.write("cpu.cfs_quota_us", &quota_us.to_string())?;
        } else {
            quota.write("cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
        }
        Ok(quota)
    }

    /// Moves a process, with all its threads, into the group.
    ///
    /// # Errors
    ///
    /// With the path, when the process is gone or may not be moved.
    pub fn enter(&self, pid: u32) -> io::Result<()> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// Moves a process back out of the group.
    ///
    /// # Errors
    ///
    /// With the path, when the process is gone.
    pub fn leave(&self, pid: u32) -> io::Result<()> {
        let root = self.folder.parent().unwrap_or(&self.folder);
        write(&root.join("cgroup.procs"), &pid.to_string())
    }

    /// The group's folder; a process enters it by writing its id to the file `cgroup.procs` there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.folder.join(file), text)
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel lets go of ended processes a moment later.
        for _ in 0..20 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(at(path))
}

/// The error with the path at which it happened.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}
