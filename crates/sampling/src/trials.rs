//! Trials: the hits that other orders of eviction would have, simulated in miniature.
//!
//! Each candidate has a miniature cache, whose size is to the real one's as the sample is to all
//! keys. All see the same accesses: a read that a miniature misses is filled there, as by a
//! look-aside client. The candidate in use is compared with each other one by the reads on which
//! the two disagree. Another replaces it if it wins clearly more of these than chance explains
//! (McNemar's test).
//!
//! # A miniature
//!
//! Newcomers wait in a queue until they are the next to be evicted. One that was read by then joins
//! the proven items, which are kept in the order of use. The next victim is the oldest item, where
//! newcomers count as older by the candidate's factor, and large items as older by their size. A
//! newcomer that is evicted leaves a ghost, and joins the proven items if it comes back. The
//! server's store does the same, except for the coarseness of its bags and the bounds of its slab
//! classes.
//!
//! Source: the miniature simulations of Waldspurger and others, "Cache Modeling and Optimization
//! using Miniature Simulations" (ATC '17).

mod miniature;

use crate::log::{Access, Kind};
use crate::rate;
use miniature::Miniature;

/// An order of eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The factor by which items that were never read count as older.
    pub newcomer_factor: u32,
    /// Large items count as older.
    pub weighs_size: bool,
}

/// The tried orders. The first is that of an LRU.
pub const CANDIDATES: [Candidate; 8] = [
    Candidate { newcomer_factor: 1, weighs_size: false },
    Candidate { newcomer_factor: 2, weighs_size: false },
    Candidate { newcomer_factor: 8, weighs_size: false },
    Candidate { newcomer_factor: 64, weighs_size: false },
    Candidate { newcomer_factor: 1, weighs_size: true },
    Candidate { newcomer_factor: 2, weighs_size: true },
    Candidate { newcomer_factor: 8, weighs_size: true },
    Candidate { newcomer_factor: 32, weighs_size: true },
];

/// Candidates that weigh sizes, and others, each by their factors in this order.
const FACTORS: usize = CANDIDATES.len() / 2;

/// Index of the initial candidate. If many items are requested once, it gains hits that take long
/// to prove. If it is wrong, trials soon show that.
const FIRST: usize = 2;

/// Reads of a sample before a candidate is judged.
const READS_MIN: f64 = 300.0;

/// Reads for each item of a miniature after which earlier results count half.
const READS_PER_ITEM: f64 = 8.0;

/// Standard deviations by which a candidate must be better.
const DEVIATIONS: f64 = 2.5;

/// Share of the reads by which it must be better, so that nearly equal ones do not alternate.
const GAIN_MIN: f64 = 0.001;

/// The factor by which an item of this many bytes counts as older, if items weigh their size: the
/// power of 1.5, as in the server's store.
pub(crate) fn weight_of(bytes: f64) -> f64 {
    bytes * bytes.sqrt()
}

/// The candidates' miniatures, and their hits.
#[derive(Debug)]
pub struct Trials {
    scores: Vec<Score>,
    chosen: usize,
    chosen_ms: u64,
    changes: u64,
    reads: f64,
    threshold: u64,
    memory_bytes: f64,
}

#[derive(Debug)]
struct Score {
    cache: Miniature,
    hits: f64,
    /// Reads that it hit and the chosen one missed, minus the reverse, since the choice.
    gain: f64,
    /// Reads on which the two disagreed.
    disagreements: f64,
}

impl Trials {
    /// Trials of all candidates, each with at most `nodes_max` keys and ghosts; of none with 0.
    #[must_use]
    pub fn new(nodes_max: usize, now_ms: u64) -> Self {
        let candidates = if nodes_max == 0 { &[][..] } else { &CANDIDATES };
        let score = |&candidate: &Candidate| Score {
            cache: Miniature::new(candidate, nodes_max),
            hits: 0.0,
            gain: 0.0,
            disagreements: 0.0,
        };
        Self {
            scores: candidates.iter().map(score).collect(),
            chosen: FIRST,
            chosen_ms: now_ms,
            changes: 0,
            reads: 0.0,
            threshold: u64::MAX,
            memory_bytes: 0.0,
        }
    }

    /// Memory, in bytes.
    #[must_use]
    pub fn bytes_max(nodes_max: usize) -> usize {
        let of_one = if nodes_max == 0 { 0 } else { Miniature::bytes_max(nodes_max) };
        of_one * CANDIDATES.len()
    }

    /// The best candidate so far.
    #[must_use]
    pub fn chosen(&self) -> Candidate {
        CANDIDATES[self.chosen]
    }

    /// Milliseconds since the server's start when it was chosen.
    #[must_use]
    pub fn chosen_ms(&self) -> u64 {
        self.chosen_ms
    }

