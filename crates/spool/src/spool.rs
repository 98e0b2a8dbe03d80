//! A folder of logs, one per destination: see the crate's header.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::log::{self, Gaps, Log};
use crate::record::{BODY_BYTES_MAX, HEAD_BYTES};
use crate::scan::Record;
use crate::segment::{FILE_MODE, Segment, check_file, destination_of, folder_name, make_folder};

/// The time at which written records are synced to the disk. In any case, they survive the end of
/// the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fsync {
    /// The kernel chooses the time.
    Never,
    /// At most this long after the write; a failure of the machine may lose that much.
    Every(Duration),
    /// Before [`Spool::commit`] returns: a failure of the machine loses no committed record.
    Always,
}

/// The limits and the durability of a spool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Maximum bytes on disk.
    pub bytes_max: u64,
    /// Older records are dropped; [`Duration::MAX`] keeps them.
    pub age_max: Duration,
    /// Bytes after which a new segment starts.
    pub segment_bytes: u64,
    /// The time at which records are synced to the disk.
    pub fsync: Fsync,
}

impl Default for Settings {
    /// A GiB, a week, segments of a MiB, fsync every second.
    fn default() -> Self {
        Self {
            bytes_max: 1 << 30,
            age_max: Duration::from_secs(7 * 24 * 3600),
            segment_bytes: 1 << 20,
            fsync: Fsync::Every(Duration::from_secs(1)),
        }
    }
}

/// The reason why a record is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Error)]
pub enum AppendError {
    /// The spool has reached its byte limit.
    #[error("its limit of bytes is reached")]
    Full,
    /// The record is longer than [`BODY_BYTES_MAX`].
    #[error("the delete is too long")]
    TooLong,
    /// The destination's name is empty, or too long for a folder's.
    #[error("the server's name is too long for a folder's")]
    Unnamable,
}

/// A destination whose staged records, all since the last commit, could not be written.
#[derive(Debug)]
pub struct Failed {
    /// The destination's name.
    pub destination: String,
    /// The reason.
    pub error: io::Error,
}

/// Missing records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Damage {
    /// Written records that cannot be read.
    Lost {
        /// The destination of the records.
        destination: String,
        /// The number of records.
        records: u64,
    },
    /// Records that were older than [`Settings::age_max`].
    Expired {
        /// The destination of the records.
        destination: String,
        /// The number of records.
        records: u64,
    },
    /// The end of a segment was not a whole record and was cut off. Records of it that were on the
    /// disk are also [`Damage::Lost`]; others were not committed, unless the machine failed.
    Torn {
        /// The destination of the segment's records.
        destination: String,
        /// The number of bytes cut off.
        bytes: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { destination, records } => {
                write!(f, "{destination}: {records} records are damaged and skipped")
            }
            Self::Expired { destination, records } => {
                write!(f, "{destination}: {records} records were too old and are dropped")
            }
            Self::Torn { destination, bytes } => {
                write!(f, "{destination}: {bytes} bytes at the end were no record and are cut off")
            }
        }
    }
}

/// The numbers of a spool's records and bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Unacknowledged records.
    pub pending: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Records that could not be read, since the start.
    pub lost: u64,
    /// Records that became too old, since the start.
    pub expired: u64,
}

/// The records of all destinations in one folder, within one byte limit. Dropping it writes
/// everything to the disk.
#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    settings: Settings,
    logs: BTreeMap<String, Log>,
    /// Of all logs.
    bytes: u64,
    lost: u64,
    expired: u64,
    damage: Vec<Damage>,
    /// Replaces dropped records.
    substitute: Option<Vec<u8>>,
    synced: Option<Instant>,
    /// Locked for the lifetime of this value.
    _lock: File,
}

