//! `-P`: the file that holds the process id while the server runs.

use std::fs;
use std::path::PathBuf;
use std::process;

use options::Options;

use super::new_file;
use crate::log::Log;

/// The file, removed when dropped if it still names this process.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes it, unless this one still names the process: a server that serves again may no longer
    /// be allowed to write.
    pub(super) fn hold(held: &mut Option<Self>, options: &Options, log: &Log) {
        if !held.as_ref().is_some_and(Self::is_ours) {
            *held = None;
            *held = Self::write(options, log);
        }
    }

    fn is_ours(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|text| text.trim() == process::id().to_string())
    }

    /// Writes it in one piece: whoever reads it finds the whole number or no file. As with
    /// memcached, a file that cannot be written is a warning, and the server runs on.
    fn write(options: &Options, log: &Log) -> Option<Self> {
        let path = options.pid_file.clone()?;
        match new_file::put(&path, &format!("{}\n", process::id())) {
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
            // Left behind, it is overwritten by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::session::tests::options;

    /// Whoever may write into the folder cannot have the server write elsewhere.
    #[test]
    fn the_file_goes_through_no_link() {
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
