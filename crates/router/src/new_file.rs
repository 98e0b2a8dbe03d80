//! Files that are written whole, in the place of what is there.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// Who may read a file; nobody else may write it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readers {
    /// The proxy's user.
    Own,
    /// Everybody on the machine.
    All,
}

/// Makes `folder`, and the folders above it that are not there.
pub(crate) fn make_folder(folder: &Path, readers: Readers) -> io::Result<()> {
    let mode = match readers {
        Readers::Own => 0o700,
        Readers::All => 0o755,
    };
    DirBuilder::new().recursive(true).mode(mode).create(folder)
}

/// Puts a file with this text at `path`. The part that is written first has a name that nobody can
/// know before, so it is never a link to another file.
pub(crate) fn put(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
    let mode = match readers {
        Readers::Own => 0o600,
        Readers::All => 0o644,
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut part = tempfile::Builder::new()
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
    part.write_all(text.as_bytes())?;
    part.persist(path)?;
    Ok(())
}
