//! Simulated caches, in addition to the live servers: the hits of a policy on the same trace if
//! only the policy counted.
//!
//! An item takes the bytes of key and value, and an overhead that is the same for all policies.
//! There are no pages, classes or batches. So the distance between a live server and its policy
//! here is the server's loss to its memory layout.

mod gdsf;
mod lists;
mod lru;
mod s3_fifo;
mod sieve;
mod sketch;
mod w_tiny_lfu;

use std::sync::atomic::Ordering;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::replay::is_kept;
use super::trace::{Action, Request};
use super::{Counts, Workload};
use generator::Progress;

/// A policy that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The item that was used longest ago goes.
    Lru,
    /// A small queue of newcomers, a main queue and a list of ghosts (Yang et al., SOSP 2023).
    S3Fifo,
    /// One queue, and a hand that passes over what was used (Zhang et al., NSDI 2024).
    Sieve,
    /// A small LRU in front of a segmented one, which admits by frequency (Einziger et al., 2017).
    WTinyLfu,
    /// The greatest frequency for its size stays (Cherkasova, 1998).
    Gdsf,
}

impl Policy {
    /// Its usual name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "LRU",
            Self::S3Fifo => "S3-FIFO",
            Self::Sieve => "SIEVE",
            Self::WTinyLfu => "W-TinyLFU",
            Self::Gdsf => "GDSF",
        }
    }

    fn cache(self, capacity: u64) -> Box<dyn Cache> {
        match self {
            Self::Lru => Box::new(lru::Lru::new(capacity)),
            Self::S3Fifo => Box::new(s3_fifo::S3Fifo::new(capacity)),
            Self::Sieve => Box::new(sieve::Sieve::new(capacity)),
            Self::WTinyLfu => Box::new(w_tiny_lfu::WTinyLfu::new(capacity)),
            Self::Gdsf => Box::new(gdsf::Gdsf::new(capacity)),
        }
    }
}

/// A cache of a number of bytes.
trait Cache {
    /// True if the key is present, which counts as a use.
    fn get(&mut self, id: u64) -> bool;

    /// Stores an item of at most the cache's bytes, replacing the key's last one.
    fn put(&mut self, id: u64, bytes: u32);

    /// Removes the key.
    fn remove(&mut self, id: u64);

    /// Bytes of all items.
    #[cfg(test)]
    fn used(&self) -> u64;
}

/// The counts of each policy at each capacity in bytes, from one reading of the workload. Each item
/// takes `overhead` bytes in addition to key and value.
///
/// # Errors
///
/// When the trace cannot be read to its end, or the user interrupted.
pub fn simulate(
    policies: &[Policy],
    capacities: &[u64],
    overhead: u32,
    workload: &Workload,
    progress: &Progress,
) -> Result<Vec<Vec<Counts>>> {
    let simulations = |policy: &Policy| {
        capacities.iter().map(|capacity| Simulation::new(*policy, *capacity)).collect()
    };
    let mut all: Vec<Vec<Simulation>> = policies.iter().map(simulations).collect();
    for (at, request) in (0u64..).zip(workload.requests()?) {
        let request = request?;
        let counts = at >= workload.warm_up;
        for one in all.iter_mut().flatten() {
            one.meet(&request, overhead, counts);
        }
        // Relaxed: it is for display, and a stop that is seen late costs a moment.
        progress.answered.store(at + 1, Ordering::Relaxed);
        ensure!(!progress.stop.load(Ordering::Relaxed), "interrupted");
    }
    let counts = |one: Vec<Simulation>| one.into_iter().map(|one| one.counts).collect();
    Ok(all.into_iter().map(counts).collect())
}

/// A cache and its counts.
struct Simulation {
    cache: Box<dyn Cache>,
    capacity: u64,
    counts: Counts,
}

impl Simulation {
    fn new(policy: Policy, capacity: u64) -> Self {
        Self { cache: policy.cache(capacity), capacity, counts: Counts::default() }
    }

    /// Look-aside: stores an item that a get does not find.
    fn meet(&mut self, request: &Request, overhead: u32, counts: bool) {
        let is_hit = request.action == Action::Get && self.cache.get(request.id);
        if counts && request.action == Action::Get {
            self.counts.gets += 1;
            self.counts.hits += u64::from(is_hit);
        }
        if is_hit {
            return;
        }
        let bytes =
            u64::from(request.value_bytes) + u64::from(request.key_bytes) + u64::from(overhead);
        let fits = is_kept(request) && bytes <= self.capacity;
        match u32::try_from(bytes) {
            Ok(bytes) if fits && request.action != Action::Delete => {
                self.cache.put(request.id, bytes);
            }
            _ => self.cache.remove(request.id),
        }
    }
}

#[cfg(test)]
mod tests;
