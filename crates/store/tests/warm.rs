//! A store over a memory file: closed cleanly and reopened, crashed and recovered, damaged and
//! refused.
#![cfg(not(miri))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test stops where it fails")]

mod common;

use common::{Model, TempFile, bag_stats, config, end, fill, open, open_as, probe};
use std::os::unix::fs::FileExt;
use store::{Cleaner, Config, FileError, Found, MemoryFile, Opened, Store, StoreError, TimeNote};

#[test]
fn every_item_survives_a_clean_end() {
    let path = TempFile::new();
    let mut model = Model::default();
    let (store, opened) = open(&path, 2);
    assert_eq!(opened, Opened::Cold(None));
    fill(&store, &mut model, 1, 40_000);
    let bags = format!("{:?}", bag_stats(&store));
    let (memory, stats) = (store.memory(), store.stats());
    let uniques_end = model.greatest_cas;
    end(store, 10);

    let (store, opened) = open(&path, 10);
    assert_eq!(opened, Opened::Warm(stats.items));
    assert_eq!(store.starts(), 2);
    assert_eq!(format!("{:?}", bag_stats(&store)), bags, "the order of eviction");
    assert_eq!(store.memory().items, memory.items);
    assert_eq!(store.memory().arena, memory.arena);
    assert_eq!(store.memory().index, memory.index);
    assert_eq!(store.memory().bags, memory.bags);
    assert!(probe(&store, &model) > 10_000, "many items are there, and none is wrong");
    // It continues as before: more is stored, and memory is reused.
    model.greatest_cas = 0;
    fill(&store, &mut model, 2, 40_000);
    assert!(model.least_cas > uniques_end, "cas uniques go on rising");
    probe(&store, &model);
    end(store, 11);
    let (store, opened) = open(&path, 11);
    assert!(matches!(opened, Opened::Warm(_)), "{opened:?}");
    probe(&store, &model);
}

#[test]
fn flushes_and_deadlines_survive_a_restart() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let mut model = Model::default();
    fill(&store, &mut model, 3, 500);
    let me = store.join().unwrap();
    me.begin_turn(2);
    me.flush();
    common::set(&me, b"after the flush", b"1", 0, 0).unwrap();
    common::set(&me, b"dies at 20", b"2", 20, 0).unwrap();
    store.schedule_flush(50);
    drop(me);
    end(store, 10);

    let (store, _) = open(&path, 19);
    let me = store.join().unwrap();
    me.begin_turn(19);
    model.items.keys().for_each(|key| assert_eq!(common::get(&me, key), None));
    assert!(common::get(&me, b"after the flush").is_some());
    assert!(common::get(&me, b"dies at 20").is_some());
    me.begin_turn(20);
    assert_eq!(common::get(&me, b"dies at 20"), None);
    assert!(!store.claim_flush(49));
    assert!(store.claim_flush(50));
    drop(me);
    // It ends with the flush claimed but not done: the next start does it.
    end(store, 50);
    let (store, _) = open(&path, 50);
    let me = store.join().unwrap();
    me.begin_turn(50);
    assert_eq!(common::get(&me, b"after the flush"), None);
}

