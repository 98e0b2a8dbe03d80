//! The minimum number of misses of any cache of a given size: Belady's bound, computed from the
//! whole trace.
//!
//! A request is kept only if its key is requested again before it is overwritten or removed, and
//! the item with the most distant next use is evicted first. For objects of one size, this is the
//! optimum (Belady 1966, with bypassing); for objects of several sizes, the optimum is NP-hard, and
//! evicting only by distance comes close, so the bound is an approximation there. Only keys and
//! values count: a server's headers, index and fragmentation are part of its loss to the bound.
//!
//! The trace is spooled to a file of 16 bytes per request, which is read backwards to find each
//! next use. Memory holds a number per distinct key, and the simulated caches' contents.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::belady_sizes::BySize;
use super::future::{Future, FutureRequest};
use super::trace::{Action, Request};
use super::{Counts, Footprint};

/// The requests of a trace as the bound needs them: `u64` id, then `u32` bytes and action; later
/// the next use in place of the id.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    requests: u64,
    /// Set from outside to stop the work.
    stop: Arc<AtomicBool>,
}

/// A spooled trace with known next uses.
#[derive(Debug)]
pub struct Known {
    file: File,
    requests: u64,
    stop: Arc<AtomicBool>,
    /// The items that the trace asks for.
    pub footprint: Footprint,
}

/// Bytes of a spooled request.
const RECORD: usize = 16;

/// Records per read or write.
const BLOCK: usize = 64 * 1024;

/// Items that no server accepts are not kept here either.
const TOO_LONG: u32 = u32::MAX;

/// The key is not requested again before it is overwritten or removed.
const NEVER: u64 = u64::MAX;

impl Spool {
    /// An empty spool, in an unnamed file of the folder for temporary files. Once `stop` is true,
    /// long operations end with an error.
    ///
    /// # Errors
    ///
    /// When the file cannot be created.
    pub fn new(stop: Arc<AtomicBool>) -> Result<Self> {
        let folder = std::env::temp_dir();
        let file = tempfile::tempfile_in(&folder)
            .with_context(|| format!("{}: no file for the trace", folder.display()))?;
        Ok(Self { file: BufWriter::with_capacity(1 << 20, file), requests: 0, stop })
    }

    /// Adds the next request.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn push(&mut self, request: &Request) -> Result<()> {
        let action = match request.action {
            Action::Get => 0,
            Action::Set => 1,
            Action::Delete => 2,
        };
        let bytes = if super::replay::is_kept(request) {
            request.value_bytes.saturating_add(u32::from(request.key_bytes))
        } else {
            TOO_LONG
        };
        let mut record = [0; RECORD];
        record[..8].copy_from_slice(&request.id.to_le_bytes());
        record[8..12].copy_from_slice(&bytes.to_le_bytes());
        record[12] = action;
        self.requests += 1;
        self.file.write_all(&record).context("the trace could not be spooled")
    }

    /// Finds the next use of each request, walking backwards.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written, or it was stopped.
    pub fn known(self) -> Result<Known> {
        let file = self.file.into_inner().context("the trace could not be spooled")?;
        let mut next_of: HashMap<u64, u64> = HashMap::new();
        let mut footprint = Footprint { requests: self.requests, keys: 0, bytes: 0 };
        let mut end = self.requests;
        let mut block = vec![0; BLOCK * RECORD];
        while end > 0 {
            check_interrupt(&self.stop)?;
            let begin = end.saturating_sub(BLOCK as u64);
            let length = usize::try_from(end - begin)? * RECORD;
            file.read_exact_at(&mut block[..length], begin * RECORD as u64)?;
            for (offset, record) in block[..length].chunks_exact_mut(RECORD).enumerate().rev() {
                let (id, bytes, action) = parts(record);
                let at = begin + offset as u64;
                let now = if action == 0 { at } else { NEVER };
                let next = next_of.insert(id, now);
                if next.is_none() {
                    footprint.keys += 1;
                    if bytes != TOO_LONG {
                        footprint.bytes += u64::from(bytes);
                    }
                }
                record[..8].copy_from_slice(&next.unwrap_or(NEVER).to_le_bytes());
            }
            file.write_all_at(&block[..length], begin * RECORD as u64)?;
            end = begin;
        }
        Ok(Known { file, requests: self.requests, stop: self.stop, footprint })
    }
}

impl Known {
    /// The counts of caches of these sizes in bytes that evict only by distance, after the first
    /// `warm_up` requests. Each item takes `overhead` bytes in addition to key and value.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the work was stopped.
    pub fn bound(
        &mut self,
        capacities: &[u64],
        overhead: u32,
        warm_up: u64,
    ) -> Result<Vec<Counts>> {
        self.counts_of(capacities, overhead, warm_up, Optimal::new)
    }

