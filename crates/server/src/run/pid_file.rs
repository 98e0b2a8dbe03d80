//! `-P`: the file that holds the process id while the server runs.

use std::fs;
use std::path::PathBuf;
use std::process;

use crate::log::Log;
use crate::options::Options;

/// The file, removed when dropped if it still names this process.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
}

impl PidFile {
    /// Writes it in one piece: whoever reads it finds the whole number or no file. As with
    /// memcached, a file that cannot be written is a warning, and the server runs on.
    pub(super) fn write(options: &Options, log: &Log) -> Option<Self> {
        let path = options.pid_file.clone()?;
        let mut part = path.clone().into_os_string();
        part.push(".tmp");
        let written = fs::write(&part, format!("{}\n", process::id()))
            .and_then(|()| fs::rename(&part, &path));
        match written {
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
        let is_ours = fs::read_to_string(&self.path)
            .is_ok_and(|text| text.trim() == process::id().to_string());
        if is_ours {
            // Left behind, it is overwritten by the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}