#[test]
fn changed_settings_and_truncation_report_a_cold_start() {
    let path = TempFile::new();
    let reason = |change: &dyn Fn(&std::fs::File, &mut Config)| {
        let (store, _) = open(&path, 2);
        fill(&store, &mut Model::default(), 4, 200);
        end(store, 3);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path.path()).unwrap();
        let mut config = config();
        change(&file, &mut config);
        let file = MemoryFile::open(path.path(), &config).unwrap();
        let (store, opened) = Store::open(&config, file, TimeNote::default()).unwrap();
        assert_eq!(store.stats().items, 0);
        let me = store.join().unwrap();
        me.begin_turn(3);
        common::set(&me, b"k", b"v", 0, 0).unwrap();
        assert!(common::get(&me, b"k").is_some());
        match opened {
            Opened::Cold(reason) => reason.unwrap_or_default(),
            other => panic!("{other:?}"),
        }
    };
    assert!(reason(&|_, config| config.memory_bytes *= 5).contains("another -m"));
    assert!(reason(&|_, config| config.growth_factor = 1.25).contains("another -f"));
    assert!(reason(&|_, config| config.chunk_bytes_min = 64).contains("another -n"));
    assert!(reason(&|_, config| config.item_bytes_max = 4096).contains("another -I"));
    assert!(reason(&|file, _| file.set_len(1 << 20).unwrap()).contains("cut off"));
    assert!(reason(&|file, _| file.set_len(100).unwrap()).contains("cut off"));
    assert_eq!(reason(&|file, _| file.set_len(0).unwrap()), "");
    assert!(reason(&|file, _| file.write_all_at(&[0; 4096], 0).unwrap()).contains("no header"));
    let shorter = |file: &std::fs::File| file.set_len(file.metadata().unwrap().len() - 1).unwrap();
    assert!(reason(&|file, _| shorter(file)).contains("wrote down"));
}

#[test]
fn a_foreign_file_is_left_unchanged() {
    let path = TempFile::new();
    std::fs::write(path.path(), "root:x:0:0:root").unwrap();
    let refused = MemoryFile::open(path.path(), &config()).unwrap_err();
    assert!(matches!(refused, StoreError::File(FileError::NotOurs(_) | FileError::Foreign(_))));
    assert_eq!(std::fs::read(path.path()).unwrap(), b"root:x:0:0:root");
    std::fs::remove_file(path.path()).unwrap();

    let (store, _) = open(&path, 2);
    let refused = MemoryFile::open(path.path(), &config()).unwrap_err();
    assert!(matches!(refused, StoreError::File(FileError::InUse(_))), "{refused}");
    end(store, 2);
    assert!(matches!(
        MemoryFile::open(path.path(), &config()).unwrap().found(),
        Found::Clean(TimeNote { secs: 2, .. })
    ));

    let link = TempFile::new();
    std::os::unix::fs::symlink(path.path(), link.path()).unwrap();
    let refused = MemoryFile::open(link.path(), &config()).unwrap_err();
    assert!(matches!(refused, StoreError::File(FileError::NotAFile(_))), "{refused}");
    let refused = MemoryFile::open(std::path::Path::new("/tmp"), &config()).unwrap_err();
    assert!(matches!(refused, StoreError::File(FileError::NotAFile(_))), "{refused}");
}

/// A storing thread keeps some free chunks for itself. They are free for all at the next start.
#[test]
fn chunks_kept_by_a_thread_are_free_after_a_restart() {
    for crashes in [false, true] {
        let path = TempFile::new();
        let (store, _) = open(&path, 2);
        let me = store.join().unwrap();
        me.begin_turn(2);
        let key = |number: u32| format!("key-{number:06}").into_bytes();
        for number in 0..50_000 {
            common::set(&me, &key(number), &[7; 100], 0, 0).unwrap();
        }
        for number in 49_000..50_000 {
            assert!(common::delete(&me, &key(number)));
            me.quiesce();
        }
        (0..4).for_each(|_| me.quiesce());
        let left = crashes.then(|| common::Sparse::read(path.path()));
        drop(me);
        match left {
            Some(left) => {
                drop(store);
                left.write(path.path());
            }
            None => end(store, 3),
        }
        let (store, opened) = open(&path, 3);
        assert_eq!(matches!(opened, Opened::Recovered(_)), crashes, "{opened:?}");
        let class = store.class_stats(3).into_iter().max_by_key(|class| class.chunks).unwrap();
        assert_eq!((class.items, class.chunks_used), (49_000, 49_000));
        assert_eq!(class.chunks_free, class.chunks - 49_000);
        // All of them can be taken.
        let me = store.join().unwrap();
        me.begin_turn(3);
        for number in 0..class.chunks_free {
            common::set(&me, &key(100_000 + u32::try_from(number).unwrap()), &[7; 100], 0, 0)
                .unwrap();
        }
        let after = store.class_stats(3).into_iter().max_by_key(|class| class.chunks).unwrap();
        assert_eq!((after.chunks, after.chunks_free), (class.chunks, 0));
    }
}

