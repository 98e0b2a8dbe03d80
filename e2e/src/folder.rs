//! A separate folder for each test, optionally on a small file system that can be filled.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder that is removed at the end.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    is_mounted: bool,
}

impl Folder {
    /// Creates an empty folder. Its name includes a number, so that concurrent tests may use the
    /// same name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers differ and order nothing.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("e2e-{name}-{}-{number}", std::process::id());
        let path = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self { path, is_mounted: false }
    }

    /// Creates a file system in memory of this size, in `mount` syntax. None if this process cannot
    /// mount, which needs root.
    #[must_use]
    pub fn small(name: &str, bytes: &str) -> Option<Self> {
        let mut folder = Self::new(name);
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={bytes}"), "e2e"]).arg(&folder.path);
        folder.is_mounted =
            mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        folder.is_mounted.then_some(folder)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its path as an argument of a command.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Writes until the file system is full. Dropping the result deletes the file.
    #[must_use]
    pub fn fill(&self) -> Filler {
        let filler = Filler(self.path.join("filler"));
        let mut file = File::create(&filler.0).unwrap();
        for piece in [1 << 16, 1 << 9, 1] {
            while file.write_all(&vec![0; piece]).is_ok() {}
        }
        filler
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.is_mounted {
            let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        }
        let _: io::Result<()> = fs::remove_dir_all(&self.path);
    }
}

/// The file that fills a file system; removed at the end.
#[derive(Debug)]
pub struct Filler(PathBuf);

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
