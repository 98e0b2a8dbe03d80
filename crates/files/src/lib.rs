//! Reads and writes the files that an operator names.
//!
//! Opening a pipe waits for its writer, and a device may never end. A program that reads its files
//! again while it serves must not wait for either, so only regular files are read. [`Stamp`] shows
//! whether a file must be read again. [`NewFile`] and [`put()`] keep an old file in place until the
//! new one is whole.
#![forbid(unsafe_code)]

mod new_file;
mod put;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};

pub use new_file::NewFile;
pub use put::{Readers, make_folder, put};

/// Opens a regular file for reading, through symbolic links. Never waits for another process.
///
/// # Errors
///
/// The system's refusal, or the file is not regular.
pub fn open(path: &Path) -> io::Result<File> {
    // Without NONBLOCK, opening a pipe waits for its writer. It has no effect on a file.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// The bytes of a regular file, at most `bytes_max`.
///
/// # Errors
///
/// Those of [`open`], the system's; [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it is larger than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// True if every user of this machine may read the file, and reach it through its folders.
#[must_use]
pub fn is_readable_by_all(path: &Path) -> bool {
    let has = |path: &Path, bit| std::fs::metadata(path).is_ok_and(|found| found.mode() & bit != 0);
    let Ok(path) = path.canonicalize() else { return false };
    has(&path, 0o004) && path.ancestors().skip(1).all(|folder| has(folder, 0o001))
}

/// The text of a regular file, at most `bytes_max` bytes.
///
/// # Errors
///
/// Those of [`read`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read(path, bytes_max)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not text"))
}

/// The largest file of a login, in bytes.
const LOGIN_BYTES_MAX: u64 = 1 << 16;

/// User and password of a regular file whose first line is `USER:PASSWORD`.
///
/// # Errors
///
/// Those of [`read_text`] and [`login_in`].
pub fn login(path: &Path) -> io::Result<(String, String)> {
    login_in(&read_text(path, LOGIN_BYTES_MAX)?)
}

/// User and password of a text whose first line is `USER:PASSWORD`.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidData`] if the line has no colon.
pub fn login_in(text: &str) -> io::Result<(String, String)> {
    // A byte order mark, which some editors write.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let line = text.lines().next().unwrap_or_default();
    let (user, password) = line.split_once(':').ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "its first line is not USER:PASSWORD")
    })?;
    Ok((user.to_owned(), password.to_owned()))
}

/// The line without its comment. A comment starts at a `#` at the start of the line or after white
/// space; elsewhere `#` is part of a word, since names and keys contain it.
#[must_use]
pub fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let starts_comment = |at: &usize| match at.checked_sub(1).and_then(|at| bytes.get(at)) {
        None => true,
        Some(before) => before.is_ascii_whitespace(),
    };
    let start = line.match_indices('#').map(|(at, _)| at).find(starts_comment);
    start.and_then(|start| line.get(..start)).unwrap_or(line)
}

/// The line and column of a byte, both counted from 1; columns are characters.
#[must_use]
pub fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// A mark of a file's content: its time, its length, and its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    modified: SystemTime,
    bytes: u64,
    inode: u64,
}

impl Stamp {
    /// The present stamp of a file, through symbolic links; `None` if there is none.
    #[must_use]
    pub fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self { modified: data.modified().ok()?, bytes: data.len(), inode: data.ino() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    #[test]
    fn a_pipe_and_a_folder_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for path in [&*pipe, folder.path(), Path::new("/dev/zero")] {
            let error = read(path, 10).unwrap_err();
            assert_eq!(error.to_string(), "it is not a regular file", "{}", path.display());
        }
    }

    #[test]
    fn a_comment_starts_only_at_the_start_of_a_word() {
        for (line, want) in [
            ("# all", ""),
            ("a # b # c", "a "),
            ("a\t#b", "a\t"),
            ("a#b c#", "a#b c#"),
            ("a#b #c", "a#b "),
            ("a |#| b", "a |#| b"),
            ("a\u{a0}# b", "a\u{a0}# b"),
            ("a ##", "a "),
            ("", ""),
        ] {
            assert_eq!(without_comment(line), want, "{line}");
        }
    }

    #[test]
    fn a_login_is_in_the_first_line_of_a_regular_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pipe) = (folder.path().join("file"), folder.path().join("pipe"));
        fs::write(&file, "app:a:b\nother:c\n").unwrap();
        assert_eq!(login(&file).unwrap(), ("app".to_owned(), "a:b".to_owned()));
        fs::write(&file, "\u{feff}app:a\r\n").unwrap();
        assert_eq!(login(&file).unwrap(), ("app".to_owned(), "a".to_owned()));
        for wrong in ["", "app\n", "\napp:a\n"] {
            fs::write(&file, wrong).unwrap();
            let error = login(&file).unwrap_err().to_string();
            assert_eq!(error, "its first line is not USER:PASSWORD");
        }
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        assert_eq!(login(&pipe).unwrap_err().to_string(), "it is not a regular file");
    }

    #[test]
    fn a_file_that_is_written_or_replaced_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        assert_eq!(Stamp::of(&file), None);
        fs::write(&file, b"12345").unwrap();
        let first = Stamp::of(&file);
        assert!(first.is_some() && first == Stamp::of(&file));
        fs::write(&file, b"1234").unwrap();
        let second = Stamp::of(&file);
        assert_ne!(first, second);
        fs::write(&other, b"1234").unwrap();
        fs::rename(&other, &file).unwrap();
        assert_ne!(second, Stamp::of(&file));
    }

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, b"12345").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(read(&link, 5).unwrap(), b"12345");
        assert_eq!(read(&file, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file, 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_closed_folder_protects_a_readable_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let close = |mode| fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode));
        close(0o700).unwrap();
        assert!(!is_readable_by_all(&file));
    }
}
