//! The host as files in a root folder, so that tests can create one.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// More than the longest list of ports in `/proc/sys`: every second port of all.
const READ_BYTES: usize = 256 << 10;

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// The host whose `/proc`, `/sys` and other folders are in `root`.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The path in the root.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name.trim_start_matches('/'))
    }

    /// The file that a process means by a name, resolved in its own folder and root.
    pub(crate) fn of_process(&self, pid: u32, name: &str) -> PathBuf {
        let folder = if name.starts_with('/') { "root" } else { "cwd" };
        let own = self.path(&format!("/proc/{pid}/{folder}")).join(name.trim_start_matches('/'));
        // Other users may not read there.
        if own.exists() || folder == "cwd" { own } else { self.path(name) }
    }

    /// That file as an operator names it.
    pub(crate) fn shown_for(&self, pid: u32, name: &str) -> String {
        let folder = fs::read_link(self.path(&format!("/proc/{pid}/cwd"))).unwrap_or_default();
        folder.join(name).display().to_string()
    }

    /// A file's text without surrounding space; `None` if it cannot be read.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        let bytes = read_whole(&self.path(name)).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file's only number.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// True if the file or folder is there.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// The permissions of the file that a process means by a name, such as `0o640`.
    pub(crate) fn mode_for(&self, pid: u32, name: &str) -> Option<u32> {
        Some(fs::metadata(self.of_process(pid, name)).ok()?.mode() & 0o7777)
    }

    /// Writes a setting, as `echo VALUE >FILE` does.
    pub(crate) fn write(&self, name: &str, value: &str) -> io::Result<()> {
        fs::write(self.path(name), format!("{value}\n"))
    }

    /// Writes one of our own files, with its folders.
    pub(crate) fn keep(&self, name: &str, text: &str) -> io::Result<()> {
        let path = self.path(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, text)
    }

    /// Removes one of our own files.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }
}

/// The bytes of a file. A list in `/proc/sys` is cut off where the first read ends, and `fs::read`
/// begins with one of 32 bytes.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut chunk = vec![0; READ_BYTES];
    let mut bytes = Vec::new();
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&chunk[..count]),
        }
    }
}
