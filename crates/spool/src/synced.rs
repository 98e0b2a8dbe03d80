//! The end of the records that are known to be on the disk: a small file next to the segments.
//!
//! ```text
//!     first record of the segment 8 | its salt 4 | number after the last synced record 8 | crc32 4
//! ```
//!
//! It separates a torn end, whose records were never reported as stored, from damage. It is written
//! after the records are synced, and is not synced itself: after a failure of the machine it may
//! name an earlier end, but never a later one. It names its segment because a segment whose records
//! are acknowledged is deleted, and its records are then not missing.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::record::NUMBER_MAX;
use crate::segment::{FILE_MODE, Segment, check_file};

/// The file's name.
pub(crate) const NAME: &str = "synced";

const BYTES: usize = 24;

/// The writer of the file in one folder.
#[derive(Debug, Default)]
pub(crate) struct Synced(Option<File>);

impl Synced {
    /// Records that `segment` in `folder` is synced up to the record before `next`.
    pub(crate) fn write(&mut self, folder: &Path, segment: &Segment, next: u64) -> io::Result<()> {
        if self.0.is_none() {
            let path = path(folder);
            check_file(&path)?;
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(FILE_MODE);
            self.0 = Some(options.open(path)?);
        }
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend(segment.first.to_le_bytes());
        bytes.extend(segment.salt.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        self.0.as_ref().map_or(Ok(()), |file| file.write_all_at(&bytes, 0))
    }
}

/// The number after the last record of `segment` that was synced, as far as it is known.
///
/// # Errors
///
/// When the file is not a regular file.
pub(crate) fn end_of(folder: &Path, segment: &Segment) -> io::Result<Option<u64>> {
    let path = path(folder);
    check_file(&path)?;
    let bytes = fs::read(path).unwrap_or_default();
    let Some((content, sum)) = bytes.split_last_chunk::<4>() else { return Ok(None) };
    let name = [&segment.first.to_le_bytes()[..], &segment.salt.to_le_bytes()].concat();
    let next = content.strip_prefix(&name[..]).and_then(|rest| rest.try_into().ok());
    let is_whole = crc32fast::hash(content).to_le_bytes() == *sum;
    Ok(next.map(u64::from_le_bytes).filter(|next| is_whole && *next <= NUMBER_MAX))
}

/// Removes the file, if it is there.
pub(crate) fn remove(folder: &Path) {
    // A remaining one names a segment that will not come again.
    let _ = fs::remove_file(path(folder));
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}
