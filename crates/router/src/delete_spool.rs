//! Starts the spooler of failed deletes according to the options.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use routes::{Spooler, Target};
use spool::{Settings, Spool};
use thiserror::Error;
use upstream::Registry;

use crate::options::Options;

/// mcrouter's `--async-dir`.
const DEFAULT_FOLDER: &str = "/var/spool/mcrouter";

/// Starts the names of the folders of spools; the port of the proxy follows.
const PREFIX: &str = "holdall-";

/// The reason why failed deletes cannot be kept.
#[derive(Debug, Error)]
pub(crate) enum SpoolError {
    #[error("{}: it does not exist", .0.display())]
    NoFolder(PathBuf),
    #[error("cannot start a thread: {0}")]
    NoThread(io::Error),
    #[error("{}: {error}", folder.display())]
    Unusable { folder: PathBuf, error: io::Error },
}

/// Starts the configured spooler of the proxy with this port in its names. If no option names a
/// folder and mcrouter's cannot be used, logs a warning and returns `None`.
///
/// # Errors
///
/// The reason why the folder that an option names cannot be used.
pub(crate) fn start(
    options: &Options,
    port: u16,
    registry: Registry,
    targets: Vec<Target>,
    log: impl Fn(&str) + Send + 'static,
) -> Result<Option<Spooler>, SpoolError> {
    if options.asynclog_disable {
        return Ok(None);
    }
    let folder = options.async_dir.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FOLDER));
    let is_named = options.async_dir.is_some();
    let spool = if is_named || folder.is_dir() {
        open(&folder, port, &settings(options))
    } else {
        Err(SpoolError::NoFolder(folder.clone()))
    };
    let spool = match spool {
        Ok(spool) => spool,
        Err(error) if is_named => return Err(error),
        Err(error) => {
            log(&format!("warning: deletes that fail are not kept: {error} (-a names another)"));
            return Ok(None);
        }
    };
    abandoned(&folder, spool.folder()).iter().for_each(|warning| log(warning));
    let worker = u32::try_from(options.num_proxies).unwrap_or(u32::MAX);
    let holds_gets = options.asynclog_hold_gets;
    let spooler = Spooler::start(spool, Some(folder), registry, worker, holds_gets, targets, log);
    spooler.map(Some).map_err(SpoolError::NoThread)
}

/// Opens the spool of this port, so that proxies may share the folder.
fn open(folder: &Path, port: u16, settings: &Settings) -> Result<Spool, SpoolError> {
    let folder = folder.join(format!("{PREFIX}{port}"));
    Spool::open(&folder, *settings).map_err(|error| SpoolError::Unusable { folder, error })
}

/// Warnings about the other spools in `folder` that have waiting deletes and that no proxy uses.
fn abandoned(folder: &Path, own: &Path) -> Vec<String> {
    // The folder of the own spool can be read; a spool of another user may be unreadable.
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let (path, name) = (entry.path(), entry.file_name());
            let port = name.to_str()?.strip_prefix(PREFIX)?;
            let is_other = path.file_name() != own.file_name();
            let is_abandoned = is_other && spool::is_abandoned(&path).unwrap_or(false);
            is_abandoned.then(|| {
                format!(
                    "warning: {}: deletes wait there, and no proxy executes them now: one with {port} as \
                     its first port (-p) does",
                    path.display()
                )
            })
        })
        .collect();
    found.sort_unstable();
    found
}

fn settings(options: &Options) -> Settings {
    Settings {
        bytes_max: options.asynclog_max_bytes,
        age_max: Duration::from_secs(options.asynclog_max_age),
        fsync: options.asynclog_fsync,
        ..Settings::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn other_spools_with_waiting_deletes_and_without_a_proxy_are_named() {
        let folder = std::env::temp_dir().join(format!("router-spools-{}", std::process::id()));
        let spool = |port: u16, records: usize| {
            let mut spool = open(&folder, port, &Settings::default()).unwrap();
            for _ in 0..records {
                spool.append("server", b"record", 1).unwrap();
            }
            assert!(spool.commit(Instant::now()).is_empty());
            spool
        };
        let own = spool(1, 1);
        let used = spool(2, 1);
        drop(spool(3, 1));
        drop(spool(4, 0));
        let named = abandoned(&folder, own.folder());
        assert_eq!(named.len(), 1, "{named:?}");
        assert!(named[0].contains("holdall-3: deletes wait there"), "{named:?}");
        drop(used);
        assert_eq!(abandoned(&folder, own.folder()).len(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