/// Damage anywhere in a cleanly closed file costs the cache, and never gives wrong bytes.
#[test]
fn damage_to_a_clean_file_never_yields_wrong_values() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let mut model = Model::default();
    fill(&store, &mut model, 5, 5_000);
    end(store, 3);
    let whole = common::Sparse::read(path.path());
    let mut rng = common::rng(6);
    for case in 0..common::cases(60) {
        whole.write(path.path());
        let damage = common::damage(path.path(), &whole, &mut rng);
        let file = match MemoryFile::open(path.path(), &config()) {
            Err(StoreError::File(FileError::Foreign(_))) => continue,
            file => file.unwrap(),
        };
        let (store, opened) = Store::open(&config(), file, common::at(3)).unwrap();
        assert!(matches!(opened, Opened::Cold(_)), "case {case}, {damage}: {opened:?}");
        assert_eq!(store.stats().items, 0);
    }
    whole.write(path.path());
    let (store, opened) = open(&path, 3);
    assert!(matches!(opened, Opened::Warm(_)), "undamaged: {opened:?}");
    probe(&store, &model);
}

/// A store in use cannot be left in good order.
#[test]
fn a_store_in_use_cannot_be_closed() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let me = store.join().unwrap();
    assert!(store.close(TimeNote::default(), 0).is_err());
    drop(me);
    store.close(TimeNote::default(), 0).unwrap();
}

/// A successor trusts pages without digests if it has the ticket; any other process recovers them.
#[test]
fn a_ticket_replaces_digests() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let mut model = Model::default();
    fill(&store, &mut model, 7, 1_000);
    store.close(common::at(3), 77).unwrap();
    let shared = store.share_file().unwrap().unwrap();
    let file = MemoryFile::inherit(shared, path.path(), &config(), 77).unwrap();
    assert!(matches!(file.found(), Found::Clean(_)));
    let (next, opened) = Store::open(&config(), file, common::at(3)).unwrap();
    assert!(matches!(opened, Opened::Warm(_)), "{opened:?}");
    drop(store);
    probe(&next, &model);
    next.close(common::at(4), 78).unwrap();
    drop(next);
    let file = MemoryFile::open(path.path(), &config()).unwrap();
    assert!(matches!(file.found(), Found::Crashed(_)));
}

/// Without a clean end, every linked item is found again, and memory continues to be reused.
#[test]
fn every_item_survives_a_crash() {
    let path = TempFile::new();
    let mut model = Model::default();
    for round in 0..4 {
        let (store, opened) = open(&path, 2);
        let stats = store.stats();
        match opened {
            Opened::Recovered(found) => {
                assert_eq!(found.items, stats.items);
                assert_eq!((found.damaged, found.expired, found.flushed), (0, 0, 0));
            }
            other => assert_eq!((round, other), (0, Opened::Cold(None))),
        }
        let here = probe(&store, &model);
        assert_eq!(
            here as u64, stats.items,
            "round {round}: all that is there is as it was stored"
        );
        let uniques = model.greatest_cas;
        fill(&store, &mut model, 20 + round, 30_000);
        assert!(model.least_cas > uniques, "cas uniques go on rising");
        model.items.retain(|key, _| common::get(&joined(&store), key).is_some());
        assert!(model.items.len() > 5_000);
        assert_eq!(model.items.len() as u64, store.stats().items);
    }
    let (store, _) = open(&path, 2);
    assert_eq!(probe(&store, &model), model.items.len(), "nothing that was there is lost");
    end(store, 3);
    let (store, opened) = open(&path, 3);
    assert_eq!(opened, Opened::Warm(model.items.len() as u64));
    assert_eq!(probe(&store, &model), model.items.len());
}

