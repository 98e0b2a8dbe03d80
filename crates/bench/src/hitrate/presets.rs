//! Loads of known kinds, by name: some reward recency, some frequency, some small items, some none
//! of these.
//!
//! Popularity is Zipf's. A value's size is a function of its key.

use std::collections::VecDeque;

use anyhow::Result;
use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use super::trace::{Action, KEY_BYTES, Request};
use generator::number::fits;
use generator::sizes::{KeySize, ValueSize, uniform_of};

/// The kind of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Zipf's keys, exponent 0.99, values of 300 bytes.
    Zipf,
    /// Two fifths of the requests are for keys that are asked for once.
    SeenOnce,
    /// Values of 20 bytes to 8 KB, small ones more often.
    Web,
    /// Key and value sizes of Facebook's ETC pool.
    Etc,
    /// Scans of keys that nobody asks for again.
    Scans,
    /// Each key's popularity falls while newer keys come.
    Drift,
    /// New keys all the time, and most requests for the newest.
    News,
    /// Round and round over more keys than fit.
    Loop,
    /// Half a loop, half Zipf's keys.
    LoopAndZipf,
    /// A third of the requests are for keys that are asked for four times soon and never again.
    Bursts,
    /// Four times all keys are others, of larger values.
    Growing,
    /// Values live for a second to a day, each key's for as long each time.
    Lifetimes,
}

/// A load of a known kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preset {
    /// Its kind.
    pub kind: Kind,
    /// About the number of keys in total, or of those requested at one time.
    pub keys: u64,
    /// Requests.
    pub requests: u64,
    /// Determines the order.
    pub seed: u64,
}

/// Returns the key of each request, by its number.
type NextKey = Box<dyn FnMut(u64, &mut SmallRng) -> u64>;

impl Preset {
    /// Its requests, from the first; the same each time.
    ///
    /// # Errors
    ///
    /// When there are too few keys.
    pub fn requests(&self) -> Result<impl Iterator<Item = Request> + use<>> {
        let this = *self;
        let mut next = this.next_key()?;
        let mut rng = SmallRng::seed_from_u64(this.seed);
        Ok((0..this.requests).map(move |at| this.request(next(at, &mut rng))))
    }

    fn request(&self, id: u64) -> Request {
        let key_bytes = match self.kind {
            Kind::Etc => u16::try_from(KeySize::Etc.of(uniform_of(id))).unwrap_or(KEY_BYTES),
            _ => KEY_BYTES,
        };
        let value_bytes = match self.kind {
            Kind::Web => web_bytes(id),
            Kind::Etc => fits(ValueSize::Etc.of_key(id)),
            Kind::Growing => match id / self.keys {
                0 => 100,
                1 => 300,
                2 => 900,
                _ => 2700,
            },
            _ => 300,
        };
        let lifetime_secs = match self.kind {
            Kind::Lifetimes => lifetime_secs(id),
            _ => 0,
        };
        Request { id, key_bytes, value_bytes, lifetime_secs, action: Action::Get }
    }

    fn next_key(&self) -> Result<NextKey> {
        let (keys, requests) = (self.keys, self.requests);
        let zipf = move |exponent| ranks(keys, exponent);
        Ok(match self.kind {
            Kind::Zipf => only(zipf(0.99)?),
            Kind::Web | Kind::Lifetimes => only(zipf(0.9)?),
            Kind::Etc => only(zipf(0.95)?),
            Kind::SeenOnce => {
                let mut popular = zipf(0.9)?;
                let once = move |at| keys + 1 + at;
                Box::new(move |at, rng| if rng.random_bool(0.4) { once(at) } else { popular(rng) })
            }
            Kind::Scans => scans(keys, zipf(0.9)?),
            Kind::Drift => {
                let mut recent = zipf(0.9)?;
                Box::new(move |at, rng| at / 4 + keys - recent(rng))
            }
            Kind::News => Box::new(move |at, rng| {
                let age = 2000.0 * (rng.random::<f64>().powf(-1.2) - 1.0);
                (1000 + at / 4).saturating_sub(whole(age))
            }),
            Kind::Loop => Box::new(move |at, _| at % keys),
            Kind::LoopAndZipf => {
                let (mut popular, mut turns) = (zipf(0.9)?, 0);
                Box::new(move |_, rng| {
                    if rng.random_bool(0.5) {
                        return popular(rng);
                    }
                    turns += 1;
                    keys + 1 + turns % (keys * 3 / 20).max(1)
                })
            }
            Kind::Bursts => bursts(keys, zipf(0.9)?),
            Kind::Growing => {
                let mut popular = zipf(0.9)?;
                Box::new(move |at, rng| at * 4 / requests * keys + popular(rng) - 1)
            }
        })
    }

    /// A short description.
    #[must_use]
    pub fn describe(&self) -> String {
        let kind = self.kind.to_possible_value();
        let kind = kind.as_ref().map_or("", |kind| kind.get_name());
        format!("{} requests of the load '{kind}' of {} keys", self.requests, self.keys)
    }
}