    /// The same for caches that evict by distance and bytes.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or the work was stopped.
    pub fn bound_with_sizes(
        &mut self,
        capacities: &[u64],
        overhead: u32,
        warm_up: u64,
    ) -> Result<Vec<Counts>> {
        self.counts_of(capacities, overhead, warm_up, BySize::new)
    }

    fn counts_of<F: Future>(
        &mut self,
        capacities: &[u64],
        overhead: u32,
        warm_up: u64,
        cache: impl Fn(u64) -> F,
    ) -> Result<Vec<Counts>> {
        let mut caches: Vec<F> = capacities.iter().map(|capacity| cache(*capacity)).collect();
        self.file.seek(SeekFrom::Start(0))?;
        let mut block = vec![0; BLOCK * RECORD];
        let mut at = 0;
        while at < self.requests {
            check_interrupt(&self.stop)?;
            let records = usize::try_from((self.requests - at).min(BLOCK as u64))?;
            self.file.read_exact(&mut block[..records * RECORD])?;
            for record in block[..records * RECORD].chunks_exact(RECORD) {
                let (next, bytes, action) = parts(record);
                let is_worth_keeping = action != 2 && next != NEVER && bytes != TOO_LONG;
                let met = FutureRequest {
                    at,
                    is_get: action == 0,
                    counts: at >= warm_up,
                    keep: is_worth_keeping.then_some((next, bytes.saturating_add(overhead))),
                };
                caches.iter_mut().for_each(|cache| cache.meet(&met));
                at += 1;
            }
        }
        Ok(caches.into_iter().map(F::counts).collect())
    }
}