/// An index that shrinks because items have grown: at every stage a crash or a clean end keeps all
/// items, and the memory in use stays equal to the counted memory.
#[test]
fn a_shrinking_index_survives_clean_ends_and_crashes() {
    let path = TempFile::new();
    let key = |number: u32| format!("key-{number:06}").into_bytes();
    // Without marking it as used.
    let is_there = |me: &store::Handle, number| {
        me.section().find(me.store().hash(&key(number)), &key(number)).is_some()
    };
    let (store, _) = open(&path, 2);
    let me = joined(&store);
    (0..150_000).for_each(|number| _ = common::set(&me, &key(number), b"12345", 0, 0).unwrap());
    drop(me);
    let full = store.memory().index;
    end(store, 2);
    let mut least = full;
    for round in 0..40 {
        let secs = 2 + round * 16;
        let (store, opened) = open(&path, secs);
        assert_eq!(matches!(opened, Opened::Recovered(_)), round % 2 == 0 && round > 0);
        let me = joined(&store);
        let mut cleaner = Cleaner::new(&store).unwrap();
        for step in 0..16 {
            let number = 200_000 + round * 1000 + step * 60;
            for number in number..number + 60 {
                common::set(&me, &key(number), &[7; 2000], 0, 0).unwrap();
            }
            me.quiesce();
            me.begin_turn(secs + step);
            (0..4).for_each(|_| _ = cleaner.step(secs + step, 1000));
        }
        let held: Vec<_> = (0..240_000).filter(|&n| is_there(&me, n)).collect();
        let (memory, items) = (store.memory(), store.stats().items);
        assert_eq!((held.len() as u64, store.index().items), (items, items), "round {round}");
        assert!(memory.arena + memory.index + memory.bags <= memory.limit, "{memory:?}");
        drop((me, cleaner));
        let secs = secs + 16;
        if round % 2 == 0 {
            end(store, secs);
        } else {
            drop(store);
        }
        let (store, _) = open(&path, secs);
        let me = joined(&store);
        assert!(held.iter().all(|&number| is_there(&me, number)));
        assert_eq!((store.stats().items, store.index().items), (items, items), "round {round}");
        drop(me);
        least = least.min(store.memory().index);
        if round % 2 == 0 {
            end(store, secs);
        } else {
            drop(store);
        }
    }
    assert!(least < full / 4, "the index shrank from {full} to {least} bytes");
}

/// References as in a store of more than 16 GB.
#[test]
fn every_item_survives_with_references_by_place() {
    let config = Config { by_place: true, ..config() };
    let path = TempFile::new();
    let mut model = Model::default();
    let (store, _) = open_as(&config, &path, 2);
    fill(&store, &mut model, 40, 30_000);
    let stored = store.stats().items;
    assert_eq!(probe(&store, &model) as u64, stored);
    drop(store);
    let (store, opened) = open_as(&config, &path, 2);
    let Opened::Recovered(found) = opened else { panic!("{opened:?}") };
    assert_eq!((found.items, found.damaged), (stored, 0));
    assert_eq!(probe(&store, &model) as u64, stored, "after a crash");
    fill(&store, &mut model, 41, 30_000);
    let stored = store.stats().items;
    end(store, 3);
    let (store, opened) = open_as(&config, &path, 3);
    assert_eq!(opened, Opened::Warm(stored));
    assert_eq!(probe(&store, &model) as u64, stored, "after a clean end");
    fill(&store, &mut model, 42, 30_000);
    probe(&store, &model);
}

/// Many more invalidations than there are codes for births, and a prefix alternately stored under
/// and invalidated; then a clean end, or a crash.
#[test]
fn unpurged_invalidations_survive_clean_ends_and_crashes() {
    for crashes in [false, true] {
        let path = TempFile::new();
        let (store, _) = open(&path, 2);
        let me = joined(&store);
        for number in 0..50 {
            let prefix = format!("p{number}:");
            let [dead, live] = ["dead", "live"].map(|key| format!("{prefix}{key}"));
            common::set(&me, dead.as_bytes(), b"v", 0, 0).unwrap();
            me.flush_prefix(prefix.as_bytes()).unwrap();
            common::set(&me, live.as_bytes(), b"stored after", 0, 0).unwrap();
        }
        drop(me);
        if crashes {
            drop(store);
        } else {
            end(store, 3);
        }
        let (store, _) = open(&path, 4);
        let me = joined(&store);
        for number in 0..50 {
            let dead = format!("p{number}:dead");
            let live = format!("p{number}:live");
            assert_eq!(common::get(&me, dead.as_bytes()), None, "{dead}, crash {crashes}");
            assert!(common::get(&me, live.as_bytes()).is_some(), "{live}, crash {crashes}");
            me.flush_prefix(live.as_bytes()).unwrap();
            assert_eq!(common::get(&me, live.as_bytes()), None, "{live}, crash {crashes}");
        }
    }
}

