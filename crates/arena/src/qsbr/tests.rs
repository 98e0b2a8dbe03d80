//! Reclamation with real threads and from one; the races are in `loom_tests`.

use super::{GRACE, Qsbr};
use crate::sync::{AtomicU32, Ordering};
use std::sync::Barrier;
use std::thread;

/// With no thread online, two advances are enough and one is not.
#[test]
fn a_grace_period_is_two_epochs() {
    let qsbr = Qsbr::new(1);
    let retired_at = qsbr.epoch();
    assert_eq!(qsbr.try_advance(), retired_at + 1);
    assert!(!qsbr.is_safe(retired_at));
    assert_eq!(qsbr.try_advance(), retired_at + GRACE);
    assert!(qsbr.is_safe(retired_at));
}

/// Memory retired later waits for a separate grace period.
#[test]
fn a_tag_is_the_epoch_of_its_retirement() {
    let qsbr = Qsbr::new(1);
    for _ in 0..3 {
        let tag = qsbr.epoch();
        assert_eq!(tag, qsbr.now());
        assert!(!qsbr.is_safe(tag));
        assert_eq!(qsbr.try_advance(), tag + 1);
        assert!(!qsbr.is_safe(tag) && qsbr.is_safe(tag - 1));
    }
}

/// An online thread holds the epoch back until it quiesces; one that is offline does not.
#[test]
fn an_online_slot_holds_the_epoch_back() {
    let qsbr = Qsbr::new(2);
    let slot = qsbr.register().unwrap();
    qsbr.online(slot);
    let first = qsbr.try_advance();
    assert_eq!(qsbr.try_advance(), first, "the slot has not announced this epoch");
    qsbr.quiesce(slot);
    assert_eq!(qsbr.try_advance(), first + 1);
    qsbr.offline(slot);
    assert_eq!((qsbr.try_advance(), qsbr.try_advance()), (first + 2, first + 3));
}

/// A forced advance passes a thread that is between sections, and no other.
#[test]
fn only_a_section_holds_back_a_forced_advance() {
    let qsbr = Qsbr::new(2);
    let (slot, other) = (qsbr.register().unwrap(), qsbr.register().unwrap());
    qsbr.online(slot);
    qsbr.online(other);
    let first = qsbr.try_advance();
    assert_eq!(qsbr.try_advance(), first, "neither has announced this epoch");
    qsbr.slot(slot).enter();
    assert_eq!(qsbr.force_advance(), first, "one is in a section");
    qsbr.slot(slot).leave();
    assert_eq!((qsbr.force_advance(), qsbr.force_advance()), (first + 1, first + 2));
}

/// Slots are handed out once, run out, and come back.
#[test]
fn unregistered_slots_can_be_reused() {
    let qsbr = Qsbr::new(2);
    assert!(qsbr.is_empty());
    let (a, b) = (qsbr.register().unwrap(), qsbr.register().unwrap());
    assert_ne!(a, b);
    assert_eq!(qsbr.register(), None);
    assert!(!qsbr.is_empty());
    qsbr.online(a);
    qsbr.unregister(a);
    assert_eq!(qsbr.register(), Some(a));
    let epoch = qsbr.try_advance();
    assert_eq!(
        qsbr.try_advance(),
        epoch + 1,
        "a slot given back, or not yet online, holds nothing back"
    );
}

/// Readers under load never see the memory of their findings change, although it is reused all the
/// time.
///
/// Method: one cell at a time is linked; the writer links another, retires the first, and poisons
/// it as soon as that is allowed. Two readers, online before the writer starts, read their cell
/// twice. Between the reads the writer has mostly linked two others. Seen to fail: `is_safe` that
/// is always true, `epoch` that is always 1.
#[test]
fn readers_never_see_reuse() {
    const CELLS: u32 = 64;
    const POISON: u32 = u32::MAX;
    let rounds = if cfg!(miri) { 200 } else { 5_000 };
    let qsbr = Qsbr::new(2);
    let cells: Vec<AtomicU32> = (0..CELLS).map(|_| AtomicU32::new(POISON)).collect();
    let linked = AtomicU32::new(0);
    let swaps = AtomicU32::new(0);
    let (done, sections) = (AtomicU32::new(0), AtomicU32::new(0));
    let start = Barrier::new(3);
    cells[0].store(1, Ordering::Relaxed);
    thread::scope(|scope| {
        let readers = [0, 1].map(|_| {
            scope.spawn(|| {
                let slot = qsbr.register().unwrap();
                qsbr.online(slot);
                start.wait();
                while done.load(Ordering::Relaxed) == 0 {
                    let found = &cells[linked.load(Ordering::Acquire) as usize];
                    let value = found.load(Ordering::Relaxed);
                    assert_ne!(value, POISON, "found a cell that is not linked");
                    let seen = swaps.load(Ordering::Relaxed);
                    let goes_on = || swaps.load(Ordering::Relaxed) > seen + 1;
                    // Not for ever: the writer may have no free cell.
                    (0..20).find(|_| {
                        thread::yield_now();
                        goes_on()
                    });
                    assert_eq!(found.load(Ordering::Relaxed), value, "reused while in use");
                    qsbr.quiesce(slot);
                    sections.fetch_add(1, Ordering::Relaxed);
                }
                qsbr.unregister(slot);
            })
        });
        start.wait();
        let mut free: Vec<u32> = (1..CELLS).collect();
        let mut limbo: Vec<(u32, u64)> = Vec::new();
        let (mut current, mut reuses) = (0, 0);
        let has_failed = || readers.iter().any(thread::ScopedJoinHandle::is_finished);
        while (reuses < rounds || sections.load(Ordering::Relaxed) < rounds) && !has_failed() {
            if let Some(next) = free.pop() {
                cells[next as usize].store(reuses + 2, Ordering::Relaxed);
                linked.store(next, Ordering::Release);
                limbo.push((current, qsbr.epoch()));
                swaps.fetch_add(1, Ordering::Relaxed);
                current = next;
            }
            qsbr.try_advance();
            thread::yield_now();
            limbo.retain(|&(cell, retired_at)| {
                let is_safe = qsbr.is_safe(retired_at);
                if is_safe {
                    cells[cell as usize].store(POISON, Ordering::Relaxed);
                    free.push(cell);
                    reuses += 1;
                }
                !is_safe
            });
        }
        done.store(1, Ordering::Relaxed);
    });
}
