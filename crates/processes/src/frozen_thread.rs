//! A thread that is frozen by a control group of the kernel.

use std::io;

use crate::group::Group;

/// One thread of a process, frozen until this is dropped. Its process continues.
#[derive(Debug)]
pub struct FrozenThread {
    group: Group,
    thread: u32,
}

impl FrozenThread {
    /// Freezes the thread with this id, wherever it is.
    ///
    /// # Errors
    ///
    /// Names the path, when control groups cannot be made (only root may), the kernel has only
    /// those of its second kind, which freeze whole processes, or the thread has ended.
    pub fn new(thread: u32) -> io::Result<Self> {
        let group = Group::new("freezer", "tasks", &thread.to_string())?;
        if !group.is_first_kind {
            return Err(io::Error::other("control groups of the first kind are needed"));
        }
        group.write("tasks", &thread.to_string())?;
        let frozen = Self { group, thread };
        frozen.group.write("freezer.state", "FROZEN")?;
        Ok(frozen)
    }
}

impl Drop for FrozenThread {
    fn drop(&mut self) {
        // Both fail only for a thread that has ended.
        let _ = self.group.write("freezer.state", "THAWED");
        let _ = self.group.write_above("tasks", &self.thread.to_string());
    }
}
