//! The checkpoint file: the position up to which deletes were delivered.
//!
//! ```text
//! holdall-invalidate 1
//! source shop
//! position mariadb-gtid:0-1-4711
//! crc32 0f3a9c11
//! ```
//!
//! Before the last, there may be more lines. `lacking` means that the log lacked changes before
//! this position: the caches must be emptied before reading continues. `spooled east` means that
//! deletes before this position are on this host's disk, in the spool of the cluster east.
//!
//! It is replaced as a whole (written to a new file, flushed, renamed), so a crash leaves the old
//! one or the new one. The checksum covers every byte before its line. A file in any other form is
//! an error; reading never starts from another position instead.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use changes::position::Position;

const FIRST_LINE: &str = "holdall-invalidate 1";

/// The reason why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file cannot be read or written.
    #[error("checkpoint {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file does not have the form in which it was written.
    #[error(
        "checkpoint {}: {why}; the last delivered position is unknown: start with --since POSITION; or with --since now, and then empty the caches by `holdall invalidate flush`",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault found.
        why: &'static str,
    },
    /// The file belongs to another configuration.
    #[error("checkpoint {} is of source '{found}', not of '{wanted}': give each source a file of its own", path.display())]
    OtherSource {
        /// The file.
        path: PathBuf,
        /// The name in the file.
        found: String,
        /// The name in the configuration.
        wanted: String,
    },
}

/// Contents of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Everything up to here was delivered.
    pub position: Position,
    /// True if the log lacked changes before it, and nothing has been flushed for them.
    pub is_lacking: bool,
    /// The clusters with deletes before it that were on the disk.
    pub spooled: Vec<String>,
}

/// The file's text for this source.
#[must_use]
pub fn text(source: &str, kept: &Kept) -> String {
    let lacking = if kept.is_lacking { "lacking\n" } else { "" };
    let position = &kept.position;
    let spooled: String = kept.spooled.iter().map(|name| format!("spooled {name}\n")).collect();
    let body = format!("{FIRST_LINE}\nsource {source}\nposition {position}\n{lacking}{spooled}");
    let sum = crc32fast::hash(body.as_bytes());
    format!("{body}crc32 {sum:08x}\n")
}

/// Parses a file's text.
fn parse(path: &Path, source: &str, text: &[u8]) -> Result<Kept, CheckpointError> {
    let damaged = |why| CheckpointError::Damaged { path: path.to_owned(), why };
    if text.is_empty() {
        return Err(damaged("it is empty"));
    }
    let text = std::str::from_utf8(text).map_err(|_| damaged("it is no text"))?;
    if !text.starts_with(FIRST_LINE) {
        return Err(damaged("it does not begin as a checkpoint does"));
    }
    let at = text.rfind("crc32 ").ok_or_else(|| damaged("it is cut short"))?;
    let (body, sum) = text.split_at(at);
    if sum != format!("crc32 {:08x}\n", crc32fast::hash(body.as_bytes())) {
        return Err(damaged("its checksum is wrong"));
    }
    let mut lines = body.lines().skip(1);
    let found = lines.next().and_then(|line| line.strip_prefix("source "));
    let position = lines.next().and_then(|line| line.strip_prefix("position "));
    let (Some(found), Some(position)) = (found, position) else {
        return Err(damaged("it lacks a line"));
    };
    if found != source {
        return Err(CheckpointError::OtherSource {
            path: path.to_owned(),
            found: found.to_owned(),
            wanted: source.to_owned(),
        });
    }
    let position = position.parse().map_err(|_| damaged("its position is none"))?;
    let mut kept = Kept { position, is_lacking: false, spooled: Vec::new() };
    for line in lines {
        kept.is_lacking |= line == "lacking";
        kept.spooled.extend(line.strip_prefix("spooled ").map(str::to_owned));
    }
    Ok(kept)
}