fn joined(store: &std::sync::Arc<Store>) -> store::Handle {
    let me = store.join().unwrap();
    me.begin_turn(2);
    me
}

#[test]
fn deleted_flushed_and_expired_items_stay_gone_after_a_crash() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let me = joined(&store);
    for name in ["old:1", "new:1", "old:2"] {
        common::set(&me, name.as_bytes(), b"v", 0, 0).unwrap();
    }
    me.flush_prefix(b"old:").unwrap();
    common::set(&me, b"old:3", b"stored after", 0, 0).unwrap();
    common::set(&me, b"dies at 20", b"v", 20, 0).unwrap();
    common::set(&me, b"dies at 30", b"v", 30, 0).unwrap();
    for (key, stale) in [(&b"deleted"[..], false), (b"stale", true)] {
        common::set(&me, key, b"v", 0, 0).unwrap();
        let change = || match stale {
            true => store::Change::RemoveSoon { until: 100 },
            false => store::Change::Remove,
        };
        assert_eq!(
            me.section().update(store.hash(key), key, |_| change()),
            store::Applied::Removed
        );
    }
    drop(me);
    drop(store);
    let (store, opened) = open(&path, 25);
    let Opened::Recovered(found) = opened else { panic!("{opened:?}") };
    assert_eq!((found.items, found.flushed, found.expired, found.deleted), (3, 2, 1, 1));
    let me = store.join().unwrap();
    me.begin_turn(25);
    for (key, there) in [
        ("old:1", false),
        ("old:2", false),
        ("old:3", true),
        ("new:1", true),
        ("deleted", false),
        ("stale", false),
        ("dies at 20", false),
        ("dies at 30", true),
    ] {
        assert_eq!(common::get(&me, key.as_bytes()).is_some(), there, "{key}");
    }
}

/// Eviction continues with the items used least recently before the crash, whether or not the
/// cleaner has examined the items since.
#[test]
fn the_order_of_use_survives_a_crash() {
    check_order_after_crash(0);
    check_order_after_crash(200);
}

fn check_order_after_crash(cleaner_steps: usize) {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let key = |number: u32| format!("key-{number:06}").into_bytes();
    let me = joined(&store);
    let value = [7; 500];
    let mut stored = 0;
    while store.stats().evictions == 0 {
        common::set(&me, &key(stored), &value, 0, 0).unwrap();
        stored += 1;
    }
    drop(me);
    let mut cleaner = Cleaner::new(&store).unwrap();
    (0..cleaner_steps).for_each(|_| _ = cleaner.step(2, 1000));
    drop(cleaner);
    drop(store);
    let (store, opened) = open(&path, 2);
    assert!(matches!(opened, Opened::Recovered(_)), "{opened:?}");
    let bags = bag_stats(&store).len();
    assert!(bags > 8, "bags by age: {bags}");
    let me = joined(&store);
    // It moves pages to the class that a store may now find for these sizes.
    let mut cleaner = Cleaner::new(&store).unwrap();
    for number in stored..stored + stored / 4 {
        common::set(&me, &key(number), &value, 0, 0).unwrap();
        if number % 32 == 0 {
            me.rest();
            let _ = cleaner.step(2, 1000);
            me.begin_turn(2);
        }
    }
    let there = |range: std::ops::Range<u32>| {
        range.clone().filter(|&number| common::get(&me, &key(number)).is_some()).count() as f64
            / range.len() as f64
    };
    assert!(there(0..stored / 8) < 0.05, "the oldest went first");
    assert!(there(stored / 2..stored) > 0.95, "the youngest stayed");
}

