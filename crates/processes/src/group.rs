//! A control group of the kernel: a folder of files that name its processes and set its limits.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The kernel's folder of control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// A control group, removed when dropped, after its processes have ended.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    /// True for the kernel's first kind of groups, which has a tree for each controller.
    pub(crate) is_first_kind: bool,
}

impl Group {
    /// Makes a group under `controller`; `name` is this process's for it. `first_kind` is a file of
    /// groups of the kernel's first kind.
    pub(crate) fn new(controller: &str, first_kind: &str, name: &str) -> io::Result<Self> {
        let first = Path::new(ROOT).join(controller);
        let is_first_kind = first.join(first_kind).exists();
        let root = if is_first_kind { first } else { PathBuf::from(ROOT) };
        let folder = root.join(format!("holdall-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(at(&folder))?;
        Ok(Self { folder, is_first_kind })
    }

    /// The group's folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes to a file of the group.
    pub(crate) fn write(&self, file: &str, text: &str) -> io::Result<()> {
        write(&self.folder.join(file), text)
    }

    /// Writes to a file of the group above.
    pub(crate) fn write_above(&self, file: &str, text: &str) -> io::Result<()> {
        let root = self.folder.parent().unwrap_or(&self.folder);
        write(&root.join(file), text)
    }

    /// Reads a file of the group.
    pub(crate) fn read(&self, file: &str) -> io::Result<String> {
        let path = self.folder.join(file);
        fs::read_to_string(&path).map_err(at(&path))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The kernel releases ended processes a moment later.
        for _ in 0..20 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    fs::write(path, text).map_err(at(path))
}

/// The error with the path at which it happened.
fn at(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    let path = path.display().to_string();
    move |error| io::Error::new(error.kind(), format!("{path}: {error}"))
}
