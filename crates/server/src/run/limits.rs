//! Limits of the process: files, core files, locked memory, CPUs.

use std::io;

use metrics::CONNECTIONS_MAX;
use net::{open_files_max, raise_open_files};
use options::Options;
use rustix::mm::MlockAllFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Failure;
use crate::log::Log;

/// Raises the limits that the options need. Call it with all the rights that the process will have.
///
/// # Errors
///
/// Fails if `-c` or `-r` needs more than the system allows.
pub(super) fn raise(options: &Options) -> Result<(), Failure> {
    raise_files(options)?;
    if options.core_dumps {
        raise_core()?;
    }
    if options.lock_memory {
        // Without the right to it, `mlockall` shows if the present limit was enough.
        let _ = setrlimit(Resource::Memlock, Rlimit { current: None, maximum: None });
    }
    Ok(())
}

/// `-k`. As in memcached, a refusal is a warning. Pages are locked on first use, so that merely
/// reserved address space stays out of memory.
pub(super) fn lock_memory(options: &Options, log: &Log) {
    if !options.lock_memory {
        return;
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(error) = rustix::mm::mlockall(flags) {
        log.warning(format_args!("-k: memory is not locked: {error}"));
    }
}

/// CPUs that the process may use, ascending.
pub(super) fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect())
}

/// A file for each connection, including those to `--metrics`, and some for everything else.
pub(super) fn raise_files(options: &Options) -> Result<(), Failure> {
    let of_metrics = if options.metrics.is_some() { CONNECTIONS_MAX } else { 0 };
    let connections = options.connections_max as u64;
    let wanted = connections.saturating_add(other_files(options) + of_metrics as u64);
    // Not all connections come at once, and the reserve is generous: the hard limit suffices if it
    // holds them.
    raise_open_files(wanted, connections).map_err(|error| {
        Failure::os(format!(
            "-c {connections}: cannot have {wanted} open files ({error}); start as root, raise the limit or ask for fewer"
        ))
    })
}

/// Connections to `--metrics` for which there are files in addition to those of clients. There are
/// always a few.
pub(super) fn metrics_connections(options: &Options) -> usize {
    let Some(files) = open_files_max() else { return CONNECTIONS_MAX };
    let taken = (options.connections_max as u64).saturating_add(other_files(options));
    let left = usize::try_from(files.saturating_sub(taken)).unwrap_or(usize::MAX);
    left.clamp(METRICS_CONNECTIONS_MIN, CONNECTIONS_MAX)
}

/// Files in addition to connections.
fn other_files(options: &Options) -> u64 {
    // Every interface has an IPv4 and an IPv6 address.
    let listeners = 2 * options.tcp.len() + options.udp.len() * options.threads;
    // Copies wait for a successor.
    let copies = if options.memory_file.is_some() { listeners } else { 0 };
    (FILES_RESERVED + options.threads * FILES_PER_WORKER + listeners + copies) as u64
}

fn raise_core() -> Result<(), Failure> {
    if setrlimit(Resource::Core, Rlimit { current: None, maximum: None }).is_ok() {
        return Ok(());
    }
    let maximum = getrlimit(Resource::Core).maximum;
    let raised = setrlimit(Resource::Core, Rlimit { current: maximum, maximum });
    if raised.is_err() || maximum == Some(0) {
        return Err(Failure::os("-r: the system allows no core files".to_owned()));
    }
    Ok(())
}

/// Standard streams, log, files being written, the acceptor's poller and eventfd, and spares.
const FILES_RESERVED: usize = 32;

/// The minimum of connections to `--metrics`; they are among the spares.
const METRICS_CONNECTIONS_MIN: usize = 8;

/// A worker's poller, mailbox and spares.
const FILES_PER_WORKER: usize = 4;