    /// Times that another candidate was chosen.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Reads that the hit ratios stand for.
    #[must_use]
    pub fn reads(&self) -> f64 {
        self.reads
    }

    /// Each candidate and its hit ratio; none without reads.
    pub fn hit_ratios(&self) -> impl Iterator<Item = (Candidate, f64)> {
        let ratio = |(candidate, score): (&Candidate, &Score)| {
            (self.reads > 0.0).then(|| (*candidate, score.hits / self.reads))
        };
        CANDIDATES.iter().zip(&self.scores).filter_map(ratio)
    }

    /// Notes that keys above `threshold` are no longer reported.
    pub fn lower(&mut self, threshold: u64) {
        if threshold < self.threshold {
            self.threshold = threshold;
            self.scores.iter_mut().for_each(|score| score.cache.keep_below(threshold));
            self.size();
        }
    }

    /// Forgets the items that this flush of everything covers.
    pub(crate) fn flushed(&mut self, flush: u32) {
        self.scores.iter_mut().for_each(|score| score.cache.flushed(flush));
    }

    /// Sets the bytes of items that fit into the present memory.
    pub fn set_memory(&mut self, bytes: f64) {
        self.memory_bytes = bytes;
        self.size();
    }

    fn size(&mut self) {
        let bytes = self.memory_bytes * rate(self.threshold);
        self.scores.iter_mut().for_each(|score| score.cache.set_bytes(bytes));
    }

    /// Takes an operation on a sampled key, in the order of time.
    pub fn access(&mut self, access: &Access, now_secs: u32) {
        if access.hash >= self.threshold {
            return;
        }
        match access.kind {
            Kind::Hit | Kind::Miss => self.read(access, now_secs),
            Kind::Stored => self.scores.iter_mut().for_each(|score| score.cache.store(access)),
            Kind::Touched => {
                self.scores.iter_mut().for_each(|score| _ = score.cache.read(access, now_secs));
            }
            Kind::Removed => {
                self.scores.iter_mut().for_each(|score| score.cache.remove(access.hash));
            }
        }
        if self.scores.iter().any(|score| score.cache.is_crowded()) {
            self.lower(self.threshold / 4 * 3);
        }
    }

    fn read(&mut self, access: &Access, now_secs: u32) {
        let repeats = f64::from(access.repeats);
        self.reads += 1.0 + repeats;
        let mut hits = [false; CANDIDATES.len()];
        for (score, hit) in self.scores.iter_mut().zip(&mut hits) {
            *hit = score.cache.read(access, now_secs);
            score.hits += f64::from(u8::from(*hit)) + repeats;
        }
        let chosen = hits[self.chosen];
        for (score, hit) in self.scores.iter_mut().zip(hits) {
            if hit != chosen {
                score.disagreements += 1.0;
                score.gain += if hit { 1.0 } else { -1.0 };
            }
        }
    }

    /// Chooses again, if another candidate is clearly better, and gives old results less weight.
    pub fn judge(&mut self, now_ms: u64) {
        let gain = |score: &Score| {
            let by_chance = DEVIATIONS * score.disagreements.sqrt();
            let is_clear = score.gain > by_chance && score.gain > GAIN_MIN * self.reads;
            if is_clear { score.gain } else { 0.0 }
        };
        // Backwards, so that the plainest of equal ones is chosen.
        let best = (0..self.scores.len())
            .rev()
            .map(|at| (at, gain(&self.scores[at])))
            .max_by(|(_, one), (_, other)| one.total_cmp(other));
        if let Some((best, best_gain)) = best
            && best_gain > 0.0
            && self.reads >= READS_MIN
        {
            // Sizes show their worth before the factor does: it stays if sizes alone gain most.
            let alike = Self::weighed_alike(self.chosen, best);
            let gains_most = self.scores[alike].gain > best_gain / 2.0;
            self.chosen = if gains_most { alike } else { best };
            self.chosen_ms = now_ms;
            self.changes += 1;
            for score in &mut self.scores {
                (score.gain, score.disagreements) = (0.0, 0.0);
            }
        }
        let items = self.scores.get(self.chosen).map_or(0.0, |score| score.cache.items());
        if self.reads > 2.0 * (READS_PER_ITEM * items).max(READS_MIN) {
            self.scale(0.5);
        }
    }

    /// The candidate that weighs sizes as `best` does and has the factor of `chosen`, or nearly.
    fn weighed_alike(chosen: usize, best: usize) -> usize {
        chosen % FACTORS + best / FACTORS * FACTORS
    }

    fn scale(&mut self, factor: f64) {
        self.reads *= factor;
        for score in &mut self.scores {
            score.hits *= factor;
            score.gain *= factor;
            score.disagreements *= factor;
        }
    }
}
