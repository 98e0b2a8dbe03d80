//! Sizes of items, and the memory that one takes in *this* build: a small store is filled twice and
//! its items are counted. That figure includes chunk sizes, headers, index and bags, which this
//! crate need not know.

use std::path::Path;

use serde::Serialize;
use store::{Change, Cleaner, Config, NewItem, Policy, Store, StoreError};

use crate::input::{Data, InputError, curve_file};

/// Maximum memory of the filled store: in larger ones items take hardly less.
pub(crate) const SAMPLE_BYTES: u64 = 64 << 20;

/// Minimum memory of the filled store.
const SAMPLE_BYTES_MIN: u64 = 2 << 20;

/// The smallest item has 32 bytes, so the store is full before this.
const SAMPLE_ITEMS_MAX: u32 = 4_000_000;

/// Items that a step of the cleaner examines.
const CLEANER_BUDGET: usize = 1000;

/// The largest value that is sampled unchanged; a larger one takes proportionally more.
const SAMPLE_VALUE_MAX: f64 = 1_000_000.0;

/// Sizes of keys and values with their weights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Sizes {
    /// Key bytes, value bytes, weight.
    pub(crate) kinds: Vec<[f64; 3]>,
}

impl Sizes {
    /// The sizes that the file names; `path` is the file of sizing.
    ///
    /// # Errors
    ///
    /// If they are missing, out of range, or cannot be read.
    pub(crate) fn of(data: &Data, path: &Path) -> Result<Self, InputError> {
        let wrong = |why: String| InputError::new(path, why);
        let kinds = match (&data.sizes, &data.stats_sizes) {
            (Some(kinds), None) => kinds.clone(),
            (None, Some(file)) => from_stats(data, &path.with_file_name(file)).map_err(wrong)?,
            (None, None) => {
                return Err(wrong(
                    "data.sizes is missing: [[key bytes, value bytes, weight], ..], or \
                     data.stats_sizes = a file with a server's answer to `stats sizes` or \
                     `stats slabs`"
                        .to_owned(),
                ));
            }
            (Some(_), Some(_)) => {
                return Err(wrong("data.sizes and data.stats_sizes: give one".to_owned()));
            }
        };
        let good = |[key, value, weight]: &[f64; 3]| {
            (1.0..=250.0).contains(key) && (0.0..=1e9).contains(value) && *weight > 0.0
        };
        if kinds.is_empty() || !kinds.iter().all(good) {
            return Err(wrong(
                "data.sizes: keys of 1 to 250 bytes, values of at most 1e9, weights over 0"
                    .to_owned(),
            ));
        }
        Ok(Self { kinds })
    }

    fn mean(&self, value: impl Fn(&[f64; 3]) -> f64) -> f64 {
        let weight: f64 = self.kinds.iter().map(|kind| kind[2]).sum();
        self.kinds.iter().map(|kind| kind[2] * value(kind)).sum::<f64>() / weight
    }

    /// Mean bytes of a key.
    #[must_use]
    pub(crate) fn key_bytes(&self) -> f64 {
        self.mean(|kind| kind[0])
    }

    /// Mean bytes of a value.
    #[must_use]
    pub(crate) fn value_bytes(&self) -> f64 {
        self.mean(|kind| kind[1])
    }

    /// Mean bytes of an item as it is stored: header, key and value.
    #[must_use]
    pub(crate) fn stored_bytes(&self) -> f64 {
        store::item_bytes(0, 0, 0) as f64 + self.key_bytes() + self.value_bytes()
    }

    /// Mean bytes of memory for an item of these sizes, with its part of index and bags, in a store
    /// with this much memory. One of a few hundred pages wastes much of them: each chunk size has
    /// half a page free on average.
    ///
    /// # Errors
    ///
    /// Those of the store, which are out of memory here.
    pub(crate) fn item_bytes(&self, memory_bytes: u64) -> Result<f64, StoreError> {
        // A smaller item takes the smallest chunk, too, which the sampled store would not have.
        let chunk_least = Config { memory_bytes, ..Config::default() }.chunk_bytes_least();
        let least = chunk_least.saturating_sub(store::item_bytes(0, 0, 0) as u64) as f64;
        let memory_bytes = memory_bytes.clamp(SAMPLE_BYTES_MIN, SAMPLE_BYTES);
        let config = Config { memory_bytes, policy: Policy::Bag, ..Config::default() };
        let store = Store::new(config)?;
        let (Some(me), Some(mut cleaner)) = (store.join(), Cleaner::new(&store)) else {
            return Err(StoreError::Config("no thread may join the store"));
        };
        let mut chance = fastrand::Rng::with_seed(1);
        let weight: f64 = self.kinds.iter().map(|kind| kind[2]).sum();
        let value = vec![0_u8; length(SAMPLE_VALUE_MAX)];
        let (mut scale, mut stored) = (0.0, 0.0);
        // Items, and times that they were counted, since the store was full.
        let (mut items, mut counts) = (0.0, 0.0);
        // A small store is filled more often, since fewer items fit.
        let laps = u32::try_from(SAMPLE_BYTES / memory_bytes).unwrap_or(1) + 1;
        let (mut full, mut end) = (SAMPLE_ITEMS_MAX, SAMPLE_ITEMS_MAX);
        for number in 0..SAMPLE_ITEMS_MAX {
            let mut at = chance.f64() * weight;
            let kind = self.kinds.iter().find(|kind| {
                at -= kind[2];
                at < 0.0
            });
            let Some([key_len, value_len, _]) = kind.or_else(|| self.kinds.last()) else { break };
            let sampled = value_len.min(SAMPLE_VALUE_MAX);
            let filled = sampled.max(least - key_len);
            put(&me, &key_of(number, length(*key_len)), &value[..length(filled)]);
            stored += 1.0;
            scale += (key_len + value_len) / (key_len + sampled);
            if !number.is_multiple_of(self.pause()) {
                continue;
            }
            // It fits chunk sizes to the items, and moves pages to those classes.
            me.rest();
            let _ = cleaner.step(1, CLEANER_BUDGET);
            let stats = store.stats();
            if end == SAMPLE_ITEMS_MAX && stats.evictions > 0 {
                (full, end) = (2 * number, number.saturating_mul(laps));
            }
            if number >= full {
                items += stats.items as f64;
                counts += 1.0;
            }
            if number >= end {
                break;
            }
        }
        if counts == 0.0 {
            (items, counts) = (store.stats().items as f64, 1.0);
        }
        Ok(memory_bytes as f64 / (items / counts) * (scale / stored))
    }

