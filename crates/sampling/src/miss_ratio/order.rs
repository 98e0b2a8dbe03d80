//! Keys in the order of their last use, and the bytes of those used since any of them.
//!
//! The order is a Fenwick tree over places: sums of bytes from a place on take a logarithmic number
//! of steps. A used key gets the next place; when there is none, all are renumbered.

use std::cmp::Reverse;

use crate::is_later_flush;
use crate::log::Access;
use crate::table::Table;
use narrow::to_u32;

/// The order of a bounded number of keys.
#[derive(Debug)]
pub(super) struct Order {
    keys: Table<Known>,
    keys_max: usize,
    /// Fenwick tree: bytes by place, places from 1.
    tree: Box<[u64]>,
    next_place: u32,
    bytes: u64,
}

/// The facts kept of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    place: u32,
    /// Header, key and value of its item.
    pub(super) bytes: u32,
    /// Its item's deadline, in the server's seconds; 0 is never.
    pub(super) deadline: u32,
    /// The time of its last use, by the caller's clock.
    pub(super) used_at: u32,
    /// The number of the last flush that covered it before its last use.
    pub(super) flush: u32,
}

impl Order {
    /// Of at most `keys_max` keys.
    pub(super) fn new(keys_max: usize) -> Self {
        Self {
            keys: Table::new(keys_max),
            keys_max,
            tree: vec![0; places(keys_max) + 1].into_boxed_slice(),
            next_place: 1,
            bytes: 0,
        }
    }

