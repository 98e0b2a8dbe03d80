//! Errors of building a store and of its memory file.

use std::io;
#[cfg(not(miri))]
use std::path::PathBuf;
use thiserror::Error;

/// The reason for which a store could not be built.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The memory file must not or cannot be used.
    #[cfg(not(miri))]
    #[error("{0}")]
    File(#[from] FileError),
    /// The system refused the address space.
    #[error("cannot reserve memory: {0}")]
    Memory(#[from] io::Error),
    /// The system refused to spread the memory over its nodes.
    #[error(
        "-o numa_interleave: {0}: the kernel needs NUMA, and a container the right to call mbind"
    )]
    Interleave(io::Error),
    /// A setting is out of its range.
    #[error("{0}")]
    Config(&'static str),
    /// Memory passed on by another process does not fit into the limit.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

/// The reason why the memory limit does not change.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum LimitError {
    /// The address space reserved at the start ends here: at four times the limit that the store
    /// was made with, or at the end of references.
    #[error("the limit can be raised to {most} bytes at the most")]
    TooLarge {
        /// The maximum limit, in bytes.
        most: u64,
    },
    /// This many bytes in use cannot be evicted: index, bags, buffers and room for some items; also
    /// all items, if the store evicts nothing.
    #[error("{least} bytes are in use that cannot be evicted")]
    InUse {
        /// The minimum limit, in bytes.
        least: u64,
    },
}

/// More prefixes were invalidated within one purge than the store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("too many prefixes have been invalidated since the last purge")]
pub struct TooManyPrefixes;

/// The reason for which a memory file cannot be used at all.
#[cfg(not(miri))]
#[derive(Debug, Error)]
pub enum FileError {
    /// Another process has locked it.
    #[error("{0} is in use by another process")]
    InUse(PathBuf),
    /// It holds other content, which is not overwritten.
    #[error("{0} is not a memory file of holdall: remove it or name another")]
    Foreign(PathBuf),
    /// A directory, a device, a symbolic link.
    #[error("{0} is not a regular file")]
    NotAFile(PathBuf),
    /// Another user could have written it.
    #[error("{0} belongs to another user, or others may write to it")]
    NotOurs(PathBuf),
    /// Its memory cannot be spread over the memory nodes.
    #[error("{0}: -o numa_interleave needs a file on tmpfs, such as /dev/shm/cache")]
    NotSpread(PathBuf),
    /// No program can write a header into it.
    #[error("{0}: hugetlbfs cannot hold a memory file: use a tmpfs with huge=, or -L")]
    Hugetlbfs(PathBuf),
    /// The file system could not hold the cache.
    #[error("{path}: its file system has room for {free_mb} MB, and -m needs {needed_mb} MB")]
    NoRoom {
        /// The file.
        path: PathBuf,
        /// Free space, including the space that the file already takes.
        free_mb: u64,
        /// The memory limit.
        needed_mb: u64,
    },
    /// The system's refusal.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
}
