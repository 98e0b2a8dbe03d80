//! The working set: bytes and items used in the last hour, day and week, estimated from all
//! operations on a sample of keys.
//!
//! For each sampled key, the minimum, mean and maximum size of its item and the second of its last
//! use are kept. The amount used in a window is the sum over the keys used in it, divided by the
//! sample's share of all keys. The windows end now, so one record for each key serves all of them.
//!
//! # How large the sample is
//!
//! Each window has its own threshold, below which lie about [`WorkingSet::new`]'s number of keys
//! used in it; the longer the window, the lower the threshold. A key is kept while any window needs
//! it. With *n* keys the error is about `sqrt((1 + v) / n)`, where *v* is the squared coefficient
//! of variation of the sizes.
//!
//! Source: *Scaling Memcache at Facebook*, section 3.2.2 and figure 5, which samples one in a
//! million keys; the threshold that adapts is ours.

use crate::prefixes::{PrefixId, Prefixes};
use crate::rate;
use crate::table::Table;
use narrow::to_u16;

/// A period up to now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// The last hour.
    Hour,
    /// The last 24 hours.
    Day,
    /// The last seven days.
    Week,
}

/// Each window with its name and its seconds.
pub const WINDOWS: [(Window, &str, u32); 3] = [
    (Window::Hour, "hour", 3600),
    (Window::Day, "day", 24 * 3600),
    (Window::Week, "week", 7 * 24 * 3600),
];

/// An estimate of the used keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Items.
    pub items: f64,
    /// Their bytes, each at its minimum size.
    pub bytes_min: f64,
    /// Their bytes at the mean of the observed sizes.
    pub bytes_mean: f64,
    /// Their bytes at the maximum.
    pub bytes_max: f64,
    /// Sampled keys behind this estimate.
    pub sampled: u64,
}

/// The sample.
#[derive(Debug)]
pub struct WorkingSet {
    keys: Table<Used>,
    wanted: usize,
    thresholds: [u64; WINDOWS.len()],
    prefixes: Prefixes,
}

/// The facts kept of a key.
#[derive(Clone, Copy, Debug)]
struct Used {
    at_secs: u32,
    bytes_min: u32,
    bytes_max: u32,
    bytes_mean: f32,
    /// Observed sizes; it stops at its maximum, from where the mean moves slowly.
    count: u16,
    prefix: PrefixId,
}

impl WorkingSet {
    /// A sample of about `wanted` keys for each window, at most 16,384.
    ///
    /// # Panics
    ///
    /// When they are more.
    #[must_use]
    pub fn new(wanted: usize) -> Self {
        let (keys, thresholds) = (Table::new(keys_max(wanted)), [u64::MAX; WINDOWS.len()]);
        Self { keys, wanted, thresholds, prefixes: Prefixes::default() }
    }

    /// Maximum memory, in bytes.
    #[must_use]
    pub fn bytes_max(wanted: usize) -> usize {
        Table::<Used>::bytes(keys_max(wanted)) + Prefixes::BYTES
    }

    /// The number of a key prefix.
    pub fn prefix(&mut self, name: &[u8]) -> PrefixId {
        self.prefixes.number(name)
    }