    /// Stores between two steps of the cleaner, which walks over all classes.
    fn pause(&self) -> u32 {
        match self.key_bytes() + self.value_bytes() {
            ..2e3 => 256,
            ..2e4 => 16,
            _ => 1,
        }
    }
}

/// Stores an item; a full store evicts.
fn put(me: &store::Handle, key: &[u8], value: &[u8]) {
    me.begin_turn(1);
    let new = NewItem {
        key,
        flags: 0,
        deadline: 0,
        value_len: value.len(),
        base64_key: false,
        has_cas: false,
    };
    if let Ok(mut draft) = me.draft(new)
        && draft.push(value).is_ok()
    {
        me.section().update(me.store().hash(key), key, |_| Change::Put { draft, cas: None });
    }
    me.quiesce();
}

/// A key of `len` bytes, or of its number's four.
fn key_of(number: u32, len: usize) -> Vec<u8> {
    let mut key = number.to_le_bytes().to_vec();
    key.resize(len.max(key.len()), b'k');
    key
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length between 0 and a megabyte"
)]
fn length(bytes: f64) -> usize {
    bytes.round() as usize
}

/// Keys and values from a server's histogram of items.
fn from_stats(data: &Data, file: &Path) -> Result<Vec<[f64; 3]>, String> {
    let at = |why: String| format!("{}: {why}", file.display());
    let key = data.key_bytes.ok_or("data.key_bytes is missing: bytes of a key, on average")?;
    let header = data.header_bytes.unwrap_or_else(|| store::item_bytes(0, 0, 0) as f64);
    let text = std::fs::read_to_string(file).map_err(|error| at(error.to_string()))?;
    let sizes = curve_file::item_sizes(&text).map_err(at)?;
    Ok(sizes
        .into_iter()
        .map(|(bytes, items)| [key, (bytes - header - key).max(0.0), items])
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(kinds: &[[f64; 3]]) -> Sizes {
        Sizes { kinds: kinds.to_vec() }
    }

    fn bytes(kinds: &[[f64; 3]]) -> f64 {
        sizes(kinds).item_bytes(SAMPLE_BYTES).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_overhead_of_an_item_is_bounded() {
        for (key, value) in [(32.0, 64.0), (32.0, 256.0), (32.0, 1024.0), (20.0, 40_000.0)] {
            let taken = bytes(&[[key, value, 1.0]]);
            let payload = key + value;
            assert!(taken > payload + 16.0, "{value}: {taken}");
            assert!(taken < payload * 1.15 + 48.0, "{value}: {taken}");
        }
    }

    #[test]
    fn small_items_of_a_very_large_server_use_the_smallest_chunk() {
        let small = sizes(&[[20.0, 60.0, 1.0]]);
        let taken = |gigabytes: u64| small.item_bytes(gigabytes << 30).unwrap_or(0.0);
        assert!((taken(64) - taken(1)).abs() < 1.0, "{} {}", taken(64), taken(1));
        assert!((130.0..160.0).contains(&taken(256)), "{}", taken(256));
    }

    #[test]
    fn a_mixture_uses_the_mean_size_of_its_kinds() {
        let mixed = bytes(&[[32.0, 64.0, 3.0], [32.0, 1024.0, 1.0]]);
        let mean = 0.75 * bytes(&[[32.0, 64.0, 1.0]]) + 0.25 * bytes(&[[32.0, 1024.0, 1.0]]);
        assert!((mixed / mean - 1.0).abs() < 0.03, "{mixed} {mean}");
    }

    #[test]
    fn values_larger_than_the_sample_scale_proportionally() {
        let (one, ten) = (bytes(&[[32.0, 1e6, 1.0]]), bytes(&[[32.0, 1e7, 1.0]]));
        assert!((ten / one - 10.0).abs() < 0.01, "{one} {ten}");
    }
}
