//! Files that take their names when they are whole.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

/// A file that is written beside the one of its name and replaces it at [`NewFile::finish`]. Until
/// then, and if the writing fails, the old file stays as it is.
///
/// What is no regular file, as `/dev/stdout` or a pipe, is written itself.
#[derive(Debug)]
pub struct NewFile(Kind);

#[derive(Debug)]
enum Kind {
    Beside { file: NamedTempFile, target: PathBuf },
    Itself(File),
}

impl NewFile {
    /// Begins the file of this name. The new file has the permissions of the old one and, where
    /// the system permits it, its owner.
    ///
    /// # Errors
    ///
    /// The system's refusal of a file in that folder; a name that is one of `inputs`, too.
    pub fn create(path: &Path, inputs: &[&Path]) -> io::Result<Self> {
        if inputs.iter().any(|input| is_same(path, input)) {
            return Err(io::Error::other("it is an input as well: name another file"));
        }
        let old = fs::metadata(path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self(Kind::Itself(File::options().write(true).open(path)?)));
        }
        // A symbolic link stays one.
        let target = if old.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
        let mut prefix = OsString::from(target.file_name().unwrap_or_default());
        prefix.push(".");
        let here = Path::new(".");
        let folder = target.parent().filter(|folder| *folder != "").unwrap_or(here);
        // As of any new file, less the umask.
        let permissions = Permissions::from_mode(0o666);
        let file = Builder::new()
            .prefix(&prefix)
            .suffix(".new")
            .permissions(permissions)
            .tempfile_in(folder)?;
        if let Some(old) = old {
            // Another owner is for root alone.
            let _ = fchown(file.as_file(), Some(old.uid()), Some(old.gid()));
            file.as_file().set_permissions(old.permissions())?;
        }
        Ok(Self(Kind::Beside { file, target }))
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// The system's. Where the old file cannot be replaced, the new one stays beside it, and the
    /// error names it.
    pub fn finish(self) -> io::Result<()> {
        let Kind::Beside { file, target } = self.0 else { return Ok(()) };
        file.as_file().sync_all()?;
        let Err(refused) = file.persist(target) else { return Ok(()) };
        let (_, kept) = refused.file.keep().map_err(|refused| refused.error)?;
        let why = format!("{}; the new file is {}", refused.error, kept.display());
        Err(io::Error::new(refused.error.kind(), why))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            // Its own errors name the file, which nobody asked for.
            Kind::Beside { file, .. } => file.as_file_mut().write(bytes),
            Kind::Itself(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// True if both names lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    file(one).is_some_and(|of_one| file(other) == Some(of_one))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn the_old_file_stays_until_the_new_one_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let mut new = NewFile::create(&path, &[]).unwrap();
        new.write_all(b"half").unwrap();
        drop(new);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(folder.path()), ["kept"]);

        let mut new = NewFile::create(&path, &[]).unwrap();
        new.write_all(b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        new.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(names(folder.path()), ["kept"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "old").unwrap();
        symlink("file", &link).unwrap();
        let mut new = NewFile::create(&link, &[]).unwrap();
        new.write_all(b"new").unwrap();
        new.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_device_is_written_itself() {
        let mut new = NewFile::create(Path::new("/dev/null"), &[]).unwrap();
        new.write_all(b"lost").unwrap();
        new.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn an_input_and_a_folder_are_no_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&path, "input").unwrap();
        symlink("file", &link).unwrap();
        let refused = NewFile::create(&path, &[&link]).unwrap_err();
        assert_eq!(refused.to_string(), "it is an input as well: name another file");
        assert_eq!(fs::read_to_string(&path).unwrap(), "input");
        NewFile::create(folder.path(), &[]).unwrap_err();
        NewFile::create(&folder.path().join("missing/file"), &[]).unwrap_err();
    }
}
