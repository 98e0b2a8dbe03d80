//! Files that get their names when they are whole.
//!
//! Where the file system can, they have no name before that: an interrupted program leaves nothing.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, XattrFlags, fremovexattr, fsetxattr, getxattr, linkat, open,
};
use rustix::io::Errno;
use tempfile::{Builder, NamedTempFile};

/// The attribute in which Linux keeps a file's access control list.
const LIST: &str = "system.posix_acl_access";

/// The maximum bytes of an attribute in Linux.
const LIST_BYTES_MAX: usize = 65_536;

/// The permission of all users to read a file.
const READ_BY_ALL: u32 = 0o004;

/// A file that is written next to the one with its name and replaces it at [`NewFile::finish`].
/// Until then, and if the writing fails, the old file stays unchanged.
///
/// A file that is not regular, such as `/dev/stdout` or a pipe, is written directly.
#[derive(Debug)]
pub struct NewFile(Kind);

#[derive(Debug)]
enum Kind {
    Beside { file: NamedTempFile, target: PathBuf },
    Unnamed { file: File, target: PathBuf },
    Itself(File),
}

impl NewFile {
    /// Creates the file with this name. The new file has the owner, the group, the permissions and
    /// the access control list of the old one. If the system does not permit that owner or group, a
    /// file that all users may read gets others.
    ///
    /// # Errors
    ///
    /// The system's refusal of a file in that folder; a name that is also one of `inputs`; an owner
    /// or a group that the new file cannot have, if they have special permission to read.
    pub fn create(path: &Path, inputs: &[&Path]) -> io::Result<Self> {
        if inputs.iter().any(|input| is_same(path, input)) {
            return Err(io::Error::other("it is an input as well: name another file"));
        }
        Self::begin(path, fs::metadata(path).ok().map(|old| (path, old)))
    }

    /// Creates a file with this name for the content of another, with the same owner, group,
    /// permissions and access control list as that one.
    ///
    /// # Errors
    ///
    /// As for [`NewFile::create`]; the system's if the other cannot be examined.
    pub fn create_like(path: &Path, other: &Path) -> io::Result<Self> {
        Self::begin(path, Some((other, fs::metadata(other)?)))
    }

    fn begin(path: &Path, like: Option<(&Path, Metadata)>) -> io::Result<Self> {
        let old = fs::metadata(path).ok();
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Ok(Self(Kind::Itself(File::options().write(true).open(path)?)));
        }
        // A symbolic link stays a link.
        let target = if old.is_some() { fs::canonicalize(path)? } else { path.to_owned() };
        // Until it belongs to its readers, no other user can open it: a user who has it open can
        // read all of it. Without an old file, it has the usual permissions less the umask.
        let mode = if like.is_some() { 0o600 } else { 0o666 };
        let kind = match unnamed(folder_of(&target), mode) {
            Some(file) => Kind::Unnamed { file, target },
            None => {
                let prefix = prefix(&target);
                let mut named = Builder::new();
                named.prefix(&prefix).suffix(".new").permissions(Permissions::from_mode(mode));
                Kind::Beside { file: named.tempfile_in(folder_of(&target))?, target }
            }
        };
        if let Some((path, data)) = like {
            let file = kind.file();
            copy_owner(file, &data)?;
            file.set_permissions(data.permissions())?;
            copy_list(file, path)?;
        }
        Ok(Self(kind))
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    ///
    /// The system's. If the old file cannot be replaced, the new one stays next to it, and the
    /// error names it.
    pub fn finish(self) -> io::Result<()> {
        match self.0 {
            Kind::Itself(_) => Ok(()),
            Kind::Beside { file, target } => {
                file.as_file().sync_all()?;
                replace(file, &target)
            }
            Kind::Unnamed { file, target } => {
                file.sync_all()?;
                // No call gives a file the name of another.
                let named = Builder::new().prefix(&prefix(&target)).suffix(".new").make_in(
                    folder_of(&target),
                    |name| {
                        let flags = AtFlags::SYMLINK_FOLLOW;
                        Ok(linkat(CWD, descriptor(&file), CWD, name, flags)?)
                    },
                )?;
                replace(named, &target)
            }
        }
    }
}

impl Kind {
    fn file(&self) -> &File {
        match self {
            Self::Beside { file, .. } => file.as_file(),
            Self::Unnamed { file, .. } | Self::Itself(file) => file,
        }
    }
}

/// Renames the new file, or keeps it and returns an error that names it.
fn replace<F>(file: NamedTempFile<F>, target: &Path) -> io::Result<()> {
    let Err(refused) = file.persist(target) else { return Ok(()) };
    let (_, kept) = refused.file.keep().map_err(|refused| refused.error)?;
    let why = format!("{}; the new file is {}", refused.error, kept.display());
    Err(io::Error::new(refused.error.kind(), why))
}

/// A file without a name in this folder, if it can get one later.
fn unnamed(folder: &Path, mode: u32) -> Option<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(open(folder, flags, Mode::from_raw_mode(mode)).ok()?);
    fs::symlink_metadata(descriptor(&file)).is_ok().then_some(file)
}

/// The link to an open file.
fn descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| *folder != "").unwrap_or_else(|| Path::new("."))
}

