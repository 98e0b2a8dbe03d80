//! Watches the deployment from outside: probes of every path, and each process's memory, files,
//! threads and log.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use processes::usage;
use testkit::Wire;
use testkit::process::open_files;
use testkit::wire::{End, PATIENCE, show};

use super::file_bytes;
use super::record::Record;
use super::tier::{LIMIT_MB, Path, Tier};

const MIB: u64 = 1 << 20;

/// The maximum memory of a server: 1.03 times `-m`, and 16 MB.
pub(super) const MEMORY_MAX: u64 = LIMIT_MB * MIB * 103 / 100 + 16 * MIB;

/// The maximum log output of a process per minute; the first minute counts as a whole one.
const LOG_MAX: u64 = 4 * MIB;

/// Additional files and threads that a process may have compared with the first settlement, because
/// connections of clients come and go.
const SPARE: usize = 40;

/// Pause between two probes of a path.
const PAUSE: Duration = Duration::from_millis(10);

/// The maximum of a process so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peak {
    pub(super) memory: u64,
    pub(super) files: usize,
    pub(super) threads: usize,
    pub(super) log: u64,
}

/// Latencies of probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Probes {
    /// In microseconds, where no trouble held the path: latencies of bystanders.
    pub(super) beside: Vec<u32>,
    pub(super) longest_in_trouble: Duration,
}

#[derive(Debug, Default)]
struct State {
    peaks: BTreeMap<String, Peak>,
    /// At the first settlement.
    settled: BTreeMap<String, Peak>,
    probes: Probes,
}

/// All observations.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<State>);

impl Watch {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn peaks(&self) -> BTreeMap<String, Peak> {
        self.lock().peaks.clone()
    }

    pub(super) fn probes(&self) -> Probes {
        self.lock().probes.clone()
    }

    /// Stores and fetches one key by this path until the end.
    pub(super) fn probe(&self, path: &Path, record: &Record) {
        let mut wire = None;
        let way = if path.is_proxied() { "proxied" } else { "direct" };
        let request = format!("set {0}p{way} 0 0 2\r\nok\r\nget {0}p{way}\r\n", path.prefix);
        let found = format!("STORED\r\nVALUE {}p{way} 0 2\r\nok\r\nEND\r\n", path.prefix);
        while !record.is_over() {
            record.sleep(PAUSE);
            let since = Instant::now();
            match ask(&mut wire, path, request.as_bytes()) {
                // Evicted or flushed in between, which a cache may do.
                Ok(reply) if reply == found.as_bytes() || reply == b"STORED\r\nEND\r\n" => {}
                Ok(reply) if reply.starts_with(b"SERVER_ERROR") || reply.contains_error() => {
                    // Two replies, or the rest of one, are still in flight.
                    wire = None;
                    record.failed(&path.parts, since, &show(&reply));
                    continue;
                }
                Ok(reply) => record.violated(&format!("probe by {path:?}: {}", show(&reply))),
                Err(error) => {
                    wire = None;
                    record.failed(&path.parts, since, &format!("probe: {error}"));
                    continue;
                }
            }
            self.took(since.elapsed(), record.was_held(&path.parts, since));
            record.count("probes", 2);
        }
    }

    fn took(&self, time: Duration, in_trouble: bool) {
        let probes = &mut self.lock().probes;
        if in_trouble {
            probes.longest_in_trouble = probes.longest_in_trouble.max(time);
        } else {
            probes.beside.push(u32::try_from(time.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Reads every process each half second, until the end.
    pub(super) fn processes(&self, tier: &Tier, record: &Record) {
        while !record.is_over() {
            for (name, now) in readings(tier) {
                let minutes = record.elapsed().as_secs() / 60 + 1;
                if name.starts_with("server") && now.memory > MEMORY_MAX {
                    let (now, most) = (now.memory / MIB, MEMORY_MAX / MIB);
                    record.violated(&format!("{name}: {now} MiB resident, promised {most}"));
                }
                if now.log > LOG_MAX * minutes {
                    record.violated(&format!("{name}: {} bytes in its log", now.log));
                }
                let mut state = self.lock();
                let peak = state.peaks.entry(name).or_default();
                peak.memory = peak.memory.max(now.memory);
                peak.files = peak.files.max(now.files);
                peak.threads = peak.threads.max(now.threads);
                peak.log = peak.log.max(now.log);
            }
            record.sleep(Duration::from_millis(500));
        }
    }

    /// Compares every process with its state at the first settlement, to find leaks.
    pub(super) fn compare(&self, tier: &Tier, record: &Record) {
        for (name, now) in readings(tier) {
            let first = *self.lock().settled.entry(name.clone()).or_insert(now);
            for (what, first, now) in
                [("files", first.files, now.files), ("threads", first.threads, now.threads)]
            {
                if now > first + SPARE {
                    record.violated(&format!("{name}: {now} {what}, {first} at first"));
                }
            }
        }
    }
}

/// A reply of several lines.
trait Reply {
    fn contains_error(&self) -> bool;
}

impl Reply for Vec<u8> {
    fn contains_error(&self) -> bool {
        self.windows(14).any(|bytes| bytes == b"\r\nSERVER_ERROR")
    }
}

/// Sends the probe. Returns its reply up to the end or the first error.
fn ask(wire: &mut Option<Wire>, path: &Path, request: &[u8]) -> Result<Vec<u8>, String> {
    let wire = match wire {
        Some(wire) => wire,
        None => wire.insert(Wire::try_connect(path.addr).map_err(|error| error.to_string())?),
    };
    wire.try_send(request).map_err(|error| error.to_string())?;
    let mut reply = Vec::new();
    loop {
        let (line, end) = wire.read_until_or_end(b"\r\n", PATIENCE);
        if end != End::Found {
            return Err(format!("{end:?} after {}", show(&line)));
        }
        reply.extend_from_slice(&line);
        if line == b"END\r\n" || line.starts_with(b"SERVER_ERROR") {
            return Ok(reply);
        }
    }
}

fn readings(tier: &Tier) -> Vec<(String, Peak)> {
    let read = |(name, pid, log): (String, u32, std::path::PathBuf)| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let memory = usage::rss_bytes(pid)?;
        Some((name, Peak { memory, files: open_files(pid), threads, log: file_bytes(&log) }))
    };
    tier.processes().into_iter().filter_map(read).collect()
}