    /// Notes that a key was used, whose item has `bytes` bytes.
    pub fn used(&mut self, hash: u64, bytes: u32, prefix: PrefixId, now_secs: u32) {
        if hash >= self.threshold() {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "sizes to seven digits")]
        let size = bytes as f32;
        let new = Used {
            at_secs: now_secs,
            bytes_min: bytes,
            bytes_max: bytes,
            bytes_mean: 0.0,
            count: 0,
            prefix,
        };
        let used = self.keys.get_or_insert(hash, new);
        used.at_secs = now_secs;
        used.prefix = prefix;
        used.bytes_min = used.bytes_min.min(bytes);
        used.bytes_max = used.bytes_max.max(bytes);
        used.count = used.count.saturating_add(1);
        used.bytes_mean += (size - used.bytes_mean) / f32::from(used.count);
        if self.keys.is_full() {
            self.trim(now_secs);
        }
    }

    /// Notes a use of a key without an item: if it had one before, it stays in the working set.
    pub fn used_without_item(&mut self, hash: u64, now_secs: u32) {
        if let Some(used) = self.keys.get_mut(hash) {
            used.at_secs = now_secs;
        }
    }

    /// Keys in the sample.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// No window needs keys above it.
    #[must_use]
    pub fn threshold(&self) -> u64 {
        self.thresholds.into_iter().max().unwrap_or(0)
    }

    /// Notes that the sample was made smaller: keys above `threshold` are no longer reported.
    pub fn lower(&mut self, threshold: u64) {
        if threshold < self.threshold() {
            self.thresholds.iter_mut().for_each(|own| *own = (*own).min(threshold));
            self.keys.retain(|(hash, _)| *hash < threshold);
        }
    }

    /// Keys used in a window that ends now.
    #[must_use]
    pub fn estimate(&self, window: Window, now_secs: u32) -> Estimate {
        let mut sum = Estimate::default();
        self.each(window, now_secs, |used, weight| sum.add(used, weight));
        sum
    }

    /// Keys used of each prefix in a window that ends now, the largest first; prefixes without any
    /// are left out. Keys of other prefixes are listed under an empty name.
    #[must_use]
    pub fn by_prefix(&self, window: Window, now_secs: u32) -> Vec<(&[u8], Estimate)> {
        let mut sums: Vec<(PrefixId, Estimate)> = Vec::new();
        self.each(window, now_secs, |used, weight| {
            let index = usize::from(used.prefix);
            while sums.len() <= index {
                // No more than `index`, which is a `PrefixId`.
                sums.push((to_u16(sums.len()), Estimate::default()));
            }
            sums[index].1.add(used, weight);
        });
        sums.retain(|(_, estimate)| estimate.sampled > 0);
        sums.sort_by(|(_, one), (_, other)| other.bytes_mean.total_cmp(&one.bytes_mean));
        sums.into_iter().map(|(prefix, sum)| (self.prefixes.name(prefix), sum)).collect()
    }

    /// The share of all keys that a window's estimate is computed from.
    #[must_use]
    pub fn rate(&self, window: Window) -> f64 {
        rate(self.thresholds[window as usize])
    }

    fn each(&self, window: Window, now_secs: u32, mut visit: impl FnMut(&Used, f64)) {
        let (threshold, weight) = (self.thresholds[window as usize], 1.0 / self.rate(window));
        let first_secs = now_secs.saturating_sub(WINDOWS[window as usize].2);
        for (hash, used) in self.keys.iter() {
            if *hash < threshold && used.at_secs >= first_secs {
                visit(used, weight);
            }
        }
    }

    /// Lowers each window's threshold until it has at most the wanted number of keys, and drops the
    /// keys that no window needs.
    fn trim(&mut self, now_secs: u32) {
        let mut hashes = Vec::with_capacity(self.keys.len());
        for (threshold, (_, _, secs)) in self.thresholds.iter_mut().zip(WINDOWS) {
            let first_secs = now_secs.saturating_sub(secs);
            let in_window = |(hash, used): &(u64, Used)| {
                (*hash < *threshold && used.at_secs >= first_secs).then_some(*hash)
            };
            hashes.clear();
            hashes.extend(self.keys.iter().filter_map(in_window));
            if hashes.len() > self.wanted {
                *threshold = *hashes.select_nth_unstable(self.wanted).1;
            }
        }
        let thresholds = self.thresholds;
        self.keys.retain(|(hash, used)| {
            WINDOWS.iter().zip(thresholds).any(|((_, _, secs), threshold)| {
                *hash < threshold && used.at_secs >= now_secs.saturating_sub(*secs)
            })
        });
        let mut is_used = vec![false; usize::from(PrefixId::MAX) + 1];
        self.keys.iter().for_each(|(_, used)| is_used[usize::from(used.prefix)] = true);
        self.prefixes.keep(|number| is_used[usize::from(number)]);
    }
}

impl Estimate {
    fn add(&mut self, used: &Used, weight: f64) {
        self.items += weight;
        self.bytes_min += weight * f64::from(used.bytes_min);
        self.bytes_mean += weight * f64::from(used.bytes_mean);
        self.bytes_max += weight * f64::from(used.bytes_max);
        self.sampled += 1;
    }
}

/// Maximum number of keys kept: those of three windows, and half as many as one has before it is
/// worth trimming.
fn keys_max(wanted: usize) -> usize {
    wanted.next_power_of_two() * 7 / 2
}
