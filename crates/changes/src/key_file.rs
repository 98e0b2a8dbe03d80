//! A file for keys of a transaction that do not fit in memory.
//!
//! The file has no name, so the system removes it with the process, however that ends. A restart
//! reads the transaction from the log again, so nothing is synced. A record is the length of a key
//! in one byte, and the key.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

/// Bytes of the file that become one delivery.
const PART_BYTES: usize = 1 << 18;

/// Bytes that one write passes to the system.
const WRITE_BYTES: usize = 1 << 16;

/// The place for such files.
#[derive(Debug, Clone, Default)]
pub struct KeyFiles {
    folder: Option<PathBuf>,
}

impl KeyFiles {
    /// Files in this folder, which is created on demand; none if there is no folder.
    #[must_use]
    pub const fn new(folder: Option<PathBuf>) -> Self {
        Self { folder }
    }

    /// True if there is a disk for them.
    #[must_use]
    pub const fn has_disk(&self) -> bool {
        self.folder.is_some()
    }

    /// An empty file.
    ///
    /// # Errors
    ///
    /// Returns the disk's error, or [`io::ErrorKind::Unsupported`] if there is no disk.
    pub async fn create(&self) -> io::Result<KeyFile> {
        let folder = self.folder.clone().ok_or(io::ErrorKind::Unsupported)?;
        let made = move || {
            fs::create_dir_all(&folder)?;
            tempfile::tempfile_in(&folder)
        };
        let file = tokio::task::spawn_blocking(made).await.map_err(io::Error::other)??;
        Ok(KeyFile { file: Arc::new(file), keys: 0, bytes: 0 })
    }
}

/// Keys in the order in which they were appended.
#[derive(Debug, Clone)]
pub struct KeyFile {
    file: Arc<File>,
    keys: u64,
    bytes: u64,
}

/// Only two handles of one file are equal.
impl PartialEq for KeyFile {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Eq for KeyFile {}

impl KeyFile {
    /// The number of keys.
    #[must_use]
    pub const fn keys(&self) -> u64 {
        self.keys
    }

    /// Appends keys, each of at most 255 bytes.
    ///
    /// # Errors
    ///
    /// Returns the disk's error. The file is unusable afterwards.
    pub async fn append(&mut self, keys: Vec<Bytes>) -> io::Result<()> {
        let (file, from, count) = (Arc::clone(&self.file), self.bytes, keys.len() as u64);
        let written = tokio::task::spawn_blocking(move || write(&file, from, &keys)).await;
        self.bytes = written.map_err(io::Error::other)??;
        self.keys += count;
        Ok(())
    }

    /// All keys, oldest first.
    #[must_use]
    pub fn read(self) -> Parts {
        Parts { file: self, at: 0 }
    }
}

/// Writes keys after the first `at` bytes; returns their end.
fn write(file: &Arc<File>, mut at: u64, keys: &[Bytes]) -> io::Result<u64> {
    let mut buffer = Vec::with_capacity(WRITE_BYTES + 256);
    let mut keys = keys.iter().peekable();
    while let Some(key) = keys.next() {
        let length = u8::try_from(key.len()).map_err(io::Error::other)?;
        buffer.write_all(&[length])?;
        buffer.write_all(key)?;
        if buffer.len() >= WRITE_BYTES || keys.peek().is_none() {
            file.write_all_at(&buffer, at)?;
            at += buffer.len() as u64;
            buffer.clear();
        }
    }
    Ok(at)
}

/// Reads a [`KeyFile`] one part at a time.
#[derive(Debug)]
pub struct Parts {
    file: KeyFile,
    at: u64,
}

impl Parts {
    /// The next keys; none at the end.
    ///
    /// # Errors
    ///
    /// Returns the disk's error, or when the file is not as written.
    pub async fn next(&mut self) -> io::Result<Option<Vec<Bytes>>> {
        let left = self.file.bytes - self.at;
        if left == 0 {
            return Ok(None);
        }
        let (file, at) = (Arc::clone(&self.file.file), self.at);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(PART_BYTES);
        let read = move || {
            let mut part = vec![0; length];
            file.read_exact_at(&mut part, at)?;
            Ok::<_, io::Error>(part)
        };
        let part = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        let (keys, used) = keys(&part.into());
        if used == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.at += used as u64;
        Ok(Some(keys))
    }
}

/// The whole records at the start of these bytes, and their length.
fn keys(part: &Bytes) -> (Vec<Bytes>, usize) {
    let (mut keys, mut at) = (Vec::new(), 0);
    while let Some(length) = part.get(at) {
        let end = at + 1 + usize::from(*length);
        if end > part.len() {
            break;
        }
        keys.push(part.slice(at + 1..end));
        at = end;
    }
    (keys, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(from: u32, to: u32) -> Vec<Bytes> {
        (from..to).map(|number| Bytes::from(format!("key:{number:0>200}"))).collect()
    }

    #[tokio::test]
    async fn any_number_of_keys_is_read_back_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::new(Some(folder.path().join("spool")));
        let mut file = files.create().await.unwrap();
        file.append(Vec::new()).await.unwrap();
        file.append(all(0, 5000)).await.unwrap();
        file.append(all(5000, 5001)).await.unwrap();
        assert_eq!(file.keys(), 5001);
        let names = fs::read_dir(folder.path().join("spool")).unwrap().count();
        assert_eq!(names, 0, "the file has no name");
        let (mut parts, mut found, mut count) = (file.read(), Vec::new(), 0);
        while let Some(keys) = parts.next().await.unwrap() {
            found.extend(keys);
            count += 1;
        }
        assert_eq!(found, all(0, 5001));
        assert!(count > 2, "one part alone");
    }

    #[tokio::test]
    async fn a_disk_that_is_full_or_missing_is_an_error() {
        let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
        let mut file = KeyFile { file: full, keys: 0, bytes: 0 };
        let error = file.append(all(0, 1)).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let none = KeyFiles::new(None).create().await;
        assert_eq!(none.unwrap_err().kind(), io::ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn a_file_that_was_cut_short_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = KeyFiles::new(Some(folder.path().to_owned())).create().await.unwrap();
        file.append(all(0, 10)).await.unwrap();
        file.file.set_len(9).unwrap();
        assert!(file.read().next().await.is_err());
    }
}
