//! The policy of eviction and its two parameters. All may change while the store is in use.
//!
//! * A newcomer counts as older than it is by a *factor*. So newcomers that are never read leave
//!   early, and items that were read once keep their lifetime. With a factor of 1 this is LRU.
//! * If enabled, items *weigh* their size: an item of twice the bytes counts as 2.8 times as old,
//!   the power of 1.5. An item costs its bytes for as long as it is not read, so a class of small
//!   items, of which a page holds many hits, gets more pages.
//!
//! Neither helps with every load: newcomers are worth more than others if popularity shifts. The
//! caller chooses by the load that it observes.
//!
//! Relaxed is enough: each number is used independently. A lock separates their writers.

use super::Part;
use arena::sync::{AtomicU32, Mutex, Ordering};

/// The order in which a store evicts items when it needs memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The bag LRU of Wiggins and Langston: a touch leaves a mark, and a pass moves marked items
    /// on.
    Bag,
    /// Bags that separate newcomers from items that were read or stored before, in the order that
    /// [`Store::set_eviction`](crate::Store::set_eviction) chooses.
    #[default]
    Auto,
    /// Strict LRU per slab class, for comparison: a touched item moves to the newest end at the end
    /// of its section, under its lock.
    Lru,
}

/// The order in which items are evicted, if newcomers are kept apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EvictionSetting {
    /// The factor by which newcomers count as older: 1 to 64.
    pub newcomer_factor: u32,
    /// Large items count as older than small ones.
    pub weighs_size: bool,
}

impl EvictionSetting {
    /// The order of an LRU.
    pub const LRU: Self = Self { newcomer_factor: 1, weighs_size: false };
    /// The order while the load is unknown: it costs hardly any load hits, and most loads gain by
    /// it.
    pub const FIRST: Self = Self { newcomer_factor: 2, weighs_size: false };
}

/// Bytes of an item whose age counts unchanged.
const BYTES_OF_ONE: u128 = 256;

/// The present order.
#[derive(Debug)]
pub(crate) struct Tuning {
    /// A [`Policy`].
    policy: AtomicU32,
    newcomer_factor: AtomicU32,
    weighs_size: AtomicU32,
    /// Held while numbers change: they must fit the policy.
    changing: Mutex<()>,
}

impl Tuning {
    pub(crate) fn new(policy: Policy) -> Self {
        let tuning = Self {
            policy: AtomicU32::new(0),
            newcomer_factor: AtomicU32::new(1),
            weighs_size: AtomicU32::new(0),
            changing: Mutex::new(()),
        };
        tuning.set_policy(policy);
        tuning
    }

    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        const BAG: u32 = Policy::Bag as u32;
        const LRU: u32 = Policy::Lru as u32;
        match self.policy.load(Ordering::Relaxed) {
            BAG => Policy::Bag,
            LRU => Policy::Lru,
            _ => Policy::Auto,
        }
    }

    /// Sets the policy and its initial order.
    pub(crate) fn set_policy(&self, policy: Policy) {
        let _changing = self.changing.lock();
        self.policy.store(policy as u32, Ordering::Relaxed);
        self.put(match policy {
            Policy::Auto => EvictionSetting::FIRST,
            Policy::Bag | Policy::Lru => EvictionSetting::LRU,
        });
    }

    pub(crate) fn get(&self) -> EvictionSetting {
        EvictionSetting {
            newcomer_factor: self.newcomer_factor.load(Ordering::Relaxed),
            weighs_size: self.weighs_size.load(Ordering::Relaxed) != 0,
        }
    }

    /// Sets the order, if the policy allows a choice.
    pub(crate) fn set(&self, setting: EvictionSetting) {
        let _changing = self.changing.lock();
        if self.policy() == Policy::Auto {
            self.put(setting);
        }
    }

    fn put(&self, setting: EvictionSetting) {
        let factor = setting.newcomer_factor.clamp(1, 64);
        self.newcomer_factor.store(factor, Ordering::Relaxed);
        self.weighs_size.store(u32::from(setting.weighs_size), Ordering::Relaxed);
    }

    /// The effective age of an item of this age in a queue.
    pub(crate) fn age_of(&self, part: Part, age: u64) -> u64 {
        match part {
            Part::Newcomers => {
                age.saturating_mul(self.newcomer_factor.load(Ordering::Relaxed).into())
            }
            Part::Proven => age,
        }
    }

    /// The age of an item in a chunk of this size, by which classes are compared. An infinite age
    /// stays infinite.
    pub(crate) fn weighed(&self, chunk_bytes: usize, age: u64) -> u64 {
        if age == u64::MAX {
            return age;
        }
        let weight = self.weight(chunk_bytes);
        let weighed = u128::from(age) * weight / BYTES_OF_ONE;
        u64::try_from(weighed).unwrap_or(u64::MAX - 1)
    }

    /// The age at which an item in a chunk of this size has this weight.
    pub(crate) fn unweighed(&self, chunk_bytes: usize, weighed: u64) -> u64 {
        let age = u128::from(weighed) * BYTES_OF_ONE / self.weight(chunk_bytes);
        u64::try_from(age).unwrap_or(u64::MAX)
    }

    fn weight(&self, chunk_bytes: usize) -> u128 {
        if self.weighs_size.load(Ordering::Relaxed) == 0 {
            return BYTES_OF_ONE;
        }
        // The power of 1.5, as in the miniatures of the `sampling` crate.
        let bytes = chunk_bytes as u128;
        (bytes * bytes.isqrt() / BYTES_OF_ONE.isqrt()).max(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn large_items_count_as_older_if_sizes_are_weighed() {
        let by_size = EvictionSetting { weighs_size: true, ..EvictionSetting::LRU };
        let tuning = Tuning::new(Policy::Auto);
        tuning.set(by_size);
        assert_eq!(tuning.weighed(256, 1000), 1000);
        assert_eq!(tuning.weighed(64, 1000), 125);
        assert_eq!(tuning.weighed(4096, 1000), 64_000);
        assert_eq!(tuning.weighed(4096, u64::MAX), u64::MAX);
        let there_and_back = tuning.unweighed(4096, tuning.weighed(4096, 1_000_000));
        assert!((999_000..1_000_001).contains(&there_and_back), "{there_and_back}");
        tuning.set(EvictionSetting::LRU);
        assert_eq!(tuning.weighed(4096, 1000), 1000);
    }

    #[test]
    fn newcomers_count_as_older_by_the_factor() {
        let tuning = Tuning::new(Policy::Auto);
        tuning.set(EvictionSetting { newcomer_factor: 8, ..EvictionSetting::LRU });
        assert_eq!(tuning.age_of(Part::Newcomers, 10), 80);
        assert_eq!(tuning.age_of(Part::Proven, 10), 10);
        tuning.set(EvictionSetting { newcomer_factor: 0, weighs_size: false });
        assert_eq!(tuning.get(), EvictionSetting::LRU);
    }

    #[test]
    fn only_the_auto_policy_accepts_another_eviction_setting() {
        let tuning = Tuning::new(Policy::Bag);
        tuning.set(EvictionSetting::FIRST);
        assert_eq!((tuning.policy(), tuning.get()), (Policy::Bag, EvictionSetting::LRU));
        tuning.set_policy(Policy::Auto);
        assert_eq!((tuning.policy(), tuning.get()), (Policy::Auto, EvictionSetting::FIRST));
        tuning.set(EvictionSetting { newcomer_factor: 8, weighs_size: true });
        tuning.set_policy(Policy::Lru);
        assert_eq!((tuning.policy(), tuning.get()), (Policy::Lru, EvictionSetting::LRU));
    }
}
