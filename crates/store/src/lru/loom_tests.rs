//! Models of the bags: appending against closing, passing and freeing.

use super::append::OwnBlock;
use super::*;
use arena::ChunkRef;
use arena::budget::Budget;
use loom::sync::Arc;
use loom::thread;
use std::cell::Cell;

struct World {
    list: BagList,
    blocks: Blocks,
    budget: Budget,
    qsbr: Qsbr,
    tick: AtomicU64,
    turnover: AtomicU64,
}

fn world() -> Arc<World> {
    let (tick, turnover) = (AtomicU64::new(recency::FIRST_TICK), AtomicU64::new(0));
    Arc::new(World {
        list: BagList::new(1, Clocks { tick: &tick, turnover: &turnover }),
        blocks: Blocks::new(arena::region::Region::reserve(6 * 6).unwrap()),
        budget: Budget::new(1 << 20),
        qsbr: Qsbr::new(3),
        tick,
        turnover,
    })
}

impl World {
    fn clocks(&self) -> Clocks<'_> {
        Clocks { tick: &self.tick, turnover: &self.turnover }
    }

    fn append(&self, item: ChunkRef, own: &Cell<OwnBlock>) -> Position {
        self.list.append_newest(&self.blocks, &self.budget, Part::Proven, item, own).unwrap()
    }

    /// Closes the newest bag, and opens one for many items of several threads.
    fn open(&self, order: &mut Order) {
        let opening = Opening { now_secs: 1, closing_bytes: 1, class_items: 1 << 10, threads: 2 };
        assert!(self.list.open(order, &self.blocks, self.clocks(), &self.qsbr, opening));
    }

    /// Closes the newest bag and, if it has settled, takes all items out of it and frees it.
    fn close_and_empty(&self, settle: bool) -> Vec<ChunkRef> {
        let mut order = self.list.order.lock();
        let closing = self.list.newest(Part::Proven);
        self.open(&mut order);
        self.qsbr.try_advance();
        self.qsbr.try_advance();
        let bag = self.list.bag(closing);
        if settle && !bag.is_settled(&self.qsbr) {
            return Vec::new();
        }
        let (mut at, mut taken) = (Cursor::default(), Vec::new());
        while let Some((position, after)) = bag.step(&self.blocks, at) {
            at = after;
            let item = self.blocks.slot(position).swap(0, Ordering::AcqRel);
            taken.extend((item != 0).then_some(item));
        }
        self.list.free(&mut order, &self.blocks, closing);
        taken
    }

    fn items(&self) -> u32 {
        let order = self.list.order.lock();
        order.bags().map(|bag| self.list.bag(bag).items(&self.blocks)).sum()
    }
}

/// All interleavings would take hours, so those with more than two preemptions are skipped.
fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(2));
    builder.check(body);
}

/// Three appends by two threads fill blocks of two slots, shared or private: each item gets a
/// distinct slot, and none is lost when a fresh block is linked.
///
/// Seen to fail: `append` without checking whether the tail has changed (one of two fresh blocks is
/// lost with its item).
#[test]
fn loom_appends_share_no_slot() {
    for has_own_blocks in [true, false] {
        model(move || {
            let world = world();
            if has_own_blocks {
                world.open(&mut world.list.order.lock());
            }
            let other = Arc::clone(&world);
            let appender = thread::spawn(move || {
                let own = Cell::default();
                other.qsbr.register().map(|slot| other.qsbr.online(slot));
                [other.append(11, &own), other.append(12, &own)]
            });
            let mine = world.append(13, &Cell::default());
            let theirs = appender.join().unwrap();
            assert!(mine != theirs[0] && mine != theirs[1] && theirs[0] != theirs[1]);
            assert_eq!(world.items(), 3);
        });
    }
}

/// A slow appender may still use a bag that has just been closed: nothing is passed or freed before
/// its section has ended, so its item is in exactly one bag, or was taken by the pass. A thread
/// with a private block appends there only while its bag is the newest.
///
/// Seen to fail: `close_and_empty(false)`, a pass that does not wait for the grace period (the item
/// is stored into a freed block); `append_newest` that does not compare the bag and its tick with
/// those of the thread's block (likewise).
#[test]
fn loom_no_item_is_appended_to_a_freed_bag() {
    for has_own_blocks in [true, false] {
        model(move || {
            let world = world();
            if has_own_blocks {
                world.open(&mut world.list.order.lock());
            }
            // A bag that was never used would not be closed.
            let own = Cell::default();
            world.append(20, &own);
            let slot = world.qsbr.register().unwrap();
            let other = Arc::clone(&world);
            let appender = thread::spawn(move || {
                other.qsbr.online(slot);
                let position = other.append(21, &own);
                other.qsbr.offline(slot);
                position
            });
            let taken = world.close_and_empty(true);
            let position = appender.join().unwrap();
            let there = world.items();
            assert_eq!(u32::try_from(taken.len()).unwrap() + there, 2, "an item lost or doubled");
            if !taken.contains(&21) {
                assert_eq!(world.blocks.slot(position).load(Ordering::Relaxed), 21);
            }
        });
    }
}

/// An item takes the place of another one while a pass takes everything out of their bag. Both hold
/// the key's stripe for it. So the pass takes the item that the key has, or the item stays in a bag
/// that is not freed.
///
/// Seen to fail: `take_place` that empties the slot first (the bag is freed with the new item).
#[test]
fn loom_an_item_that_takes_a_place_stays_in_its_bag() {
    model(|| {
        let world = world();
        let position = world.append(31, &Cell::default());
        let key = Arc::new(Mutex::new(31));
        let (other, others_key) = (Arc::clone(&world), Arc::clone(&key));
        let overwriter = thread::spawn(move || {
            let mut item = others_key.lock();
            if *item != 0 && other.list.take_place(&other.blocks, position, 32, false).is_some() {
                *item = 32;
            }
        });
        let mut order = world.list.order.lock();
        let bag = world.list.newest(Part::Proven);
        world.open(&mut order);
        let seen = world.blocks.item_at(position);
        if seen != 0 {
            let mut item = key.lock();
            if *item == seen {
                // As `unlink` does.
                world.blocks.slot(position).store(0, Ordering::Relaxed);
                *item = 0;
            }
        }
        let is_freed = world.list.bag(bag).is_empty_from(&world.blocks, Cursor::default());
        if is_freed {
            world.list.free(&mut order, &world.blocks, bag);
        }
        drop(order);
        overwriter.join().unwrap();
        let item = *key.lock();
        assert_eq!(world.items(), u32::from(item != 0));
        assert_eq!(is_freed, item == 0, "freed with an item, or kept without one");
    });
}