/// The storage of checkpoints: a disk, or a test's memory.
pub trait Keep: Send + Sync + 'static {
    /// The last bytes stored; none if there are none.
    ///
    /// # Errors
    ///
    /// When they cannot be read.
    fn read(&self) -> io::Result<Option<Vec<u8>>>;

    /// Replaces them. After success, they survive a crash.
    ///
    /// # Errors
    ///
    /// When they cannot be written; the old ones are still there.
    fn replace(&self, bytes: Vec<u8>) -> impl Future<Output = io::Result<()>> + Send;

    /// Its name in error messages.
    fn path(&self) -> &Path;
}

/// A file.
#[derive(Debug, Clone)]
pub struct KeptFile(
    /// The path.
    pub PathBuf,
);

impl Keep for KeptFile {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.0) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn replace(&self, bytes: Vec<u8>) -> io::Result<()> {
        let path = self.0.clone();
        let written = tokio::task::spawn_blocking(move || replace(&path, &bytes)).await;
        written.map_err(io::Error::other)?
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.to_owned().into_os_string();
    beside.push(".new");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Reads the checkpoint of this source; none when there is no file.
///
/// # Errors
///
/// When the file cannot be read, is damaged, or belongs to another source.
pub fn read(keep: &impl Keep, source: &str) -> Result<Option<Kept>, CheckpointError> {
    let path = keep.path().to_owned();
    let bytes = keep.read().map_err(|error| CheckpointError::Io { path: path.clone(), error })?;
    bytes.map(|bytes| parse(&path, source, &bytes)).transpose()
}

/// Replaces the contents of the file.
///
/// # Errors
///
/// When it cannot be written.
pub async fn write(keep: &impl Keep, source: &str, kept: &Kept) -> Result<(), CheckpointError> {
    let path = keep.path().to_owned();
    let written = keep.replace(text(source, kept).into_bytes()).await;
    written.map_err(|error| CheckpointError::Io { path, error })
}

/// Notes in the file that the log lacked changes before its position.
///
/// # Errors
///
/// When it cannot be read or written.
pub async fn note_lacking(keep: &impl Keep, source: &str) -> Result<(), CheckpointError> {
    let Some(kept) = read(keep, source)? else { return Ok(()) };
    write(keep, source, &Kept { is_lacking: true, ..kept }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position() -> Kept {
        let position = "mariadb-gtid:0-1-4711".parse().unwrap();
        Kept { position, is_lacking: false, spooled: vec!["east".to_owned(), "west".to_owned()] }
    }

    fn parsed(text: &[u8]) -> Result<Kept, CheckpointError> {
        parse(Path::new("cp"), "shop", text)
    }

    #[test]
    fn every_truncation_and_flipped_bit_is_detected() {
        let whole = text("shop", &position()).into_bytes();
        assert_eq!(parsed(&whole).unwrap(), position());
        for length in 0..whole.len() {
            assert!(parsed(&whole[..length]).is_err(), "cut to {length}");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(parsed(&flipped).is_err(), "bit {bit}");
        }
        assert!(parsed(&[whole.as_slice(), b"x"].concat()).is_err(), "one byte more");
    }

    #[test]
    fn another_sources_file_is_refused() {
        let other = text("users", &position());
        assert!(matches!(parsed(other.as_bytes()), Err(CheckpointError::OtherSource { .. })));
    }

    /// Starting from the present would lose the changes between the two positions.
    #[test]
    fn an_unreadable_checkpoint_is_not_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let read = read(&KeptFile(folder.path().to_owned()), "shop");
        assert!(matches!(read, Err(CheckpointError::Io { .. })), "{read:?}");
    }

    #[tokio::test]
    async fn a_checkpoint_is_replaced_atomically() {
        let folder = tempfile::tempdir().unwrap();
        let keep = KeptFile(folder.path().join("cp"));
        assert_eq!(read(&keep, "shop").unwrap(), None);
        keep.replace(text("shop", &position()).into_bytes()).await.unwrap();
        assert_eq!(read(&keep, "shop").unwrap(), Some(position()));
        note_lacking(&keep, "shop").await.unwrap();
        let lacking = Kept { is_lacking: true, ..position() };
        assert_eq!(read(&keep, "shop").unwrap(), Some(lacking));
        keep.replace(text("shop", &position()).into_bytes()).await.unwrap();
        assert_eq!(read(&keep, "shop").unwrap(), Some(position()));
    }
}
