//! Models of reclamation: an item's memory is not reused while a reader may be using the item.
//!
//! The fault to find: a reader finds a reference, and another thread unlinks it and writes into its
//! memory too early. It shows in two ways. The reader's `payload` is no longer intact. Or the
//! reader's use is not ordered before the reuse, so the reclaimer misses the reader's `touched`, a
//! relaxed store in the same section.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use super::Qsbr;
use crate::sync::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;

const LINKED: u32 = 1;
const REUSED: u32 = 2;

struct World {
    qsbr: Qsbr,
    /// `LINKED` while the item can be found.
    link: AtomicU32,
    payload: AtomicU32,
    touched: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            qsbr: Qsbr::new(2),
            link: AtomicU32::new(LINKED),
            payload: AtomicU32::new(LINKED),
            touched: AtomicU32::new(0),
        })
    }

    /// One section's lookup and use of the item; whether it found one.
    fn look_up(&self) -> bool {
        if self.link.load(Ordering::Acquire) != LINKED {
            return false;
        }
        self.touched.store(1, Ordering::Relaxed);
        assert_eq!(self.payload.load(Ordering::Relaxed), LINKED, "found, and already reused");
        true
    }

    /// Unlinks the item and reuses its memory if that is allowed after `tries` attempts to advance.
    /// `Some` if it was reused, with the readers' uses that it saw.
    fn reclaim(&self, tries: usize) -> Option<u32> {
        self.reclaim_by(Qsbr::try_advance, tries)
    }

    fn reclaim_by(&self, advance: impl Fn(&Qsbr) -> u64, tries: usize) -> Option<u32> {
        self.link.store(0, Ordering::Release);
        let retired_at = self.qsbr.epoch();
        for _ in 0..tries {
            advance(&self.qsbr);
        }
        self.qsbr.is_safe(retired_at).then(|| {
            let touched = self.touched.load(Ordering::Relaxed);
            self.payload.store(REUSED, Ordering::Relaxed);
            touched
        })
    }
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(f);
}

/// A reader that comes online, looks up and goes offline never sees the reuse, and its use is
/// ordered before it.
///
/// Method: one section against an unlinking with two attempts to advance, the minimum after which
/// reuse is allowed. Seen to fail: `GRACE` of 1; `announce` without its fence; a relaxed store in
/// `offline`; a relaxed load of the slots in `try_advance`.
#[test]
fn no_reuse_within_a_section() {
    model(|| {
        let world = World::new();
        let slot = world.qsbr.register().unwrap();
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.qsbr.online(slot);
                let is_found = world.look_up();
                world.qsbr.offline(slot);
                is_found
            }
        });
        let reused = world.reclaim(2);
        let is_found = reader.join().unwrap();
        if let Some(touched) = reused {
            assert_eq!(touched, u32::from(is_found), "the use is not ordered before the reuse");
        }
    });
}

/// A reader's use is also ordered before the reuse if the reader stays online and only quiesces, so
/// that the reclaimer depends on its announcements.
///
/// Method: two sections, each with a lookup, while the reclaimer makes three attempts.
/// Seen to fail: a relaxed store in `announce`; `GRACE` of 1; `announce` without its fence.
#[test]
fn no_reuse_before_the_reader_quiesces() {
    model(|| {
        let world = World::new();
        let slot = world.qsbr.register().unwrap();
        world.qsbr.online(slot);
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                let first = world.look_up();
                world.qsbr.quiesce(slot);
                let second = world.look_up();
                world.qsbr.quiesce(slot);
                first || second
            }
        });
        let reused = world.reclaim(3);
        let is_found = reader.join().unwrap();
        if let Some(touched) = reused {
            assert_eq!(touched, u32::from(is_found), "the use is not ordered before the reuse");
        }
    });
}

/// A forced advance passes a reader that stays online and announces nothing only outside of its
/// sections: the reader never sees the reuse, and its use is ordered before it.
///
/// Method: one section within a turn, against an unlinking with two forced advances. In a model
/// both halves of the barrier are fences, and the scan has another one: so no model fails without
/// the heavy half. Seen to fail: `enter` without its barrier; a relaxed store in `leave`; a relaxed
/// load in `is_outside`; an `enter` that stores nothing.
#[test]
fn no_reuse_within_an_unannounced_section() {
    model(|| {
        let world = World::new();
        let slot = world.qsbr.register().unwrap();
        world.qsbr.online(slot);
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.qsbr.slot(slot).enter();
                let is_found = world.look_up();
                world.qsbr.slot(slot).leave();
                is_found
            }
        });
        let reused = world.reclaim_by(Qsbr::force_advance, 2);
        let is_found = reader.join().unwrap();
        if let Some(touched) = reused {
            assert_eq!(touched, u32::from(is_found), "the use is not ordered before the reuse");
        }
    });
}

/// A forced advance and a plain one make a grace period together, whichever threads make them.
///
/// Method: a reader whose section lies in a turn that it announces, against an unlinking with two
/// plain advances and a third thread with a forced one.
/// Seen to fail: `enter` without its barrier; a relaxed store in `leave`; a relaxed load in
/// `is_outside`; an `enter` that stores nothing.
#[test]
fn a_forced_scan_by_another_thread_counts() {
    model(|| {
        let world = World::new();
        let slot = world.qsbr.register().unwrap();
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.qsbr.online(slot);
                world.qsbr.slot(slot).enter();
                let is_found = world.look_up();
                world.qsbr.slot(slot).leave();
                is_found
            }
        });
        let helper = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.qsbr.force_advance();
            }
        });
        let reused = world.reclaim(2);
        let is_found = reader.join().unwrap();
        helper.join().unwrap();
        if let Some(touched) = reused {
            assert_eq!(touched, u32::from(is_found), "the use is not ordered before the reuse");
        }
    });
}

/// One section against an unlinking with `own` attempts to advance and a third thread with
/// `others`.
fn advances_by_others(own: usize, others: usize) {
    model(move || {
        let world = World::new();
        let slot = world.qsbr.register().unwrap();
        let reader = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                world.qsbr.online(slot);
                let is_found = world.look_up();
                world.qsbr.offline(slot);
                is_found
            }
        });
        let helper = thread::spawn({
            let world = Arc::clone(&world);
            move || {
                for _ in 0..others {
                    world.qsbr.try_advance();
                }
            }
        });
        let reused = world.reclaim(own);
        let is_found = reader.join().unwrap();
        helper.join().unwrap();
        if let Some(touched) = reused {
            assert_eq!(touched, u32::from(is_found), "the use is not ordered before the reuse");
        }
    });
}

/// The epoch passes on to the reclaimer what another thread's scan has seen.
///
/// Seen to fail: a relaxed exchange in `try_advance`; a relaxed load in `is_safe`; `epoch` without
/// its fence.
#[test]
fn a_scan_by_another_thread_counts() {
    advances_by_others(1, 1);
}

/// A thread that has unlinked nothing itself, and so has only the fence of its scan, does not
/// overlook a reader.
///
/// Seen to fail: `try_advance` without its fence.
#[test]
fn a_scan_by_another_thread_overlooks_no_reader() {
    advances_by_others(0, 2);
}
