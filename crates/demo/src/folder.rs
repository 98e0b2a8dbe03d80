//! The temporary folder of a run, and the user without privileges to whom it belongs.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

/// User and group numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// A folder that is removed when its last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    root: Arc<TempDir>,
    path: PathBuf,
    user: Option<User>,
}

impl Folder {
    /// Creates one. For root, it belongs to `nobody`, because no database runs as root; for others,
    /// to themselves.
    pub(crate) fn new() -> Result<Self> {
        let root = tempfile::Builder::new()
            .prefix("holdall-demo-")
            .tempdir()
            .context("a temporary folder")?;
        let user = if rustix::process::geteuid().is_root() { Some(nobody()?) } else { None };
        let folder = Self { path: root.path().to_owned(), root: Arc::new(root), user };
        folder.own(&folder.path)?;
        Ok(folder)
    }

    /// A subfolder.
    pub(crate) fn below(&self, name: &str) -> Result<Self> {
        let path = self.path.join(name);
        fs::create_dir_all(&path)?;
        self.own(&path)?;
        Ok(Self { root: Arc::clone(&self.root), path, user: self.user })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The user of started programs; none for the current user.
    pub(crate) const fn user(&self) -> Option<User> {
        self.user
    }

    /// Writes a file there atomically, readable only by its owner.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        let part = self.path.join(format!("{name}.part"));
        fs::write(&part, text).with_context(|| part.display().to_string())?;
        fs::set_permissions(&part, fs::Permissions::from_mode(0o600))?;
        self.own(&part)?;
        fs::rename(&part, &path)?;
        Ok(path)
    }

    fn own(&self, path: &Path) -> Result<()> {
        if let Some(user) = self.user {
            chown(path, Some(user.uid), Some(user.gid))
                .with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// The user that owns nothing.
fn nobody() -> Result<User> {
    let users = fs::read_to_string("/etc/passwd").context("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("nobody:"));
    let mut numbers =
        line.unwrap_or_default().split(':').skip(2).map_while(|word| word.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(uid), Some(gid)) => Ok(User { uid, gid }),
        _ => anyhow::bail!(
            "there is no user 'nobody' to run the databases as: run this as another user than root"
        ),
    }
}
