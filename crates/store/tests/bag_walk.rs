//! A walk over the bags takes short steps, counts every item, and survives changes.
#![allow(clippy::unwrap_used, dead_code, reason = "a test stops where it fails")]

mod common;

use common::{delete, set};
use std::sync::Arc;
use store::{BagStats, BagStep, BagWalk, Cleaner, Config, Handle, Store};

const ITEMS: u32 = 200_000;

/// Maximum number of slots that one step may examine.
const SLOTS_PER_STEP: u32 = 128 * 60;

fn full() -> (Arc<Store>, Handle, Cleaner) {
    let config = Config { memory_bytes: 64 << 20, seed: 1, ..Config::default() };
    let store = Store::new(config).unwrap();
    let (me, mut cleaner) = (store.join().unwrap(), Cleaner::new(&store).unwrap());
    me.begin_turn(1);
    for number in 0..ITEMS {
        set(&me, &number.to_be_bytes(), b"value", 0, 0).unwrap();
        if number % 1000 == 0 {
            me.rest();
            cleaner.step(1, 2000);
            me.begin_turn(1);
        }
    }
    (store, me, cleaner)
}

#[test]
fn each_step_examines_a_bounded_number_of_slots() {
    let (store, ..) = full();
    let (mut walk, mut steps, mut found) = (BagWalk::default(), 0, Vec::<BagStats>::new());
    let mut steps_of_bag = 0;
    loop {
        steps += 1;
        steps_of_bag += 1;
        match store.walk_bags(&mut walk) {
            BagStep::More => {}
            BagStep::Bag(bag) => {
                assert!(bag.slots <= steps_of_bag * SLOTS_PER_STEP, "{bag:?}: {steps_of_bag}");
                found.push(bag);
                steps_of_bag = 0;
            }
            BagStep::Ended => break,
        }
    }
    assert!(steps > ITEMS / SLOTS_PER_STEP, "{steps}");
    assert_eq!(found.iter().map(|bag| bag.items).sum::<u32>(), ITEMS);
    let roles: Vec<_> = found.iter().map(|bag| bag.role).collect();
    assert_eq!((roles[0], roles[roles.len() - 1]), ("oldest", "newest"));
    assert!(found.iter().any(|bag| bag.slots > SLOTS_PER_STEP), "a bag of several steps");
}

#[test]
fn bags_removed_during_a_walk_are_skipped() {
    let (store, me, mut cleaner) = full();
    let (mut walk, mut number, mut last) = (BagWalk::default(), 0, None);
    loop {
        match store.walk_bags(&mut walk) {
            BagStep::More => {}
            BagStep::Bag(bag) => {
                let place = (bag.class, bag.place);
                assert!(last < Some(place), "{place:?} after {last:?}");
                assert!(bag.items <= bag.slots, "{bag:?}");
                last = Some(place);
            }
            BagStep::Ended => break,
        }
        // The oldest items are evicted, and the cleaner frees their bags.
        for _ in 0..2000 {
            if number < ITEMS {
                delete(&me, &number.to_be_bytes());
                number += 1;
            }
        }
        me.rest();
        (0..8).for_each(|_| _ = cleaner.step(1, 20_000));
        me.begin_turn(1);
    }
    assert!(last.is_some() && number > ITEMS / 4, "{last:?} {number}");
}
