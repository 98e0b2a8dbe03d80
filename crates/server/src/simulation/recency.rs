//! The order in which items of one size are evicted: the least recently used first.
//!
//! The last use of an evicted item was some time after its last hit or store was requested. The
//! last use of an item that exists at the end was before the reply to its last command. So if many
//! remain whose last use was certainly before that of an evicted one, an item was evicted out of
//! order at some point. Items that clients may have removed are not judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::{Liveness, Store};
use testkit::history::{Op, Out};

use super::keys::{self, Kind, Seen};

/// Items that may stay though they were used before an evicted one. Bags have no inner order, and a
/// class of few items has bags of four or more.
pub(super) const SLACK: usize = 16;

/// The times between which a key was certainly used last.
#[derive(Debug, Default)]
struct LastUse {
    /// The time of the request of the last hit or store, if there was one.
    asked: Option<u64>,
    /// No reply came after this time.
    replied: u64,
    /// The time when the last command that may have removed it was over.
    removed: u64,
}

/// The maximum number of items that remain and were certainly used before an evicted one.
pub(super) fn older_that_stayed(store: &Arc<Store>, seen: &[Seen]) -> usize {
    let mut uses: BTreeMap<usize, LastUse> = BTreeMap::new();
    for Seen { key, event } in seen.iter().filter(|seen| keys::kind(seen.key) == Kind::Ranked) {
        let last = uses.entry(*key).or_default();
        match (event.op, event.out) {
            (Op::Get, Out::Miss) | (_, Out::NotFound | Out::NotStored | Out::Token(_)) => {}
            (_, Out::Hit { .. } | Out::Stored | Out::Touched) => {
                last.asked = last.asked.max(Some(event.call));
                last.replied = last.replied.max(event.ret);
            }
            (Op::Get | Op::Touch, Out::Unknown) => last.replied = last.replied.max(event.ret),
            _ => {
                last.replied = last.replied.max(event.ret);
                last.removed = last.removed.max(event.ret);
            }
        }
    }
    let me = store.join().expect("the threads of the run have left");
    let is_there = |key: usize| {
        let name = keys::name(key);
        let section = me.section();
        let found = section.find(store.hash(name.as_bytes()), name.as_bytes());
        found.is_some_and(|item| item.liveness() == Liveness::Live)
    };
    let (there, gone): (Vec<_>, Vec<_>) = uses.into_iter().partition(|(key, _)| is_there(*key));
    let gone = gone.iter().filter_map(|(_, last)| last.asked.filter(|asked| *asked > last.removed));
    let older = |asked| there.iter().filter(|(_, last)| last.replied < asked).count();
    gone.map(older).max().unwrap_or(0)
}