fn ranks(keys: u64, exponent: f64) -> Result<impl FnMut(&mut SmallRng) -> u64> {
    let ranks = Zipf::new(float(keys), exponent)?;
    Ok(move |rng: &mut SmallRng| whole(ranks.sample(rng)))
}

fn only(mut keys: impl FnMut(&mut SmallRng) -> u64 + 'static) -> NextKey {
    Box::new(move |_, rng| keys(rng))
}

/// After each tenth of the keys, half as many that are not requested again.
fn scans(keys: u64, mut popular: impl FnMut(&mut SmallRng) -> u64 + 'static) -> NextKey {
    let (every, length) = ((keys / 10).max(1), keys / 20);
    Box::new(
        move |at, rng| {
            if at % (every + length) < every { popular(rng) } else { keys + 1 + at }
        },
    )
}

/// Requests in a burst are a thousandth of the keys apart.
fn bursts(keys: u64, mut popular: impl FnMut(&mut SmallRng) -> u64 + 'static) -> NextKey {
    // The time of a key's next request, and the number of further ones.
    let mut due = VecDeque::<(u64, u64, u32)>::new();
    let (apart, mut fresh) = ((keys / 1000).max(1), keys);
    Box::new(move |at, rng| {
        if let Some((_, key, left)) = due.pop_front_if(|(when, ..)| *when <= at) {
            if left > 0 {
                due.push_back((at + apart, key, left - 1));
            }
            return key;
        }
        if rng.random_bool(0.12) {
            fresh += 1;
            due.push_back((at + apart, fresh, 2));
            return fresh;
        }
        popular(rng)
    })
}

fn web_bytes(key: u64) -> u32 {
    let at = uniform_of(key).powi(2);
    fits(whole(20.0 * (8192f64 / 20.0).powf(at)))
}

/// From a second to a day, log-uniformly.
fn lifetime_secs(key: u64) -> u32 {
    // This draw is independent of that of sizes.
    fits(whole(86_400f64.powf(uniform_of(!key))).max(1))
}

#[allow(clippy::cast_precision_loss, reason = "numbers of keys are below 2^53")]
fn float(number: u64) -> f64 {
    number as f64
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and cut at the greatest"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn ids(kind: Kind, keys: u64, requests: u64) -> Vec<u64> {
        let preset = Preset { kind, keys, requests, seed: 1 };
        preset.requests().unwrap().map(|request| request.id).collect()
    }

    fn counts(ids: &[u64]) -> HashMap<u64, u64> {
        ids.iter().fold(HashMap::new(), |mut counts, id| {
            *counts.entry(*id).or_default() += 1;
            counts
        })
    }

    #[test]
    fn each_kind_generates_its_pattern() {
        for kind in Kind::value_variants() {
            assert_eq!(ids(*kind, 1000, 5000), ids(*kind, 1000, 5000), "{kind:?}");
        }
        let once = counts(&ids(Kind::SeenOnce, 1000, 50_000));
        let others = once.iter().filter(|(id, _)| **id > 1000);
        assert!(others.clone().all(|(_, count)| *count == 1));
        assert!((19_000..21_000).contains(&others.count()));
        let bursts = counts(&ids(Kind::Bursts, 1000, 50_000));
        let whole = bursts.iter().filter(|(id, count)| **id > 1000 && **count == 4).count();
        assert!((3000..6000).contains(&whole), "{whole} whole bursts");
        assert_eq!(ids(Kind::Loop, 10, 12), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        let growing = ids(Kind::Growing, 1000, 4000);
        assert!(growing[..1000].iter().all(|id| *id < 1000));
        assert!(growing[3000..].iter().all(|id| (3000..4000).contains(id)));
    }

    #[test]
    fn lifetimes_range_from_a_second_to_a_day() {
        let preset = Preset { kind: Kind::Lifetimes, keys: 50_000, requests: 50_000, seed: 1 };
        let requests: Vec<Request> = preset.requests().unwrap().collect();
        let of: HashMap<u64, u32> =
            requests.iter().map(|one| (one.id, one.lifetime_secs)).collect();
        assert!(
            requests.iter().all(|one| of[&one.id] == one.lifetime_secs),
            "each key has its own"
        );
        assert!(of.values().all(|secs| (1..=86_400).contains(secs)));
        // The square root of a day's seconds.
        let short = of.values().filter(|secs| **secs < 294).count();
        assert!(short * 10 > of.len() * 4 && short * 10 < of.len() * 6, "{short} of {}", of.len());
    }

    #[test]
    fn web_values_range_from_20_bytes_to_8_kilobytes() {
        let sizes: Vec<u32> = (0..10_000).map(web_bytes).collect();
        assert!(sizes.iter().all(|bytes| (20..=8192).contains(bytes)));
        let small = sizes.iter().filter(|bytes| **bytes < 160).count();
        assert!((5000..6500).contains(&small), "{small} of 10,000 below 160 bytes");
    }
}
