//! A limit of memory, by a control group of the kernel.

use std::io;
use std::path::Path;

use crate::group::Group;

/// A control group whose processes are killed when they use more memory than its limit. Pages of
/// files and the kernel's own structures count. Socket buffers also count; in groups of the
/// kernel's first kind they have a separate limit of the same size.
#[derive(Debug)]
pub struct MemoryLimit {
    group: Group,
}

impl MemoryLimit {
    /// The limit in bytes of all processes inside. `name` is this process's for the group.
    ///
    /// # Errors
    ///
    /// Names the path, when control groups cannot be made: only root may do this.
    pub fn new(name: &str, bytes: u64) -> io::Result<Self> {
        let group = Group::new("memory", "memory.limit_in_bytes", name)?;
        let bytes = bytes.to_string();
        if group.is_first_kind {
            group.write("memory.limit_in_bytes", &bytes)?;
            group.write("memory.kmem.tcp.limit_in_bytes", &bytes)?;
        } else {
            group.write("memory.max", &bytes)?;
            group.write("memory.swap.max", "0")?;
        }
        Ok(Self { group })
    }

    /// The group's folder; a process enters it by writing its id to the file `cgroup.procs` there.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.group.folder()
    }

    /// The maximum bytes that its processes used at a time, including socket buffers.
    ///
    /// # Errors
    ///
    /// Names the path, when the kernel does not count it.
    pub fn peak(&self) -> io::Result<u64> {
        let read = |file| -> io::Result<u64> {
            self.group.read(file)?.trim().parse().map_err(io::Error::other)
        };
        if self.group.is_first_kind {
            let sockets = read("memory.kmem.tcp.max_usage_in_bytes")?;
            Ok(read("memory.max_usage_in_bytes")? + sockets)
        } else {
            read("memory.peak")
        }
    }
}
