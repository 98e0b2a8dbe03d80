//! Files for other programs: written whole, in place of an existing file.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Puts a file with this text at `path`, readable by everybody. The temporary file has an
/// unpredictable name, so it is never a link to another file.
pub(super) fn put(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut part = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(folder.unwrap_or_else(|| Path::new(".")))?;
    part.write_all(text.as_bytes())?;
    part.persist(path)?;
    Ok(())
}
