//! A share of one processor, by a control group of the kernel, so that the measured program is the
//! bottleneck and its generator is not.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use bench::process::{Launch, Server};

/// The period in which the share is granted anew, in microseconds.
const PERIOD_US: u32 = 10_000;

/// A control group, removed when dropped, which needs its processes gone.
#[derive(Debug)]
pub struct Quota {
    folder: PathBuf,
}

impl Quota {
    /// The percentage of a processor that all processes inside share.
    ///
    /// # Errors
    ///
    /// When control groups cannot be made: who is not root may not.
    pub fn new(name: &str, percent: u32) -> Result<Self> {
        let old = PathBuf::from("/sys/fs/cgroup/cpu");
        let is_old = old.join("cpu.cfs_quota_us").exists();
        let root = if is_old { old } else { PathBuf::from("/sys/fs/cgroup") };
        let folder = root.join(format!("holdall-bench-{}-{name}", std::process::id()));
        fs::create_dir(&folder)
            .with_context(|| format!("{} (is this run as root?)", folder.display()))?;
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

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.folder.join(file);
        fs::write(&path, text).with_context(|| path.display().to_string())
    }

    /// The server, with its children, inside the group.
    #[must_use]
    pub fn around(&self, server: &Server) -> Server {
        let Launch::Command(words) = &server.launch else { return server.clone() };
        let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", self.folder.display());
        let shell = ["sh", "-c", &enter, "sh"].map(str::to_owned);
        let words = shell.into_iter().chain(words.iter().cloned()).collect();
        Server { name: server.name.clone(), launch: Launch::Command(words) }
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
