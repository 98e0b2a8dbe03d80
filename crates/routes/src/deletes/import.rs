//! Moves mcrouter's files of failed deletes into the spool, since nothing in mcrouter replays them.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use spool::{Spool, asynclog};

use upstream::{Command, Request};

/// The age at which a file is no longer written. mcrouter starts a new file after 15 minutes.
const CLOSED_AFTER_SECS: u64 = 30 * 60;

/// Moves the records of closed files below `folder` into `spool`, and returns lines for the log.
pub(super) fn all(folder: &Path, spool: &mut Spool, bytes_free: u64, secs: u64) -> Vec<String> {
    let files = match asynclog::files(folder, secs.saturating_sub(CLOSED_AFTER_SECS)) {
        Ok(files) => files,
        Err(error) => return vec![format!("warning: {}: {error}", folder.display())],
    };
    let mut told = Vec::new();
    let mut left = bytes_free;
    for path in files {
        // A record is shorter than a line and 28 bytes. A file without room waits as a whole.
        let needed = fs::metadata(&path).map_or(0, |data| data.len().saturating_mul(2));
        if needed > left {
            break;
        }
        left -= needed;
        match file(&path, spool) {
            Ok((taken, bad)) => told.push(format!(
                "{}{}: {taken} deletes are taken over, {bad} lines were none",
                if bad > 0 { "warning: " } else { "" },
                path.display()
            )),
            Err(error) => told.push(format!("warning: {}: {error}", path.display())),
        }
    }
    told
}

/// Moves one file, and removes it when the spool has all of it.
fn file(path: &Path, spool: &mut Spool) -> io::Result<(u64, u64)> {
    // Opening a FIFO would wait for its writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let (mut taken, mut bad) = (0, 0);
    for line in BufReader::new(fs::File::open(path)?).split(b'\n') {
        let line = line?;
        let Ok(entry) = asynclog::parse(&String::from_utf8_lossy(&line)) else {
            bad += 1;
            continue;
        };
        let record =
            super::record(&entry.pool, &Request::new(Command::Delete, entry.key.as_bytes()));
        let destination: Arc<str> = entry.destination.into();
        match spool.append(&destination, &record, entry.secs) {
            Ok(_) => taken += 1,
            Err(error) => return Err(io::Error::other(format!("{error:?}"))),
        }
    }
    if let Some(failed) = spool.commit(Instant::now()).pop() {
        return Err(failed.error);
    }
    fs::remove_file(path)?;
    // The folder of the hour is removed with its last file.
    let _ = path.parent().map(fs::remove_dir);
    Ok((taken, bad))
}