/// A store in use has no digests. Checks of everything that the process relies on handle damage:
/// values may be wrong then, but the store continues to work.
#[test]
fn damage_to_a_crashed_file_does_not_break_the_store() {
    let path = TempFile::new();
    let (store, _) = open(&path, 2);
    let mut model = Model::default();
    fill(&store, &mut model, 8, 6_000);
    drop(store);
    let whole = common::Sparse::read(path.path());
    let mut rng = common::rng(9);
    for case in 0..common::cases(60) {
        whole.write(path.path());
        let mut damages = String::new();
        for _ in 0..case % 5 + 1 {
            damages += &common::damage(path.path(), &whole, &mut rng);
            damages += ", ";
        }
        let file = match MemoryFile::open(path.path(), &config()) {
            Err(StoreError::File(FileError::Foreign(_))) => continue,
            file => file.unwrap(),
        };
        let (store, opened) = Store::open(&config(), file, common::at(3)).unwrap();
        println!("case {case}: {damages}{opened:?}");
        assert_eq!(store.index().items, store.stats().items);
        fill(&store, &mut Model::default(), case as u64, 2_000);
        let me = joined(&store);
        me.flush();
        model.items.keys().for_each(|key| assert_eq!(common::get(&me, key), None));
        drop(me);
        end(store, 3);
    }
}

/// Position of the word with the number of the index's buckets in a file of 8 MB.
const DIRECTORY: u64 = 3 << 16;

/// No index has these numbers of buckets, whatever the number of stripes.
#[test]
fn an_impossible_directory_is_damage_after_a_crash() {
    let path = TempFile::new();
    for (stripes, level) in [(32, 1_u64), (32, 9), (256, 9), (1 << 14, 9), (32, 31), (32, 40)] {
        let config = Config { memory_bytes: 8 << 20, stripes, ..config() };
        let (store, _) = open_as(&config, &path, 2);
        fill(&store, &mut Model::default(), 12, 200);
        drop(store);
        let file = std::fs::OpenOptions::new().write(true).open(path.path()).unwrap();
        file.write_all_at(&(level << 32).to_le_bytes(), DIRECTORY).unwrap();
        let (_, opened) = open_as(&config, &path, 3);
        let Opened::Cold(Some(reason)) = opened else { panic!("2^{level} buckets: {opened:?}") };
        assert!(reason.contains("crashed"), "{reason}");
    }
}

/// The word may also be damaged in another way. If its buckets leave no memory for items, the cache
/// starts cold. The fuzz target `restart_image` found it.
#[test]
fn a_damaged_directory_leaves_memory_for_items() {
    let (path, config) = (TempFile::new(), Config { memory_bytes: 8 << 20, ..config() });
    let (store, _) = open_as(&config, &path, 2);
    fill(&store, &mut Model::default(), 10, 1_000);
    drop(store);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path.path()).unwrap();
    let mut word = [0; 8];
    file.read_exact_at(&mut word, DIRECTORY).unwrap();
    let [level, split] = [u64::from_le_bytes(word) >> 32, u64::from_le_bytes(word) & 0xffff_ffff];
    assert!(level > 0 && split < 1 << level, "the directory: {word:?}");
    // 8 MB of buckets.
    let largest = (config.memory_bytes / 64).trailing_zeros();
    file.write_all_at(&(u64::from(largest) << 32).to_le_bytes(), DIRECTORY).unwrap();
    drop(file);
    let (store, opened) = open_as(&config, &path, 3);
    let mut model = Model::default();
    fill(&store, &mut model, 11, 1_000);
    let me = joined(&store);
    let kept = model.items.keys().filter(|key| common::get(&me, key).is_some()).count();
    assert!(kept > model.items.len() * 9 / 10, "{kept} of {}: {opened:?}", model.items.len());
    drop(me);
    probe(&store, &model);
}
