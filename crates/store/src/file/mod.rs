//! The memory file: a store's memory in a file that outlives the process.
//!
//! A file is locked while it is open, so no two processes ever map it. It must belong to the user
//! that the process runs as, and no other user may write it, because a writer could forge any
//! content.
//!
//! Damaged *content* of our file causes a cold start with a reason ([`Found::Cold`]). A file that
//! must not be overwritten is an error: one in use, foreign, another user's, or on a file system
//! without room.

mod digests;
mod header;

pub(crate) use digests::{THREADS_MAX, digests};
pub use header::TimeNote;

use crate::config::regions::Offsets;
use crate::config::{Config, Layout};
use crate::error::{FileError, StoreError};
use header::{Decoded, HEADER_BYTES, Header, Settings, State};
use narrow::to_usize;
use rustix::fs::{FlockOperation, Mode, OFlags, StatFs};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Content of a file, according to its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing usable, for this reason. `None` for a new or empty file.
    Cold(Option<String>),
    /// A cache whose owner closed it at this time.
    Clean(TimeNote),
    /// A cache whose owner died; it had opened the file at this time.
    Crashed(TimeNote),
}

/// An open, locked memory file.
#[derive(Debug)]
pub struct MemoryFile {
    file: Arc<File>,
    path: PathBuf,
    /// Settings of the content found, or else ours.
    settings: Settings,
    layout: Layout,
    header: Option<Header>,
    found: Found,
}

impl MemoryFile {
    /// Opens or creates the file for a store of this configuration.
    ///
    /// # Errors
    ///
    /// A configuration out of range; a [`FileError`] for a file that must not or cannot be used.
    pub fn open(path: &Path, config: &Config) -> Result<Self, StoreError> {
        let layout = Layout::new(config)?;
        Self::check(path, config)?;
        let file = open_locked(path)?;
        let memory = Self::examine(file, path, config, layout, 0)?;
        memory.check_room(config.memory_bytes)?;
        Ok(memory)
    }

    /// Refuses a file for its file system, before it is created, or before another process passes
    /// it on.
    ///
    /// # Errors
    ///
    /// [`FileError::NotSpread`], [`FileError::Hugetlbfs`].
    pub fn check(path: &Path, config: &Config) -> Result<(), StoreError> {
        let folder = path.parent().filter(|folder| *folder != "").unwrap_or_else(|| Path::new("."));
        let system = rustix::fs::statfs(path).or_else(|_| rustix::fs::statfs(folder));
        // Without a file system, opening the file fails with the reason.
        system.map_or(Ok(()), |system| Ok(check_system(path, config, &system)?))
    }

    /// Takes over the open, locked file of another process, which has passed on the `ticket` of its
    /// clean end.
    ///
    /// # Errors
    ///
    /// Those of [`open`](Self::open).
    pub fn inherit(
        file: OwnedFd,
        path: &Path,
        config: &Config,
        ticket: u64,
    ) -> Result<Self, StoreError> {
        let layout = Layout::new(config)?;
        Ok(Self::examine(file.into(), path, config, layout, ticket)?)
    }

    fn examine(
        file: File,
        path: &Path,
        config: &Config,
        layout: Layout,
        ticket: u64,
    ) -> Result<Self, FileError> {
        let page = first_page(&file).map_err(|error| FileError::Io(path.to_owned(), error))?;
        let (mut settings, mut layout) = (Settings::of(config, &layout), layout);
        let (header, found) = match Header::decode(&page) {
            Decoded::Empty if page.is_empty() => (None, Found::Cold(None)),
            Decoded::Empty => (None, Found::Cold(Some("it has no header".to_owned()))),
            Decoded::Foreign => return Err(FileError::Foreign(path.to_owned())),
            Decoded::Damaged(reason) => (None, Found::Cold(Some(reason))),
            Decoded::Header(header) => match header.settings.layout(config) {
                Err(reason) => (None, Found::Cold(Some(reason))),
                Ok(theirs) => {
                    (settings, layout) = (header.settings, theirs);
                    let believed = header.ticket == ticket;
                    let found = match header.state {
                        State::Clean if believed => Found::Clean(header.note),
                        _ => Found::Crashed(header.note),
                    };
                    (Some(header), found)
                }
            },
        };
        let path = path.to_owned();
        Ok(Self { file: Arc::new(file), path, settings, layout, header, found })
    }

