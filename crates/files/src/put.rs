//! Files of a server for other programs: written whole, in place of existing ones.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;

/// The readers of a file; no other user may write it.
#[derive(Clone, Copy, Debug)]
pub enum Readers {
    /// The server's user.
    Own,
    /// Every user of the machine.
    All,
}

/// Makes `folder`, and missing folders above it.
///
/// # Errors
///
/// The system's.
pub fn make_folder(folder: &Path, readers: Readers) -> io::Result<()> {
    let mode = match readers {
        Readers::Own => 0o700,
        Readers::All => 0o755,
    };
    DirBuilder::new().recursive(true).mode(mode).create(folder)
}

/// Puts a file with this text at `path`. The temporary file has an unpredictable name, so it is
/// never a link to another file. A link at `path` is replaced.
///
/// # Errors
///
/// The system's.
pub fn put(path: &Path, text: &str, readers: Readers) -> io::Result<()> {
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
