//! Mixes: the sizes, loads and paces that a seed selects.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::ITEM;

/// Approximate number of items in a mix. The memory follows, within bounds.
const ITEMS: u64 = 40_000;

/// The kinds of items in a mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Hot = 1,
    Cold,
    /// Stored once, by the load.
    Fresh,
    /// Read by the load, and stored if missing.
    LookAside,
    /// Overwritten.
    Counter,
    /// Very small, so the index grows.
    Tiny,
}

/// The sizes of the values of one kind, each by the number of its key.
#[derive(Clone, Debug)]
pub(crate) enum Sizes {
    One(usize),
    Of(Vec<usize>),
    /// Any size, as many below a size as above its double.
    Between(usize, usize),
}

impl Sizes {
    /// Sizes as servers see them, of values up to `most` bytes.
    fn draw(random: &mut StdRng, most: usize) -> Self {
        let any = Self::Between(16, most);
        match random.random_range(0..4) {
            0 => Self::One(any.of(random.random())),
            1 => {
                Self::Of((0..random.random_range(2..10)).map(|_| any.of(random.random())).collect())
            }
            2 => {
                let low = any.of(random.random());
                Self::Between(low, (4 * low).min(most))
            }
            _ => any,
        }
    }

    fn mean(&self) -> u64 {
        (0..1000).map(|number| self.of(number) as u64).sum::<u64>() / 1000
    }

    /// The size of this number's value, in bytes.
    pub(crate) fn of(&self, number: u64) -> usize {
        // Scattered: neighbours have different sizes.
        let scattered = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
        let part = scattered as f64 / (1u64 << 53) as f64;
        match self {
            Self::One(size) => *size,
            Self::Of(sizes) => sizes[(part * sizes.len() as f64) as usize],
            Self::Between(low, high) => {
                (*low as f64 * (*high as f64 / *low as f64).powf(part)) as usize
            }
        }
    }
}

/// The parameters that a seed selects.
#[derive(Debug)]
pub(crate) struct Mix {
    pub(crate) seed: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) hot: Sizes,
    pub(crate) cold: Sizes,
    pub(crate) load: Sizes,
    /// Share of the memory that the hot items take.
    pub(crate) hot_share: f64,
    /// Share of the memory that is stored before the hot items.
    pub(crate) before: f64,
    /// Bags opened between the storing of the hot items and their reading.
    pub(crate) openings: u64,
    /// Share of the memory that the load evicts.
    pub(crate) load_share: f64,
    /// Kinds of requests of the load.
    pub(crate) requests: Vec<Family>,
    /// Share of the memory that connections take during the load.
    pub(crate) buffers: f64,
    pub(crate) requests_per_step: u64,
    pub(crate) requests_per_second: u64,
}

impl Mix {
    /// The mix of a seed.
    pub(crate) fn draw(seed: u64) -> Self {
        let random = &mut StdRng::seed_from_u64(seed);
        // Some mixes have chained values among them.
        let most = if random.random_ratio(1, 4) { 60_000 } else { 10_000 };
        let kinds = [Family::Fresh, Family::LookAside, Family::Counter, Family::Tiny];
        let requests = random.random_range(1..=kinds.len());
        let mut requests: Vec<_> = kinds.sample(random, requests).copied().collect();
        if requests == [Family::Counter] {
            // A load that only overwrites evicts nothing.
            requests.push(Family::Fresh);
        }
        let hot = Sizes::draw(random, most);
        // Neighbours in time often are of one kind.
        let cold = if random.random() { hot.clone() } else { Sizes::draw(random, most) };
        let load = match random.random_range(0..3) {
            0 => hot.clone(),
            1 => cold.clone(),
            _ => Sizes::draw(random, most),
        };
        let mean = [&hot, &cold, &load].map(Sizes::mean).iter().sum::<u64>() / 3;
        Self {
            seed,
            memory_bytes: (ITEMS * (mean + ITEM)).clamp(16 << 20, 64 << 20),
            hot,
            cold,
            load,
            hot_share: random.random_range(0.05..0.3),
            before: random.random_range(0.0..1.5),
            openings: [0, 100, 3_000, 40_000][random.random_range(0..4)],
            load_share: random.random_range(0.1..0.65),
            requests,
            buffers: [0.0, 0.05, 0.15][random.random_range(0..3)],
            requests_per_step: [64, 256, 1000][random.random_range(0..3)],
            requests_per_second: [10_000, 100_000][random.random_range(0..2)],
        }
    }
}
