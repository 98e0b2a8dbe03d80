//! `-P`: the file that contains the process id while the server runs.

use std::fs;
use std::path::PathBuf;
use std::process;

use files::Readers;
use options::Options;

use crate::log::Log;

/// The file, removed when dropped if it still names this process.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes it, unless this one still names the process: a server that serves again may no longer
    /// have the right to write.
    pub(super) fn hold(held: &mut Option<Self>, options: &Options, log: &Log) {
        if !held.as_ref().is_some_and(Self::is_ours) {
            *held = None;
            *held = Self::write(options, log);
        }
    }

    fn is_ours(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == process::id().to_string())
    }

    /// Writes it atomically: a reader finds the whole number or no file. As in memcached, a file
    /// that cannot be written is a warning, and the server continues.
    fn write(options: &Options, log: &Log) -> Option<Self> {
        let path = options.pid_file.clone()?;
        match files::put(&path, &format!("{}\n", process::id()), Readers::All) {
            Ok(()) => Some(Self { path }),
            Err(error) => {
                log.warning(format_args!("cannot write the pid file {}: {error}", path.display()));
                None
            }
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_ours() {
            // If it stays, the next start overwrites it.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::session::tests::options;

    /// A user who may write into the folder cannot make the server write elsewhere.
    #[test]
    fn the_pid_file_follows_no_symlink() {
        let folder = std::env::temp_dir().join(format!("holdall-pid-{}", process::id()));
        fs::create_dir_all(&folder).unwrap();
        let precious = folder.join("precious");
        fs::write(&precious, "untouched").unwrap();
        for name in ["pid", "pid.tmp"] {
            symlink(&precious, folder.join(name)).unwrap();
        }
        let path = folder.join("pid");
        let options = options(&["-P", path.to_str().unwrap()]);
        let file = PidFile::write(&options, &Log::new(&options)).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), format!("{}\n", process::id()));
        assert_eq!(fs::read_to_string(&precious).unwrap(), "untouched");
        let data = path.symlink_metadata().unwrap();
        assert!(data.is_file());
        assert_eq!(data.permissions().mode() & 0o777, 0o644);
        drop(file);
        assert!(!path.exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
