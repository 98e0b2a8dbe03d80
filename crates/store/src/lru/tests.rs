//! The opening of bags, without items.

use super::recency::{AGE_MAX, FIRST_TICK, SLACK};
use super::*;
use arena::blocks::Purpose;
use arena::budget::Budget;

/// One old bag stays, and newer ones come and go. No bag is opened whose tick would make a mark in
/// the old one too old; openings resume after a pass over the old one.
#[test]
fn an_unpassed_bag_blocks_openings() {
    let (tick, turnover) = (AtomicU64::new(FIRST_TICK), AtomicU64::new(0));
    let clocks = Clocks { tick: &tick, turnover: &turnover };
    let list = BagList::new(1, clocks);
    let blocks = Blocks::new(arena::region::Region::reserve(1 << 10).unwrap());
    let (qsbr, budget) = (Qsbr::new(1), Budget::new(1 << 20));
    let mut order = list.order.lock();
    let open = |order: &mut Order| {
        // A bag that was never used would not be closed.
        let newest = list.newest(Part::Proven);
        let position = list.append(&blocks, &budget, newest, 1, Purpose::Item).unwrap();
        blocks.slot(position).store(0, Ordering::Relaxed);
        let opening = Opening { now_secs: 1, closing_bytes: 1, class_items: 1, threads: 1 };
        let is_open = list.open(order, &blocks, clocks, &qsbr, opening);
        // The bag in the middle is passed and empty.
        let queue = &order.of(Part::Proven).bags;
        if queue.len() > 2 {
            list.free(order, &blocks, queue[1]);
        }
        is_open
    };
    let old = order.of(Part::Proven).bags[0];
    for round in 1..=3 {
        let passed = list.bag(old).passed_tick();
        while open(&mut order) {}
        let reached = tick.load(Ordering::Relaxed);
        assert!(reached - passed <= AGE_MAX - SLACK, "round {round}: {reached}, {passed}");
        assert!(reached - passed > AGE_MAX - SLACK - 3, "round {round}: {reached}, {passed}");
        list.bag(old).set_passed(reached);
        assert!(open(&mut order), "round {round}");
    }
    let opened = turnover.load(Ordering::Relaxed);
    assert!(opened > 3 * (AGE_MAX - SLACK - 3), "{opened}");
}
