//! The records of one destination: segments, and their delivered part.
//!
//! ```text
//!     numbers:   acknowledged | begin .. given by read (ahead) .. written | staged .. next
//! ```
//!
//! Segments are deleted oldest first. Each run of the program writes to new segments; those of an
//! earlier run are only read, after the torn end of its last segment was cut off.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::record::{self, NUMBER_MAX};
use crate::scan::{Item, Record, Scanner};
use crate::segment::{FILE_MODE, Segment, check_file, make_folder};
use crate::synced::{self, Synced};

/// The name of the position's file.
const POSITION: &str = "position";

/// Bytes of the position's file: the number of the oldest unacknowledged record, and its checksum.
const POSITION_BYTES: usize = 12;

/// Where the next record is read: after `offset` bytes of the segment that starts with record
/// `first`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Place {
    first: u64,
    offset: u64,
}

/// The records that a read found missing.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Gaps {
    /// Records that are damaged.
    pub(crate) lost: u64,
    /// Records that were too old.
    pub(crate) expired: u64,
}

/// The records of one destination on disk, and the position up to which they are acknowledged.
#[derive(Debug)]
pub(crate) struct Log {
    folder: PathBuf,
    segments: VecDeque<Segment>,
    /// The last segment, if this run writes to it.
    tail: Option<File>,
    reader: Option<(u64, File)>,
    position: Option<File>,
    /// None if there is no file of it.
    position_written: Option<u64>,
    synced: Synced,
    staged: Vec<(u64, Vec<u8>)>,
    staged_bytes: u64,
    next: u64,
    begin: u64,
    at: Place,
    ahead: VecDeque<(u64, Place)>,
    is_unsynced: bool,
    /// Stands for lost records, and is not written yet: until then, no file shows the loss except
    /// the remaining segments and the old position.
    owed: Option<(u64, Vec<u8>)>,
}

impl Log {
    /// The log in `folder`, which need not exist, and the bytes that were cut from its end.
    pub(crate) fn open(folder: PathBuf) -> io::Result<(Self, u64)> {
        let mut segments: VecDeque<Segment> = match Segment::list(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => VecDeque::new(),
            other => other?.into(),
        };
        let path = folder.join(POSITION);
        check_file(&path)?;
        let acknowledged = position(&folder);
        let position_written = path.exists().then_some(acknowledged);
        let oldest = segments.front().map(|segment| segment.first);
        let mut next = acknowledged;
        let mut cut = 0;
        if let Some(last) = segments.back_mut() {
            let (len, behind) = end_of(&folder, last)?;
            cut = last.len - len;
            if cut > 0 {
                OpenOptions::new().write(true).open(last.path(&folder))?.set_len(len)?;
            }
            last.len = len;
            // Records that were synced and are not there are found to be lost by the next read.
            next = next.max(behind).max(synced::end_of(&folder, last)?.unwrap_or(0));
            if len == 0 {
                fs::remove_file(last.path(&folder))?;
                segments.pop_back();
            }
        }
        let oldest = oldest.unwrap_or(next);
        let begin = acknowledged.max(oldest).min(next);
        let mut log = Self {
            folder,
            segments,
            tail: None,
            reader: None,
            position: None,
            position_written,
            synced: Synced::default(),
            staged: Vec::new(),
            staged_bytes: 0,
            next,
            begin,
            at: Place { first: oldest, offset: 0 },
            ahead: VecDeque::new(),
            is_unsynced: false,
            owed: None,
        };
        log.clean();
        Ok((log, cut))
    }

    /// Unacknowledged records.
    pub(crate) fn pending(&self) -> u64 {
        self.next - self.begin
    }

