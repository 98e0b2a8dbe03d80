//! Starts the spooler of failed deletes according to the options.

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

/// Starts the configured spooler. If no option names a folder and mcrouter's cannot be used, logs a
/// warning and returns `None`.
///
/// # Errors
///
/// The reason why the folder that an option names cannot be used.
pub(crate) fn start(
    options: &Options,
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
        open(&folder, options.first_port(), &settings(options))
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
    let worker = u32::try_from(options.num_proxies).unwrap_or(u32::MAX);
    let holds_gets = options.asynclog_hold_gets;
    let spooler = Spooler::start(spool, Some(folder), registry, worker, holds_gets, targets, log);
    spooler.map(Some).map_err(SpoolError::NoThread)
}

/// Opens the spool of this port, so that proxies may share the folder.
fn open(folder: &Path, port: u16, settings: &Settings) -> Result<Spool, SpoolError> {
    let folder = folder.join(format!("holdall-{port}"));
    Spool::open(&folder, *settings).map_err(|error| SpoolError::Unusable { folder, error })
}

fn settings(options: &Options) -> Settings {
    Settings {
        bytes_max: options.asynclog_max_bytes,
        age_max: Duration::from_secs(options.asynclog_max_age),
        fsync: options.asynclog_fsync,
        ..Settings::default()
    }
}