    /// Checks that there is room for all of the cache: a process that stores into a mapping is
    /// ended when the file system is full.
    fn check_room(&self, needed: u64) -> Result<(), FileError> {
        let failed = |error: io::Error| FileError::Io(self.path.clone(), error);
        let system = rustix::fs::fstatvfs(&self.file).map_err(|error| failed(error.into()))?;
        let held = self.file.metadata().map_err(failed)?.blocks() * 512;
        let free = system.f_bavail.saturating_mul(system.f_frsize).saturating_add(held);
        // A tmpfs without a limit reports that it has no blocks.
        if system.f_blocks == 0 || free >= needed {
            return Ok(());
        }
        let path = self.path.clone();
        Err(FileError::NoRoom { path, free_mb: free >> 20, needed_mb: needed.div_ceil(1 << 20) })
    }

    /// The number of the files that a store of this configuration can take over: that of the file
    /// at `path`, if it is among them, because its limit may differ.
    ///
    /// # Errors
    ///
    /// A configuration out of range.
    pub fn format(path: &Path, config: &Config) -> Result<u64, StoreError> {
        let ours = Settings::of(config, &Layout::new(config)?);
        let theirs = settings_at(path).filter(|theirs| theirs.layout(config).is_ok());
        Ok(theirs.unwrap_or(ours).format())
    }

    /// The number of this file's format.
    pub(crate) fn own_format(&self) -> u64 {
        self.settings.format()
    }

    /// The layout of the content found, or else ours.
    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// The limit that belongs to the layout.
    pub(crate) fn layout_bytes(&self) -> u64 {
        self.settings.memory_bytes
    }

    /// First byte behind the regions.
    fn base_bytes(&self) -> u64 {
        Offsets::of(&self.layout).end
    }

    /// The content that was found.
    #[must_use]
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of times that a store was opened over it.
    #[must_use]
    pub fn starts(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.starts)
    }

    /// Discards the content, for this reason: the store starts cold.
    pub fn discard(&mut self, reason: String) {
        self.found = Found::Cold(Some(reason));
    }

    /// Duplicates the open file, for a successor.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub fn share(&self) -> io::Result<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Seed of the key hash of the content found.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.header.as_ref().map(|header| header.seed)
    }

    /// The record of a clean end, behind the regions. `None` if it is damaged.
    pub(crate) fn record(&self) -> io::Result<Option<Vec<u8>>> {
        let Some((len, digest)) = self.header.as_ref().map(|header| header.record) else {
            return Ok(None);
        };
        // Checked before memory is allocated for it, so the length is a file's.
        if self.file.metadata()?.len() != self.base_bytes().saturating_add(len) {
            return Ok(None);
        }
        let mut record = vec![0; to_usize(len)];
        self.file.read_exact_at(&mut record, self.base_bytes())?;
        Ok((header::digest(&record) == digest).then_some(record))
    }

    /// `true` if the pages have digests.
    pub(crate) fn has_digests(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.ticket == 0)
    }

    /// `true` if the file is long enough for its regions.
    pub(crate) fn is_whole(&self) -> io::Result<bool> {
        Ok(self.file.metadata()?.len() >= self.base_bytes())
    }

    /// Discards the content: the file becomes all zero, for a store of this configuration.
    pub(crate) fn clear(&mut self, config: &Config, layout: &Layout) -> io::Result<()> {
        let starts = self.starts();
        (self.settings, self.layout) = (Settings::of(config, layout), *layout);
        self.header = None;
        self.file.set_len(0)?;
        self.begin(starts, 0, TimeNote::default())?;
        self.file.set_len(self.base_bytes())
    }

    /// Marks the file as in use.
    pub(crate) fn begin(&mut self, starts: u64, seed: u64, note: TimeNote) -> io::Result<()> {
        let header = Header {
            settings: self.settings,
            seed,
            starts,
            state: State::InUse,
            note,
            record: (0, 0),
            ticket: 0,
        };
        self.file.write_all_at(&header.encode(), 0)?;
        self.header = Some(header);
        // The record of the last end is obsolete.
        let base_bytes = self.base_bytes();
        if self.file.metadata()?.len() > base_bytes {
            self.file.set_len(base_bytes)?;
        }
        Ok(())
    }

    /// Writes the record that the next start needs, and then marks the file as clean.
    pub(crate) fn end(&mut self, record: &[u8], note: TimeNote, ticket: u64) -> io::Result<()> {
        let Some(mut header) = self.header.clone() else { return Ok(()) };
        self.file.write_all_at(record, self.base_bytes())?;
        header.record = (record.len() as u64, header::digest(record));
        (header.state, header.note, header.ticket) = (State::Clean, note, ticket);
        self.file.write_all_at(&header.encode(), 0)?;
        self.header = Some(header);
        Ok(())
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The header's page, or all of a shorter file.
fn first_page(file: &File) -> io::Result<Vec<u8>> {
    let len = file.metadata()?.len();
    let mut page = vec![0; to_usize(len.min(HEADER_BYTES as u64))];
    file.read_exact_at(&mut page, 0)?;
    Ok(page)
}

/// The settings of the file there, which another process may be using.
fn settings_at(path: &Path) -> Option<Settings> {
    // Opening a pipe could wait for ever.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    match Header::decode(&first_page(&file).ok()?) {
        Decoded::Header(header) => Some(header.settings),
        _ => None,
    }
}

