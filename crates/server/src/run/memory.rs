//! The cache's memory: anonymous, or a file that outlives the process (`-e`).
//!
//! Faulty content of a file costs the cache, not the service: the server logs the reason and starts
//! empty, as memcached does. A file that the server must not overwrite, or that is in use, prevents
//! the start.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use options::Options;
use store::{Config, Found, MemoryFile, Opened, Store, StoreError, TimeNote};

use super::Failure;
use crate::clock::Clock;
use crate::log::Log;

/// Makes the store, with the items of a former process if there are any, and the matching clock.
pub(super) fn open(
    options: &Options,
    config: Config,
    log: &Log,
) -> Result<(Arc<Store>, Clock), Failure> {
    let Some(path) = &options.memory_file else {
        let store = Store::new(config).map_err(|error| failed(&error))?;
        return Ok((store, Clock::start()));
    };
    let file = MemoryFile::open(path, &config).map_err(|error| failed(&error))?;
    from_file(file, &config, log)
}

/// Opens the store in the file that another server has left to this one under a `ticket`; see
/// [`open`].
pub(super) fn inherit(
    options: &Options,
    config: &Config,
    file: OwnedFd,
    ticket: u64,
    log: &Log,
) -> Result<(Arc<Store>, Clock), Failure> {
    let path = options.memory_file.as_deref().unwrap_or_else(|| Path::new(""));
    let file = MemoryFile::inherit(file, path, config, ticket).map_err(|error| failed(&error))?;
    from_file(file, config, log)
}

/// Refuses faults that are visible before another server passes its file on.
pub(super) fn check(path: &Path, config: &Config) -> Result<(), Failure> {
    MemoryFile::check(path, config).map_err(|error| failed(&error))
}

/// The number that shows the server with the memory file at `path` that this one can take it over.
pub(super) fn format(path: &Path, config: &Config) -> Result<u64, Failure> {
    MemoryFile::format(path, config).map_err(|error| failed(&error))
}

fn from_file(
    mut file: MemoryFile,
    config: &Config,
    log: &Log,
) -> Result<(Arc<Store>, Clock), Failure> {
    let started = Instant::now();
    let path = file.path().to_owned();
    let clock = match *file.found() {
        Found::Cold(_) => Clock::start(),
        Found::Clean(note) => resume(&mut file, &note),
        Found::Crashed(note) if Clock::is_of_this_boot(&note) => resume(&mut file, &note),
        Found::Crashed(_) => {
            // It is unknown which writes reached the disk, and in which order.
            let why = "the machine went down while a server used it, or its boot id is unknown";
            file.discard(why.to_owned());
            Clock::start()
        }
    };
    let (store, opened) =
        Store::open(config, file, clock.note()).map_err(|error| failed(&error))?;
    let (path, ms) = (path.display(), started.elapsed().as_millis());
    match opened {
        Opened::Cold(None) => log.detail(format_args!("{path}: a new memory file")),
        Opened::Cold(Some(reason)) => {
            log.warning(format_args!("{path}: starting empty: {reason}"));
        }
        Opened::Warm(items) => {
            log.always(format_args!("{path}: took over {items} items in {ms} ms"));
        }
        Opened::Recovered(found) => log.always(format_args!(
            "{path}: its last owner did not end well: recovered {} items in {ms} ms; dropped {} expired, {} flushed, \
             {} deleted, {} out of place, {} damaged",
            found.items,
            found.expired,
            found.flushed,
            found.deleted,
            found.misplaced,
            found.damaged
        )),
    }
    Ok((store, clock))
}

/// The clock of the file's items. If it has run out, the items are discarded: with a new clock,
/// their deadlines would be wrong.
fn resume(file: &mut MemoryFile, note: &TimeNote) -> Clock {
    Clock::resume(note).unwrap_or_else(|| {
        let why = "by this machine's clock, it is more than 34 years old; check that clock";
        file.discard(why.to_owned());
        Clock::start()
    })
}

/// Leaves a memory file in order for the next start, or with a nonzero `ticket` for a waiting
/// successor.
pub(super) fn close(store: &Arc<Store>, clock: Clock, ticket: u64, log: &Log) {
    let started = Instant::now();
    match store.close(clock.note(), ticket) {
        Ok(()) => log.detail(format_args!(
            "the cache's memory is in order after {} ms",
            started.elapsed().as_millis()
        )),
        Err(error) => log.warning(format_args!(
            "the memory file is not in order ({error}); the next start recovers what it can"
        )),
    }
}

fn failed(error: &StoreError) -> Failure {
    match error {
        StoreError::File(error) => Failure::os(format!("-e: {error}")),
        StoreError::Limit(error) => Failure::os(format!("-m: {error}")),
        error => Failure::os(format!("-m: cannot make the cache: {error}"))
            .hint("lower -m, or raise the memory limits of the process and the system"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_whose_clock_has_run_out_is_discarded() {
        let path = std::env::temp_dir().join(format!("server-memory-{}", std::process::id()));
        let config = crate::run::store_config(&crate::session::tests::options(&["-m", "64"]));
        let mut file = MemoryFile::open(&path, &config).unwrap();
        let now = Clock::start().note();
        assert!(resume(&mut file, &TimeNote { secs: 500, ..now }).secs() >= 500);
        assert_eq!(*file.found(), Found::Cold(None), "the file is new");
        let clock = resume(&mut file, &TimeNote { secs: u32::MAX - 10, ..now });
        assert!(clock.secs() < 500);
        assert!(matches!(file.found(), Found::Cold(Some(_))));
        drop(file);
        std::fs::remove_file(&path).unwrap();
    }
}
