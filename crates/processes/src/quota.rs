//! A share of one processor, by a control group of the kernel.

use std::io;
use std::path::Path;

use crate::group::Group;

/// The period of the share, in microseconds.
const PERIOD_US: u32 = 10_000;

/// A control group, removed when dropped, after its processes have ended.
#[derive(Debug)]
pub struct Quota {
    group: Group,
}

impl Quota {
    /// The percentage of a processor that all processes inside share. `name` is this process's for
    /// the group.
    ///
    /// # Errors
    ///
    /// Names the path, when control groups cannot be made: only root may do this.
    pub fn new(name: &str, percent: u32) -> io::Result<Self> {
        let group = Group::new("cpu", "cpu.cfs_quota_us", name)?;
        let quota_us = percent * PERIOD_US / 100;
        if group.is_first_kind {
            group.write("cpu.cfs_period_us", &PERIOD_US.to_string())?;
            group.write("cpu.cfs_quota_us", &quota_us.to_string())?;
        } else {
            group.write("cpu.max", &format!("{quota_us} {PERIOD_US}"))?;
        }
        Ok(Self { group })
    }

    /// Moves a process, with all its threads, into the group.
    ///
    /// # Errors
    ///
    /// Names the path, when the process has ended or may not be moved.
    pub fn enter(&self, pid: u32) -> io::Result<()> {
        self.group.write("cgroup.procs", &pid.to_string())
    }

    /// Moves a process back out of the group.
    ///
    /// # Errors
    ///
    /// Names the path, when the process has ended.
    pub fn leave(&self, pid: u32) -> io::Result<()> {
        self.group.write_above("cgroup.procs", &pid.to_string())
    }

    /// The group's folder; a process enters it by writing its id to the file `cgroup.procs` there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.group.folder()
    }
}