    /// The number that the next record gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.next
    }

    /// The time of the last staged record, in seconds since 1970.
    pub(crate) fn staged_secs(&self) -> u64 {
        self.staged.last().map_or(0, |(secs, _)| *secs)
    }

    /// Bytes on disk, including staged ones.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum::<u64>() + self.staged_bytes
    }

    /// True if a failure of the machine could lose written data.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.is_unsynced
    }

    /// Stages a record for [`Self::write`]; returns its number.
    pub(crate) fn stage(&mut self, secs: u64, body: &[u8]) -> u64 {
        self.staged_bytes += (record::HEAD_BYTES + body.len()) as u64;
        self.staged.push((secs, body.to_vec()));
        self.next += 1;
        self.next - 1
    }

    /// Stages a record that stands for lost ones. If a write fails, the next one tries again.
    pub(crate) fn owe(&mut self, secs: u64, body: &[u8]) {
        self.stage(secs, body);
        self.owed = Some((secs, body.to_vec()));
    }

    /// Writes the staged records with one write; with `sync`, they are then on the disk. After a
    /// failure, none of them is kept, except for the one of [`Self::owe`].
    pub(crate) fn write(&mut self, segment_bytes: u64, sync: bool) -> io::Result<()> {
        if self.staged.is_empty() {
            return Ok(());
        }
        let staged = std::mem::take(&mut self.staged);
        self.staged_bytes = 0;
        let first = self.next - staged.len() as u64;
        let written = self.write_records(first, &staged, segment_bytes, sync);
        if written.is_err() {
            self.next = first;
            // Whatever is there now, nothing is written after it.
            self.tail = None;
            if let Some((secs, body)) = self.owed.clone() {
                self.stage(secs, &body);
            }
        } else if self.owed.take().is_some() {
            self.clean();
        }
        written
    }

    fn write_records(
        &mut self,
        first: u64,
        staged: &[(u64, Vec<u8>)],
        segment_bytes: u64,
        sync: bool,
    ) -> io::Result<()> {
        let secs = staged.last().map_or(0, |(secs, _)| *secs);
        let is_full = self.segments.back().is_none_or(|last| last.len >= segment_bytes);
        if self.tail.is_none() || is_full {
            self.sync_before(first)?;
            make_folder(&self.folder)?;
            let (segment, file) = Segment::create(&self.folder, first, secs)?;
            if sync {
                File::open(&self.folder)?.sync_all()?;
            }
            self.segments.push_back(segment);
            self.tail = Some(file);
        }
        let (Some(last), Some(file)) = (self.segments.back_mut(), &self.tail) else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        for (number, (secs, body)) in (first..).zip(staged) {
            record::write(&mut bytes, last.salt, number, *secs, body);
        }
        let mut written = file.write_all_at(&bytes, last.len);
        if written.is_ok() && sync {
            written = file.sync_data();
        }
        match &written {
            Ok(()) => {
                last.len += bytes.len() as u64;
                last.newest_secs = secs;
                self.is_unsynced = !sync;
                if sync {
                    self.note_synced(self.next);
                }
            }
            Err(_) => {
                // A rest that cannot be cut off either is found to be torn, or returned although it
                // was refused: no harm.
                let _ = file.set_len(last.len);
                if last.len == 0 {
                    let _ = fs::remove_file(last.path(&self.folder));
                    self.segments.pop_back();
                }
            }
        }
        written
    }

    /// Syncs the written data to the disk.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        self.sync_before(self.next - self.staged.len() as u64)
    }

    /// Syncs the written data, which are the records before `next`.
    fn sync_before(&mut self, next: u64) -> io::Result<()> {
        if let Some(file) = self.tail.as_ref().filter(|_| self.is_unsynced) {
            file.sync_data()?;
            self.note_synced(next);
        }
        self.is_unsynced = false;
        Ok(())
    }

    /// Notes that the records before `next` are on the disk.
    fn note_synced(&mut self, next: u64) {
        if let Some(last) = self.segments.back() {
            // Without the note, a damaged end is taken for a torn one.
            let _ = self.synced.write(&self.folder, last, next);
        }
    }

    /// The oldest unacknowledged records, at most `records_max` and about `bytes_max`, and the
    /// records missing before them. Those appended before `oldest_secs` are too old.
    pub(crate) fn read(
        &mut self,
        records_max: usize,
        bytes_max: usize,
        oldest_secs: u64,
    ) -> io::Result<(Vec<Record>, Gaps)> {
        self.ahead.clear();
        let (mut records, mut gaps, mut bytes): (Vec<Record>, _, _) =
            (Vec::new(), Gaps::default(), 0);
        let written = self.next - self.staged.len() as u64;
        let mut index =
            self.segments.iter().position(|one| one.first >= self.at.first).unwrap_or(0);
        'segments: while let Some(segment) = self.segments.get(index).cloned() {
            let from = if segment.first == self.at.first { self.at.offset } else { 0 };
            index += 1;
            match self.open_reader(&segment) {
                Err(error) if is_gone(&error) => continue,
                other => other?,
            }
            let Some((_, file)) = &self.reader else { break };
            let mut scanner = Scanner::new(file, &segment, from);
            loop {
                let item = match scanner.next() {
                    Err(error) if is_gone(&error) => break,
                    other => other?,
                };
                let Some(item) = item else { break };
                let Item::Record { record, end } = item else { continue };
                // A failed write left it and its number was reused, or the number is damaged.
                if record.number >= written {
                    continue;
                }
                let place = Place { first: segment.first, offset: end };
                // It was delivered, or written a second time after a failed write.
                let Some(missing) = record.number.checked_sub(self.begin + records.len() as u64)
                else {
                    continue;
                };
                let is_old = record.secs < oldest_secs;
                if missing > 0 || is_old {
                    if !records.is_empty() {
                        break 'segments;
                    }
                    gaps.lost += missing;
                    gaps.expired += u64::from(is_old);
                    self.begin = record.number + u64::from(is_old);
                }
                if !is_old {
                    bytes += record.body.len();
                    self.ahead.push_back((record.number, place));
                    records.push(record);
                }
                if records.len() >= records_max || bytes >= bytes_max {
                    break 'segments;
                }
            }
        }
        if records.is_empty() {
            // Written records that are not here are lost.
            gaps.lost += written - self.begin;
            self.begin = written;
        }
        Ok((records, gaps))
    }

    fn open_reader(&mut self, segment: &Segment) -> io::Result<()> {
        if self.reader.as_ref().is_none_or(|(first, _)| *first != segment.first) {
            self.reader = Some((segment.first, File::open(segment.path(&self.folder))?));
        }
        Ok(())
    }

    /// All records that [`Self::read`] returned last, up to `number`, are delivered.
    pub(crate) fn acknowledge(&mut self, number: u64) {
        while let Some((oldest, place)) = self.ahead.front().copied()
            && oldest <= number
        {
            self.ahead.pop_front();
            self.begin = oldest + 1;
            self.at = place;
        }
        self.clean();
    }

    /// True if [`Self::expire`] would delete records.
    pub(crate) fn is_old(&self, oldest_secs: u64) -> bool {
        self.pending() > 0 && self.segments.front().is_some_and(|one| one.newest_secs < oldest_secs)
    }

    /// Writes a record into a new segment, and syncs it to the disk.
    pub(crate) fn leave_behind(&mut self, secs: u64, body: &[u8]) -> io::Result<()> {
        self.write(u64::MAX, true)?;
        self.sync()?;
        self.tail = None;
        self.stage(secs, body);
        self.write(u64::MAX, true)
    }

    /// Deletes the segments whose records were all appended before `oldest_secs`; returns the
    /// number of lost records.
    pub(crate) fn expire(&mut self, oldest_secs: u64) -> u64 {
        let is_old = |segment: &&Segment| segment.newest_secs < oldest_secs;
        self.drop_oldest(self.segments.iter().take_while(is_old).count())
    }

    /// Finds segments that another program has removed before staged records are written. Returns
    /// the number of records lost at the begin, which a later start would not miss; a read misses
    /// the others.
    pub(crate) fn drop_removed(&mut self) -> u64 {
        let is_removed = |segment: &&Segment| is_missing(&segment.path(&self.folder));
        if self.staged.is_empty() {
            return 0;
        }
        let removed = self.segments.iter().take_while(is_removed).count();
        // Open files that have no name keep nothing.
        if self.segments.back().as_ref().is_some_and(is_removed) {
            self.tail = None;
        }
        if is_missing(&self.folder.join(POSITION)) {
            (self.position, self.position_written) = (None, None);
        }
        if is_missing(&self.folder.join(synced::NAME)) {
            self.synced = Synced::default();
        }
        self.drop_oldest(removed)
    }

    /// Drops the oldest `count` segments; returns the number of lost records.
    fn drop_oldest(&mut self, count: usize) -> u64 {
        if count == 0 {
            return 0;
        }
        let before = self.begin;
        self.drop_before(self.segments.get(count).map_or(u64::MAX, |segment| segment.first));
        self.begin - before
    }

    /// Drops the written records before `number`, whether they can be read or not.
    pub(crate) fn drop_before(&mut self, number: u64) {
        let written = self.next - self.staged.len() as u64;
        self.begin = self.begin.max(number.min(written));
        self.ahead.clear();
        self.clean();
    }

    /// Deletes the segments without pending records.
    pub(crate) fn clean(&mut self) {
        if self.owed.is_some() {
            return;
        }
        let written = self.next - self.staged.len() as u64;
        while let Some(oldest) = self.segments.front() {
            let end = self.segments.get(1).map_or(written, |segment| segment.first);
            if end > self.begin {
                break;
            }
            // The next start finds that a remaining one is delivered.
            let _ = fs::remove_file(oldest.path(&self.folder));
            if self.reader.as_ref().is_some_and(|(first, _)| *first == oldest.first) {
                self.reader = None;
            }
            self.segments.pop_front();
        }
        if self.segments.is_empty() {
            (self.tail, self.is_unsynced) = (None, false);
        }
    }

    /// Writes the acknowledged position.
    pub(crate) fn write_position(&mut self) -> io::Result<()> {
        if self.position_written == Some(self.begin) || self.owed.is_some() {
            return Ok(());
        }
        if self.position.is_none() {
            make_folder(&self.folder)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(FILE_MODE);
            let path = self.folder.join(POSITION);
            check_file(&path)?;
            self.position = Some(options.open(path)?);
        }
        let number = self.begin.to_le_bytes();
        let sum = crc32fast::hash(&number).to_le_bytes();
        if let Some(file) = &self.position {
            file.write_all_at(&[&number[..], &sum[..]].concat(), 0)?;
        }
        self.position_written = Some(self.begin);
        Ok(())
    }

    /// Removes the folder of a destination without pending records. The position goes last: without
    /// it, numbers start again.
    pub(crate) fn remove(mut self) {
        self.clean();
        if self.pending() == 0 && self.segments.is_empty() {
            synced::remove(&self.folder);
            let _ = fs::remove_file(self.folder.join(POSITION));
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

/// The disk lost the data; other failures (too many open files) may pass.
fn is_gone(error: &io::Error) -> bool {
    /// The device fails to read.
    const EIO: i32 = 5;
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(EIO)
}

/// True if another program has removed the file, or its folder.
fn is_missing(path: &Path) -> bool {
    let missing = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    fs::symlink_metadata(path).is_err_and(|error| missing.contains(&error.kind()))
}

/// True if `folder` has no position: it was never prepared, or another program removed files.
pub(crate) fn is_unprepared(folder: &Path) -> bool {
    is_missing(&folder.join(POSITION))
}

/// The acknowledged position of `folder`; none from a damaged file.
fn position(folder: &Path) -> u64 {
    let bytes = fs::read(folder.join(POSITION)).unwrap_or_default();
    let (Some(number), Some(sum), POSITION_BYTES) =
        (bytes.first_chunk::<8>(), bytes.last_chunk::<4>(), bytes.len())
    else {
        return 0;
    };
    let is_whole = crc32fast::hash(number).to_le_bytes() == *sum;
    let number = u64::from_le_bytes(*number);
    if is_whole && number <= NUMBER_MAX { number } else { 0 }
}

/// The end of a segment's last whole record, and the number after it.
fn end_of(folder: &Path, segment: &Segment) -> io::Result<(u64, u64)> {
    let file = File::open(segment.path(folder))?;
    let mut scanner = Scanner::new(&file, segment, 0);
    let (mut len, mut next) = (0, segment.first);
    while let Some(item) = scanner.next()? {
        if let Item::Record { record, end } = item {
            (len, next) = (end, record.number + 1);
        }
    }
    Ok((len, next))
}