    /// Memory, in bytes.
    pub(super) fn bytes_max(keys_max: usize) -> usize {
        Table::<Known>::bytes(keys_max) + (places(keys_max) + 1) * size_of::<u64>()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(super) fn get(&self, hash: u64) -> Option<Known> {
        self.keys.get(hash).copied()
    }

    /// Bytes of the keys that were used after this one.
    pub(super) fn bytes_since(&self, known: Known) -> u64 {
        let (mut before, mut index) = (0, known.place as usize);
        while index > 0 {
            before += self.tree[index];
            index &= index - 1;
        }
        self.bytes - before
    }

    /// All keys' facts, in no order.
    pub(super) fn known(&self) -> impl Iterator<Item = &Known> {
        self.keys.iter().map(|(_, known)| known)
    }

    /// Makes a key the newest; `false`, and nothing is changed, if there is no room for it.
    pub(super) fn put(&mut self, access: &Access, used_at: u32) -> bool {
        let Access { hash, bytes, deadline, flush, .. } = *access;
        let has_room = !self.keys.is_full() || self.keys.get(hash).is_some();
        if self.next_place as usize >= self.tree.len() || !has_room {
            return false;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.forget(hash);
        self.keys.get_or_insert(hash, Known { place, bytes, deadline, used_at, flush });
        self.bytes += u64::from(bytes);
        add_at(&mut self.tree, place, i64::from(bytes));
        true
    }

    pub(super) fn forget(&mut self, hash: u64) {
        if let Some(known) = self.keys.remove(hash) {
            self.bytes -= u64::from(known.bytes);
            add_at(&mut self.tree, known.place, -i64::from(known.bytes));
        }
    }

    /// Forgets the keys whose hash is not below `threshold`.
    pub(super) fn keep_below(&mut self, threshold: u64) {
        self.forget_if(|(hash, _)| *hash >= threshold);
    }

    /// Forgets the keys that were last used before this flush.
    pub(super) fn forget_before(&mut self, flush: u32) {
        self.forget_if(|(_, known)| is_later_flush(flush, known.flush));
    }

    fn forget_if(&mut self, is_gone: impl Fn(&(u64, Known)) -> bool) {
        let gone = self.keys.iter().filter(|key| is_gone(key)).map(|(hash, _)| *hash);
        gone.collect::<Vec<u64>>().into_iter().for_each(|hash| self.forget(hash));
    }

    /// Makes room for places: forgets the deepest keys until the others have at most `bytes_max`
    /// bytes, and numbers these from 1 on. The oldest are the deepest, or those with the greatest
    /// `weighed` age. `false` if there is hardly room for keys.
    pub(super) fn renumber(
        &mut self,
        bytes_max: f64,
        weighed: Option<impl Fn(&Known) -> u64>,
    ) -> bool {
        let mut bytes = std::mem::take(&mut self.bytes);
        #[expect(clippy::cast_precision_loss, reason = "53 bits are more than a sample needs")]
        let is_too_deep = |(_, known): &&(u64, Known)| {
            let is_too_deep = bytes as f64 > bytes_max;
            bytes -= u64::from(known.bytes);
            is_too_deep
        };
        self.tree.fill(0);
        self.keys.rearrange(|keys| {
            match weighed {
                Some(weighed) => keys.sort_unstable_by_key(|(_, known)| Reverse(weighed(known))),
                None => keys.sort_unstable_by_key(|(_, known)| known.place),
            }
            let deep = keys.iter().take_while(is_too_deep).count();
            keys.drain(..deep);
            keys.sort_unstable_by_key(|(_, known)| known.place);
            for (place, (_, known)) in (1..).zip(keys) {
                known.place = place;
                self.bytes += u64::from(known.bytes);
                add_at(&mut self.tree, place, i64::from(known.bytes));
            }
        });
        self.next_place = to_u32(self.keys.len()) + 1;
        self.keys.len() < self.keys_max - self.keys_max / 16
    }

    /// The hash below which three quarters of the keys are; `None` without keys.
    pub(super) fn hash_of_three_quarters(&self) -> Option<u64> {
        let mut hashes: Vec<u64> = self.keys.iter().map(|(hash, _)| *hash).collect();
        let kept = hashes.len() * 3 / 4;
        (kept < hashes.len()).then(|| *hashes.select_nth_unstable(kept).1)
    }
}

fn add_at(tree: &mut [u64], place: u32, bytes: i64) {
    let mut index = place as usize;
    while let Some(sum) = tree.get_mut(index) {
        *sum = sum.wrapping_add_signed(bytes);
        index += index & index.wrapping_neg();
    }
}

/// Places for this number of keys: with a quarter more, renumbering is rare enough.
fn places(keys_max: usize) -> usize {
    keys_max + keys_max / 4 + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Kind, Log};

    fn use_of(hash: u64, bytes: u32) -> Access {
        let mut log = Log::new(1);
        log.access(hash, (0, Kind::Stored), (bytes, 0), 0, b"").unwrap();
        log.accesses().next().unwrap().0
    }

    const BY_AGE: Option<fn(&Known) -> u64> = None;

    #[test]
    fn the_deepest_keys_are_old_or_large() {
        let deepest = |weighed: Option<fn(&Known) -> u64>| {
            let mut order = Order::new(7);
            for (hash, bytes) in [(1, 10), (2, 90), (3, 10)] {
                assert!(order.put(&use_of(hash, bytes), 0));
            }
            order.renumber(100.0, weighed);
            [1, 2, 3].map(|hash| order.get(hash).is_some())
        };
        assert_eq!(deepest(None), [false, true, true]);
        assert_eq!(deepest(Some(|known| u64::from(known.bytes))), [true, false, true]);
    }

    #[test]
    fn bytes_since_a_key_count_newer_keys() {
        let mut order = Order::new(7);
        for (hash, bytes) in [(1, 10), (2, 20), (3, 30), (1, 11)] {
            assert!(order.put(&use_of(hash, bytes), 0));
        }
        let since = |order: &Order, hash| order.get(hash).map(|known| order.bytes_since(known));
        assert_eq!(since(&order, 2), Some(41));
        order.forget(3);
        assert_eq!((since(&order, 2), since(&order, 3)), (Some(11), None));
        assert!(order.renumber(15.0, BY_AGE));
        assert_eq!((since(&order, 1), since(&order, 2), order.bytes), (Some(0), None, 11));
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let keys_max = 896;
        let mut order = Order::new(keys_max);
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for number in 0..100_000_u64 {
            if !order.put(&use_of(hash(number), 1), 0) && !order.renumber(f64::INFINITY, BY_AGE) {
                order.renumber(800.0, BY_AGE);
            }
            if number.is_multiple_of(3) {
                order.forget(hash(number / 2));
            }
            assert!(order.len() <= keys_max);
        }
    }
}
