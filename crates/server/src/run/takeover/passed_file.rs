//! Checks the memory file from a predecessor: it is used only if this server could have opened it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A file that must not be mapped.
#[derive(Debug, thiserror::Error)]
pub(super) enum PassedFileError {
    #[error("the file that was passed is not the one at that path")]
    Elsewhere,
    #[error("the file that was passed is not a regular file")]
    NotAFile,
    #[error("the file that was passed belongs to another user, or others may write to it")]
    NotOurs,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Returns the file if it is the regular file at `path`, belongs to this process's user and is
/// writable by no other user: a user who could write or shorten a mapped file could deceive or end
/// this process.
pub(super) fn checked(file: OwnedFd, path: &Path) -> Result<OwnedFd, PassedFileError> {
    let file = File::from(file);
    let (passed, named) = (file.metadata()?, path.symlink_metadata()?);
    if !passed.is_file() {
        return Err(PassedFileError::NotAFile);
    }
    if (passed.dev(), passed.ino()) != (named.dev(), named.ino()) {
        return Err(PassedFileError::Elsewhere);
    }
    let is_ours = passed.uid() == rustix::process::geteuid().as_raw();
    if !is_ours || passed.mode() & 0o022 != 0 {
        return Err(PassedFileError::NotOurs);
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn passed(path: &Path) -> OwnedFd {
        File::open(path).unwrap().into()
    }

    #[test]
    fn only_the_file_at_the_expected_path_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let (own, other) = (folder.path().join("own"), folder.path().join("other"));
        fs::write(&own, "1").unwrap();
        fs::write(&other, "1").unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o600)).unwrap();
        assert!(checked(passed(&own), &own).is_ok());
        let refused = |file, path| checked(passed(file), path).unwrap_err();
        assert!(matches!(refused(&other, &own), PassedFileError::Elsewhere));
        assert!(matches!(refused(folder.path(), folder.path()), PassedFileError::NotAFile));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&own, &link).unwrap();
        assert!(matches!(refused(&own, &link), PassedFileError::Elsewhere));
        fs::set_permissions(&own, Permissions::from_mode(0o620)).unwrap();
        assert!(matches!(refused(&own, &own), PassedFileError::NotOurs));
    }
}