/// Refuses a file system whose files can only be mapped, not written. Also refuses a file whose
/// pages should be spread over memory nodes but cannot be: on a file system that is not memory, the
/// kernel places them.
fn check_system(path: &Path, config: &Config, system: &StatFs) -> Result<(), FileError> {
    // Magic numbers (linux/magic.h).
    const TMPFS: i64 = 0x0102_1994;
    const HUGETLBFS: i64 = 0x9584_58f6;
    match system.f_type {
        HUGETLBFS => Err(FileError::Hugetlbfs(path.to_owned())),
        kind if config.numa_interleave && kind != TMPFS => {
            Err(FileError::NotSpread(path.to_owned()))
        }
        _ => Ok(()),
    }
}

fn open_locked(path: &Path) -> Result<File, FileError> {
    let failed = |error: Errno| FileError::Io(path.to_owned(), error.into());
    // A symbolic link in a world-writable directory could lead anywhere; opening a pipe could wait
    // for ever.
    let flags =
        OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Err(FileError::NotAFile(path.to_owned()));
        }
        opened => File::from(opened.map_err(failed)?),
    };
    let facts = file.metadata().map_err(|error| FileError::Io(path.to_owned(), error))?;
    if !facts.is_file() {
        return Err(FileError::NotAFile(path.to_owned()));
    }
    if facts.uid() != rustix::process::geteuid().as_raw() || facts.mode() & 0o022 != 0 {
        return Err(FileError::NotOurs(path.to_owned()));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(FileError::InUse(path.to_owned())),
        locked => locked.map_err(failed).map(|()| file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_hold_no_memory_file_are_refused() {
        let (plain, spread) =
            (Config::default(), Config { numa_interleave: true, ..Config::default() });
        let mut system = rustix::fs::statfs("/").unwrap();
        let mut checked = |kind, config| {
            system.f_type = kind;
            check_system(Path::new("/huge/x"), config, &system)
        };
        for config in [&plain, &spread] {
            let refused = checked(0x9584_58f6, config);
            assert!(matches!(refused, Err(FileError::Hugetlbfs(_))), "{refused:?}");
        }
        // Of ext4.
        assert!(checked(0xef53, &plain).is_ok());
        assert!(matches!(checked(0xef53, &spread), Err(FileError::NotSpread(_))));
        assert!(checked(0x0102_1994, &spread).is_ok());
    }
}