impl Spool {
    /// The spool in `folder`, which is created if it does not exist. One program at a time can open
    /// it.
    ///
    /// # Errors
    ///
    /// When the folder cannot be created, read or written, or another program has it open.
    pub fn open(folder: &Path, settings: Settings) -> io::Result<Self> {
        make_folder(folder)?;
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        let path = folder.join("lock");
        check_file(&path)?;
        let lock = options.open(path)?;
        match self::lock(&lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, "another program has it"));
            }
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut spool = Self {
            folder: folder.to_owned(),
            settings,
            logs: BTreeMap::new(),
            bytes: 0,
            lost: 0,
            expired: 0,
            damage: Vec::new(),
            substitute: None,
            synced: None,
            _lock: lock,
        };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(destination) = name.to_str().and_then(destination_of) else { continue };
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let (log, cut) = Log::open(entry.path())?;
            if cut > 0 {
                spool.damage.push(Damage::Torn { destination: destination.clone(), bytes: cut });
            }
            if log.pending() == 0 {
                log.remove();
            } else {
                spool.bytes += log.bytes();
                spool.logs.insert(destination, log);
            }
        }
        Ok(spool)
    }

    /// The folder it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on, dropped records leave this one after the others of their destination: it is on
    /// the disk before they are removed, or before anything after them is acknowledged.
    pub fn leave_behind(&mut self, substitute: Vec<u8>) {
        self.substitute = Some(substitute);
    }

    /// Stages a record for `destination`, appended at `secs` since 1970; returns its number.
    /// [`Self::commit`] writes it.
    ///
    /// # Errors
    ///
    /// Returns the reason for a refusal.
    pub fn append(
        &mut self,
        destination: &str,
        record: &[u8],
        secs: u64,
    ) -> Result<u64, AppendError> {
        let folder = folder_name(destination);
        if folder.is_empty() || folder.len() > 255 {
            return Err(AppendError::Unnamable);
        }
        if record.len() > BODY_BYTES_MAX {
            return Err(AppendError::TooLong);
        }
        let len = (HEAD_BYTES + record.len()) as u64;
        if self.bytes + len > self.settings.bytes_max {
            return Err(AppendError::Full);
        }
        let log = self.log(destination).map_err(|_| AppendError::Unnamable)?;
        let number = log.stage(secs, record);
        self.bytes += len;
        Ok(number)
    }

    /// Makes the folder of `destination` before its first record. From then on, [`is_unprepared`]
    /// shows that another program removed it.
    ///
    /// # Errors
    ///
    /// When it cannot be read or written.
    pub fn prepare(&mut self, destination: &str) -> io::Result<()> {
        self.log(destination)?.write_position()
    }

    fn log(&mut self, destination: &str) -> io::Result<&mut Log> {
        match self.logs.entry(destination.to_owned()) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                // A new log has nothing to read, or the rest of a folder without pending records.
                let (log, _) = Log::open(self.folder.join(folder_name(destination)))?;
                Ok(entry.insert(log))
            }
        }
    }

    /// Writes the staged records and the acknowledged positions, and syncs them if [`Fsync`]
    /// requires it. For a failed destination, no staged record is kept, except for that of
    /// [`Self::leave_behind`]. Records whose files were removed in the meantime are
    /// [`Damage::Lost`].
    pub fn commit(&mut self, now: Instant) -> Vec<Failed> {
        let is_due = match self.settings.fsync {
            Fsync::Never | Fsync::Always => false,
            Fsync::Every(_) => self.sync_due().is_some_and(|due| due <= now),
        };
        let always = self.settings.fsync == Fsync::Always;
        let (mut failed, mut dropped) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (destination, log) in &mut self.logs {
            let lost = log.drop_removed();
            if lost > 0 {
                dropped.push((destination.clone(), Gaps { lost, expired: 0 }));
                if let Some(substitute) = &self.substitute {
                    log.owe(log.staged_secs(), substitute);
                }
            }
            let mut done = log.write(self.settings.segment_bytes, always);
            if done.is_ok() && is_due {
                done = log.sync();
            }
            if let Err(error) = done {
                failed.push(Failed { destination: destination.clone(), error });
            }
            // An unwritten position repeats delivered records, and is written with the next one.
            let _ = log.write_position();
            bytes += log.bytes();
        }
        self.bytes = bytes;
        for (destination, gaps) in dropped {
            self.note(destination, gaps);
        }
        if is_due || self.synced.is_none() {
            self.synced = Some(now);
        }
        failed
    }

    /// The time at which [`Self::commit`] must be called to sync written data.
    #[must_use]
    pub fn sync_due(&self) -> Option<Instant> {
        let Fsync::Every(interval) = self.settings.fsync else { return None };
        let synced = self.synced.filter(|_| self.logs.values().any(Log::is_unsynced))?;
        synced.checked_add(interval)
    }

    /// The oldest unacknowledged records of `destination`, in order, at most `records_max` and
    /// about `bytes_max`. They are returned again until [`Self::acknowledge`] is called. It is
    /// `secs` since 1970.
    ///
    /// # Errors
    ///
    /// When a segment cannot be read.
    pub fn read(
        &mut self,
        destination: &str,
        records_max: usize,
        bytes_max: usize,
        secs: u64,
    ) -> io::Result<Vec<Record>> {
        let Some(log) = self.logs.get_mut(destination) else { return Ok(Vec::new()) };
        let oldest_secs = secs.saturating_sub(self.settings.age_max.as_secs());
        let (records, gaps) = log.read(records_max, bytes_max, oldest_secs)?;
        if let Some(substitute) = self.substitute.as_ref().filter(|_| gaps.lost + gaps.expired > 0)
        {
            // This ignores the limit, because one small record replaces many.
            log.owe(secs, substitute);
            self.bytes += (HEAD_BYTES + substitute.len()) as u64;
        }
        if records.is_empty() {
            log.clean();
        }
        let destination = destination.to_owned();
        self.note(destination, gaps);
        Ok(records)
    }

    /// The records of `destination` up to `number`, which [`Self::read`] returned last, are
    /// delivered.
    pub fn acknowledge(&mut self, destination: &str, number: u64) {
        let Some(log) = self.logs.get_mut(destination) else { return };
        let before = log.bytes();
        log.acknowledge(number);
        self.bytes = self.bytes.saturating_sub(before - log.bytes());
    }

    /// The number that the next record of `destination` gets.
    #[must_use]
    pub fn next_number(&self, destination: &str) -> u64 {
        self.logs.get(destination).map_or(0, Log::next_number)
    }

    /// Drops the committed records of `destination` before `number`, including those that cannot be
    /// read, which are then not [`Damage`].
    pub fn drop_before(&mut self, destination: &str, number: u64) {
        let Some(log) = self.logs.get_mut(destination) else { return };
        let before = log.bytes();
        log.drop_before(number);
        self.bytes = self.bytes.saturating_sub(before - log.bytes());
    }

    /// Drops records that are too old at `secs` since 1970.
    pub fn expire(&mut self, secs: u64) {
        let oldest_secs = secs.saturating_sub(self.settings.age_max.as_secs());
        let mut dropped = Vec::new();
        for (destination, log) in &mut self.logs {
            if let Some(substitute) = self.substitute.as_ref().filter(|_| log.is_old(oldest_secs))
                && log.leave_behind(secs, substitute).is_err()
            {
                // Old records stay until there is room to record their loss.
                continue;
            }
            let expired = log.expire(oldest_secs);
            if expired > 0 {
                dropped.push((destination.clone(), Gaps { lost: 0, expired }));
            }
        }
        for (destination, gaps) in dropped {
            self.note(destination, gaps);
        }
        self.bytes = self.logs.values().map(Log::bytes).sum();
    }

    fn note(&mut self, destination: String, gaps: Gaps) {
        let Gaps { lost, expired } = gaps;
        self.lost += lost;
        self.expired += expired;
        if lost > 0 {
            self.damage.push(Damage::Lost { destination: destination.clone(), records: lost });
        }
        if expired > 0 {
            self.damage.push(Damage::Expired { destination, records: expired });
        }
    }

    /// The damage found since the last call.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        std::mem::take(&mut self.damage)
    }

    /// The destinations with records, and their number of records.
    pub fn destinations(&self) -> impl Iterator<Item = (&str, u64)> {
        let all = self.logs.iter().map(|(destination, log)| (&**destination, log.pending()));
        all.filter(|(_, pending)| *pending > 0)
    }

    /// The number of bytes by which it may still grow.
    #[must_use]
    pub fn bytes_free(&self) -> u64 {
        self.settings.bytes_max.saturating_sub(self.bytes)
    }

    /// The current counts.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let pending = self.logs.values().map(Log::pending).sum();
        Counts { pending, bytes: self.bytes, lost: self.lost, expired: self.expired }
    }
}