/// The start of the name that the new file has before it replaces the old one.
fn prefix(target: &Path) -> OsString {
    let mut prefix = OsString::from(target.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            // Its own errors name the temporary file, which the user does not know.
            Kind::Beside { file, .. } => file.as_file_mut().write(bytes),
            Kind::Unnamed { file, .. } | Kind::Itself(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives a file to the owner and the group of another.
fn copy_owner(file: &File, like: &Metadata) -> io::Result<()> {
    if fchown(file, Some(like.uid()), Some(like.gid())).is_ok() {
        return Ok(());
    }
    // Only root can give a file to another owner; its owner can give it to a group of theirs.
    let _ = fchown(file, None, Some(like.gid()));
    let new = file.metadata()?;
    let is_kept = (new.uid(), new.gid()) == (like.uid(), like.gid());
    if is_kept || like.mode() & READ_BY_ALL != 0 {
        return Ok(());
    }
    let why = format!(
        "the user {} and the group {} may read it, and could not read the new file: run this as \
         that user with that group, or as root",
        like.uid(),
        like.gid()
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

/// Gives a file the access control list of another, or none if that has none.
fn copy_list(file: &File, like: &Path) -> io::Result<()> {
    let mut list = vec![0; LIST_BYTES_MAX];
    match getxattr(like, LIST, list.as_mut_slice()) {
        Ok(bytes) => fsetxattr(file, LIST, &list[..bytes], XattrFlags::empty())?,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => {
            // One that the folder gives to new files. Mostly there is none to remove.
            let _ = fremovexattr(file, LIST);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// True if both names refer to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let file = |path| fs::metadata(path).ok().map(|data| (data.dev(), data.ino()));
    file(one).is_some_and(|of_one| file(other) == Some(of_one))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

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

    /// Whatever ends the program, its files would stay.
    #[test]
    fn an_interrupted_program_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        if unnamed(folder.path(), 0o600).is_none() {
            return; // A file system where all files have names.
        }
        let mut new = NewFile::create(&folder.path().join("file"), &[]).unwrap();
        new.write_all(b"half").unwrap();
        std::mem::forget(new);
        assert!(names(folder.path()).is_empty());
    }

    /// A file with another group than new files, and another owner if this is root.
    fn file_of_others(path: &Path) -> Option<(u32, u32)> {
        fs::write(path, "old").unwrap();
        let own = fs::metadata(path).unwrap();
        let (uid, gid) = if own.uid() == 0 {
            (65534, 65534)
        } else {
            let groups = rustix::process::getgroups().unwrap();
            let gid = groups.iter().map(|gid| gid.as_raw()).find(|gid| *gid != own.gid())?;
            (own.uid(), gid)
        };
        chown(path, Some(uid), Some(gid)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o640)).unwrap();
        Some((uid, gid))
    }

    #[test]
    fn new_files_and_copies_keep_owner_and_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("file"), folder.path().join("copy"));
        let Some(others) = file_of_others(&path) else { return };
        let of = |path: &Path| {
            let data = fs::metadata(path).unwrap();
            ((data.uid(), data.gid()), data.mode() & 0o7777)
        };
        fs::write(&copy, "of everybody").unwrap();
        let new = [NewFile::create_like(&copy, &path), NewFile::create(&path, &[])];
        for new in new {
            let mut new = new.unwrap();
            new.write_all(b"new").unwrap();
            new.finish().unwrap();
        }
        assert_eq!((of(&path), of(&copy)), ((others, 0o640), (others, 0o640)));
        assert_eq!(fs::read_to_string(&copy).unwrap(), "new");
    }

    #[test]
    fn a_new_file_keeps_the_access_control_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        // Of `setfacl -m user:65534:r`: version, then kind, permission and number of each entry.
        let mut list = 2_u32.to_le_bytes().to_vec();
        let none = u32::MAX;
        let entries = [(1, 6, none), (2, 4, 65534), (4, 0, none), (16, 4, none), (32, 0, none)];
        for (kind, permission, number) in entries {
            list.extend(u16::to_le_bytes(kind));
            list.extend(u16::to_le_bytes(permission));
            list.extend(u32::to_le_bytes(number));
        }
        if fsetxattr(File::open(&path).unwrap(), LIST, &list, XattrFlags::empty()).is_err() {
            return; // A file system without such lists.
        }
        NewFile::create(&path, &[]).unwrap().finish().unwrap();
        let mut found = vec![0; LIST_BYTES_MAX];
        let bytes = getxattr(&path, LIST, found.as_mut_slice()).unwrap();
        assert_eq!(&found[..bytes], list);
    }

    /// Only root can give files away: all others keep the old file with its readers.
    #[test]
    fn a_replacement_its_readers_could_not_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let new = NewFile::create_like(&path, Path::new("/etc/shadow"));
        if fs::metadata(folder.path()).unwrap().uid() == 0 {
            new.unwrap();
        } else {
            let refused = new.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
            assert!(refused.to_string().contains("run this as that user"), "{refused}");
            assert!(names(folder.path()).is_empty());
        }
        // All users can read it, regardless of its owner.
        NewFile::create_like(&path, Path::new("/etc/passwd")).unwrap();
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
    fn a_device_is_written_directly() {
        let mut new = NewFile::create(Path::new("/dev/null"), &[]).unwrap();
        new.write_all(b"lost").unwrap();
        new.finish().unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }

    #[test]
    fn an_input_or_directory_is_refused_as_output() {
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