/// Relaxed: a late observation of the flag costs a block.
fn check_interrupt(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

fn parts(record: &[u8]) -> (u64, u32, u8) {
    let mut first = [0; 8];
    first.copy_from_slice(&record[..8]);
    let bytes = u32::from_le_bytes([record[8], record[9], record[10], record[11]]);
    (u64::from_le_bytes(first), bytes, record[12])
}

/// A cache that knows the future. Each item is named by the position of its next use, which is
/// unique, so a request is a hit if an item is held under the request's position.
#[derive(Debug)]
struct Optimal {
    capacity: u64,
    used: u64,
    held: BTreeMap<u64, u32>,
    counts: Counts,
}

impl Optimal {
    fn new(capacity: u64) -> Self {
        Self { capacity, used: 0, held: BTreeMap::new(), counts: Counts::default() }
    }
}

impl Future for Optimal {
    fn meet(&mut self, met: &FutureRequest) {
        if met.is_get {
            let held = self.held.remove(&met.at);
            self.used -= u64::from(held.unwrap_or(0));
            if met.counts {
                self.counts.gets += 1;
                self.counts.hits += u64::from(held.is_some());
            }
        }
        let Some((next, bytes)) = met.keep.filter(|(_, bytes)| u64::from(*bytes) <= self.capacity)
        else {
            return;
        };
        self.used += u64::from(bytes);
        self.held.insert(next, bytes);
        while self.used > self.capacity {
            let Some((_, bytes)) = self.held.pop_last() else { return };
            self.used -= u64::from(bytes);
        }
    }

    fn counts(self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    fn known(trace: &[(u64, u32, Action)]) -> Known {
        let mut spool = Spool::new(Arc::default()).unwrap();
        for (id, value_bytes, action) in trace {
            spool
                .push(&Request {
                    id: *id,
                    key_bytes: 0,
                    value_bytes: *value_bytes,
                    lifetime_secs: 0,
                    action: *action,
                })
                .unwrap();
        }
        spool.known().unwrap()
    }

    #[test]
    fn interrupted_work_returns_an_error() {
        let stop = Arc::new(AtomicBool::new(false));
        let (key_bytes, value_bytes, lifetime_secs) = (1, 1, 0);
        let request = Request { id: 1, key_bytes, value_bytes, lifetime_secs, action: Action::Get };
        let spool = || {
            let mut spool = Spool::new(Arc::clone(&stop)).unwrap();
            spool.push(&request).unwrap();
            spool
        };
        let mut known = spool().known().unwrap();
        assert!(known.bound(&[100], 0, 0).is_ok());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(known.bound(&[100], 0, 0).unwrap_err().to_string(), "interrupted");
        assert!(known.bound_with_sizes(&[100], 0, 0).is_err());
        assert_eq!(spool().known().unwrap_err().to_string(), "interrupted");
    }

    fn hits(trace: &[u64], capacity: u64) -> u64 {
        let trace: Vec<_> = trace.iter().map(|id| (*id, 1, Action::Get)).collect();
        known(&trace).bound(&[capacity], 0, 0).unwrap()[0].hits
    }

    /// The best of all choices of items to keep, tried one by one.
    fn best(trace: &[u64], held: &[u64], capacity: usize) -> u64 {
        let Some((first, rest)) = trace.split_first() else { return 0 };
        let mut all = held.to_vec();
        let is_hit = all.contains(first);
        if !is_hit {
            all.push(*first);
        }
        let most = if all.len() <= capacity {
            best(rest, &all, capacity)
        } else {
            (0..all.len())
                .map(|out| {
                    let mut kept = all.clone();
                    kept.remove(out);
                    best(rest, &kept, capacity)
                })
                .max()
                .unwrap()
        };
        most + u64::from(is_hit)
    }

    #[test]
    fn the_bound_is_optimal_for_objects_of_equal_size() {
        // Belady's own example: 1 2 3 4 1 2 5 1 2 3 4 5 with three places has seven misses.
        assert_eq!(hits(&[1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 3), 5);
        let mut rng = SmallRng::seed_from_u64(5);
        for _ in 0..200 {
            let trace: Vec<u64> = (0..12).map(|_| rng.random_range(0..5)).collect();
            for capacity in 1..4usize {
                let bound = hits(&trace, capacity as u64);
                assert_eq!(bound, best(&trace, &[], capacity), "{trace:?} in {capacity}");
            }
        }
    }

    #[test]
    fn sets_and_deletes_end_a_values_use() {
        use Action::{Delete, Get, Set};
        let one =
            |trace: &[(u64, u32, Action)]| known(trace).bound(&[10], 0, 0).unwrap()[0].clone();
        // The set makes the second get a hit; the delete makes the third a miss.
        let counts = one(&[(1, 5, Set), (1, 5, Get), (1, 0, Delete), (1, 5, Get)]);
        assert_eq!((counts.gets, counts.hits), (2, 1));
        // A value overwritten before it is read need not be kept: 2 fits next to nothing.
        let counts = one(&[(1, 8, Get), (2, 8, Get), (1, 8, Set), (2, 8, Get), (1, 8, Get)]);
        assert_eq!((counts.gets, counts.hits), (4, 1));
        // An item that does not fit at all is never kept.
        assert_eq!(one(&[(1, 11, Get), (1, 11, Get)]).hits, 0);
    }

    #[test]
    fn the_footprint_and_the_warm_up_are_counted() {
        let trace: Vec<_> =
            (0..200_000).map(|n| (n % 1000, 10, Action::Get)).collect::<Vec<(u64, u32, Action)>>();
        let mut known = known(&trace);
        assert_eq!(known.footprint, Footprint { requests: 200_000, keys: 1000, bytes: 10_000 });
        let counts = known.bound(&[10_000, 0], 0, 1000).unwrap();
        assert_eq!((counts[0].gets, counts[0].hits), (199_000, 199_000));
        assert_eq!(counts[1].hits, 0);
    }

    #[test]
    fn values_longer_than_a_server_accepts_are_not_in_the_footprint() {
        let known = known(&[(1, 10, Action::Get), (2, 5_000_000, Action::Get)]);
        assert_eq!(known.footprint, Footprint { requests: 2, keys: 2, bytes: 10 });
    }

    #[test]
    fn the_bound_with_sizes_prefers_many_small_objects() {
        // The large one is used sooner than each small one, but takes the room of ten.
        let small: Vec<_> = (1..=10).map(|id| (id, 10, Action::Get)).collect();
        let large = (99, 100, Action::Get);
        let mut trace = Vec::new();
        for _ in 0..20 {
            trace.extend([large].iter().chain(&small).copied());
        }
        let mut known = known(&trace);
        let by_distance = known.bound(&[100], 0, 0).unwrap()[0].hits;
        let by_size = known.bound_with_sizes(&[100], 0, 0).unwrap()[0].hits;
        assert_eq!(by_size, 190, "all gets of small ones but the first");
        assert!(by_distance < by_size, "{by_distance}");
    }

    #[test]
    fn both_bounds_agree_for_objects_of_equal_size() {
        let mut rng = SmallRng::seed_from_u64(5);
        // As many as a sample, so that all are examined.
        let trace: Vec<_> = (0..5000).map(|_| (rng.random_range(0..90), 1, Action::Get)).collect();
        let mut known = known(&trace);
        for capacity in [10, 40, 60] {
            let bound = known.bound(&[capacity], 0, 0).unwrap();
            assert_eq!(known.bound_with_sizes(&[capacity], 0, 0).unwrap(), bound);
        }
    }
}