/// True if the spool in `folder` has no position of `destination`: it was not
/// [prepared](Spool::prepare), or another program has removed files.
#[must_use]
pub fn is_unprepared(folder: &Path, destination: &str) -> bool {
    log::is_unprepared(&folder.join(folder_name(destination)))
}

/// True if the spool in `folder` has pending records, and no program has it open. Changes nothing.
///
/// # Errors
///
/// When the folder cannot be read.
pub fn is_abandoned(folder: &Path) -> io::Result<bool> {
    let mut has_records = false;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().and_then(destination_of).is_some() && entry.file_type()?.is_dir() {
            // A segment is removed with its last pending record.
            has_records |= Segment::list(&entry.path())?.iter().any(|segment| segment.len > 0);
        }
    }
    if !has_records {
        return Ok(false);
    }
    let path = folder.join("lock");
    check_file(&path)?;
    match File::open(path)?.try_lock_shared() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Locks the file of a spool. [`is_abandoned`] of another program also locks it, for a moment.
fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..10 {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
            locked => return locked,
        }
    }
    file.try_lock()
}

impl Drop for Spool {
    fn drop(&mut self) {
        for log in self.logs.values_mut() {
            // A failure here has the effect of a kill.
            let _ = log.write_position();
            if self.settings.fsync != Fsync::Never {
                let _ = log.sync();
            }
        }
    }
}
