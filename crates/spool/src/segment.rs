//! A segment's file: its name and creation.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::record::NUMBER_MAX;

/// Records hold keys, which contain information about users, so others cannot read the files.
pub(crate) const FILE_MODE: u32 = 0o600;

/// Creates `folder` and its missing parents, without access for others.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Refuses an existing `path` that is not a regular file. Opening a FIFO would wait for its other
/// end, and a link leads to a file outside the spool.
pub(crate) fn check_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_file() => Ok(()),
        Ok(_) => Err(io::Error::other(format!("{}: it is not a regular file", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The description of a segment. Its file is called `FIRST-SALT.seg`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Segment {
    /// The number of its first record.
    pub(crate) first: u64,
    /// The start of every checksum in it.
    pub(crate) salt: u32,
    /// Bytes.
    pub(crate) len: u64,
    /// The time of the last write to it, in seconds since 1970.
    pub(crate) newest_secs: u64,
}

impl Segment {
    /// A new file, for the records from `first` on.
    pub(crate) fn create(folder: &Path, first: u64, secs: u64) -> io::Result<(Self, File)> {
        let [a, b, c, d, ..] = RandomState::new().build_hasher().finish().to_le_bytes();
        let salt = u32::from_le_bytes([a, b, c, d]);
        let segment = Self { first, salt, len: 0, newest_secs: secs };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(segment.path(folder))?;
        Ok((segment, file))
    }

    /// The segments of a folder, oldest first.
    pub(crate) fn list(folder: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Some((first, salt)) = entry.file_name().to_str().and_then(parse) else { continue };
            let data = entry.metadata()?;
            // Opening a pipe would wait for its writer.
            if !data.is_file() {
                continue;
            }
            let newest_secs = data.modified()?.duration_since(SystemTime::UNIX_EPOCH);
            let newest_secs = newest_secs.map_or(0, |since| since.as_secs());
            found.push(Self { first, salt, len: data.len(), newest_secs });
        }
        found.sort_by_key(|segment| segment.first);
        Ok(found)
    }

    /// Its file.
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{:020}-{:08x}.seg", self.first, self.salt))
    }
}

/// First number and salt.
pub(crate) fn parse(name: &str) -> Option<(u64, u32)> {
    let (first, salt) = name.strip_suffix(".seg")?.split_once('-')?;
    let is_plain = first.len() == 20 && first.bytes().all(|byte| byte.is_ascii_digit());
    let first = first.parse().ok().filter(|first| is_plain && *first <= NUMBER_MAX)?;
    Some((first, u32::from_str_radix(salt, 16).ok().filter(|_| salt.len() == 8)?))
}

/// The name of a destination's folder: characters with a meaning to the file system are written
/// `%XX`.
pub(crate) fn folder_name(destination: &str) -> String {
    let mut name = String::new();
    for byte in destination.bytes() {
        let plain =
            byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'-' | b'_' | b'[' | b']');
        // A dot is plain except at the start: neither `.` nor a hidden folder is a destination's.
        if plain || byte == b'.' && !name.is_empty() {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02X}"));
        }
    }
    name
}

/// The destination of a folder with this name.
pub(crate) fn destination_of(folder: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = folder.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            bytes.push(u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let destination = String::from_utf8(bytes).ok()?;
    (folder_name(&destination) == folder).then_some(destination)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_destination_has_its_own_folder() {
        for name in ["10.0.0.1:11211", "[::1]:5", "unix:/run/a b.sock", "..", ".", "%41", "ä"] {
            let folder = folder_name(name);
            assert!(!folder.contains('/') && !folder.starts_with('.'), "{folder}");
            assert_eq!(destination_of(&folder).as_deref(), Some(name));
        }
        assert_eq!(folder_name("unix:/a"), "unix:%2Fa");
        assert_eq!(destination_of("a%2"), None);
        assert_eq!(destination_of("%61"), None);
    }

    /// Opening it would block all destinations until a writer comes.
    #[test]
    fn a_fifo_with_a_segment_name_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("00000000000000000012-000000ff.seg");
        assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        assert!(Segment::list(folder.path()).unwrap().is_empty());
    }

    #[test]
    fn only_valid_segment_names_are_parsed() {
        assert_eq!(parse("00000000000000000012-000000ff.seg"), Some((12, 255)));
        let too_large = "18446744073709551615-000000ff.seg";
        let short = ["12-000000ff.seg", "00000000000000000012-ff.seg"];
        for name in short.into_iter().chain([too_large, "position", "x.seg", ""]) {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
