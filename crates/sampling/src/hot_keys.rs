//! Hot keys: the few keys that take a large part of all requests, found with bounded memory.
//!
//! Counts are kept for a fixed number of keys. A key without one takes over the least count, and
//! remembers it as its possible error (Space-Saving): a key with more than one part in [`COUNTERS`]
//! of the requests is never missed.
//!
//! Two views: the last one to two seconds, so that a newly hot key shows at once, and the last
//! minutes, in which old counts fade.
//!
//! Source: Metwally, Agrawal, El Abbadi, *Efficient Computation of Frequent and Top-k Elements in
//! Data Streams* (ICDT '05).

use crate::HashTable;

/// Keys counted in each view.
pub(crate) const COUNTERS: usize = 128;

/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 250;

/// A view's second starts again after this long.
const SPAN_MS: u64 = 1000;

/// A key, and its share of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct HotKey {
    /// Its name.
    pub key: Box<[u8]>,
    /// Its share of all requests in the last one to two seconds, 0 to 1.
    pub share: f64,
    /// The share may be this much too high.
    pub share_error: f64,
    /// Requests per second in that time.
    pub per_second: f64,
    /// Its share in the last minutes; old requests fade, half of them in a minute.
    pub share_of_minutes: f64,
}

/// The estimator.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// The second under way, and the one before it.
    seconds: [Counts; 2],
    minutes: Counts,
    started_ms: u64,
    /// Milliseconds of the second before.
    before_ms: u64,
}

#[derive(Debug, Default)]
struct Counts {
    places: HashTable<usize>,
    counters: Vec<Counter>,
    total: f64,
}

#[derive(Debug)]
struct Counter {
    hash: u64,
    key: Box<[u8]>,
    count: f64,
    error: f64,
    samples: u32,
}

impl HotKeys {
    /// Maximum memory, in bytes.
    pub const BYTES: usize = 3 * COUNTERS * (size_of::<Counter>() + KEY_BYTES_MAX + 40);

    /// A sampled request of `key`, which stands for `weight` of them.
    pub fn add(&mut self, hash: u64, key: &[u8], weight: f64) {
        self.seconds[0].add(hash, key, weight);
        self.minutes.add(hash, key, weight);
    }

    /// It is `now_ms` milliseconds since the server's start.
    pub fn turn(&mut self, now_ms: u64) {
        let since_ms = now_ms.saturating_sub(self.started_ms);
        if since_ms < SPAN_MS {
            return;
        }
        let [now, before] = &mut self.seconds;
        std::mem::swap(now, before);
        now.clear();
        self.before_ms = since_ms;
        self.started_ms = now_ms;
        self.minutes.fade(secs_of(since_ms));
    }

    /// At most `count` keys that were sampled more than twice, the hottest first, and the
    /// milliseconds that they cover.
    #[must_use]
    pub fn top(&self, count: usize, now_ms: u64) -> (Vec<HotKey>, u64) {
        let interval_ms = (now_ms.saturating_sub(self.started_ms) + self.before_ms).max(1);
        let total: f64 = self.seconds.iter().map(|counts| counts.total).sum();
        let mut merged: Vec<HotKey> = Vec::new();
        for (index, counts) in self.seconds.iter().enumerate() {
            let other = &self.seconds[1 - index];
            for counter in &counts.counters {
                let also = other.get(counter.hash);
                // A key of both seconds is taken from the first.
                if index == 1 && also.is_some() {
                    continue;
                }
                let sum = |of: fn(&Counter) -> f64| of(counter) + also.map_or(0.0, of);
                if sum(|counter| f64::from(counter.samples)) < 3.0 {
                    continue;
                }
                let (count, error) = (sum(|counter| counter.count), sum(|counter| counter.error));
                let minutes = self.minutes.get(counter.hash).map_or(0.0, |counter| counter.count);
                merged.push(HotKey {
                    key: counter.key.clone(),
                    share: count / total,
                    share_error: error / total,
                    per_second: count / secs_of(interval_ms),
                    share_of_minutes: minutes / self.minutes.total.max(1.0),
                });
            }
        }
        let sure = |key: &HotKey| key.share - key.share_error;
        merged.sort_by(|one, other| sure(other).total_cmp(&sure(one)));
        merged.truncate(count);
        (merged, interval_ms)
    }

    /// Sampled requests, times their weights, in the last one to two seconds.
    #[must_use]
    pub fn requests(&self) -> f64 {
        self.seconds.iter().map(|counts| counts.total).sum()
    }
}

impl Counts {
    fn add(&mut self, hash: u64, key: &[u8], weight: f64) {
        self.total += weight;
        if let Some(counter) =
            self.places.get(&hash).and_then(|place| self.counters.get_mut(*place))
        {
            counter.count += weight;
            counter.samples += 1;
            return;
        }
        let new = |error: f64| Counter {
            hash,
            key: key.into(),
            count: error + weight,
            error,
            samples: 1,
        };
        if self.counters.len() < COUNTERS {
            self.places.insert(hash, self.counters.len());
            self.counters.push(new(0.0));
            return;
        }
        let least = self.counters.iter_mut().enumerate();
        let least = least.min_by(|(_, one), (_, other)| one.count.total_cmp(&other.count));
        if let Some((place, counter)) = least {
            self.places.remove(&counter.hash);
            *counter = new(counter.count);
            self.places.insert(hash, place);
        }
    }

    fn get(&self, hash: u64) -> Option<&Counter> {
        self.places.get(&hash).and_then(|place| self.counters.get(*place))
    }

    fn clear(&mut self) {
        self.places.clear();
        self.counters.clear();
        self.total = 0.0;
    }

    fn fade(&mut self, secs: f64) {
        let factor = (-secs / HALF_LIFE_SECS).exp2();
        self.total *= factor;
        for counter in &mut self.counters {
            counter.count *= factor;
            counter.error *= factor;
        }
    }
}

const HALF_LIFE_SECS: f64 = 60.0;

#[expect(clippy::cast_precision_loss, reason = "53 bits of milliseconds are long enough")]
fn secs_of(ms: u64) -> f64 {
    ms as f64 / 1000.0
}
