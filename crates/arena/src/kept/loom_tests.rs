//! Models of kept chunks: a wanted page against a thread that keeps and takes.

use super::{Keeping, KeptChunks, Refill};
use crate::ChunkRef;
use crate::sync::{AtomicU32, Mutex, Ordering};
use loom::sync::Arc;
use loom::thread;

/// Chunks 1 and 2 are of the wanted page; 3 is of another.
struct World {
    kept: KeptChunks,
    is_wanted: AtomicU32,
    /// The list that all threads share.
    common: Mutex<Vec<ChunkRef>>,
}

struct How<'w>(&'w World);

impl Keeping for How<'_> {
    fn refuses(&self, chunk: ChunkRef) -> bool {
        is_of_page(chunk) && self.0.is_wanted.load(Ordering::Relaxed) != 0
    }

    fn mark(&self, _: ChunkRef) {}
}

fn is_of_page(chunk: ChunkRef) -> bool {
    chunk < 3
}

impl World {
    fn new(common: &[ChunkRef]) -> Arc<Self> {
        Arc::new(Self {
            kept: KeptChunks::default(),
            is_wanted: AtomicU32::new(0),
            common: Mutex::new(common.to_vec()),
        })
    }

    fn take(&self) -> Option<ChunkRef> {
        let refill = || {
            let mut common = self.common.lock();
            Refill { chunks: std::iter::from_fn(move || common.pop()), most: 2 }
        };
        self.kept.take(refill, drop)
    }

    fn keep(&self, chunk: ChunkRef) -> Vec<ChunkRef> {
        let mut back = Vec::new();
        self.kept.keep(&[chunk], &How(self), &mut back);
        back
    }

    /// Takes all chunks of the page out of both lists.
    fn want_page(&self) -> Vec<ChunkRef> {
        let mut common = self.common.lock();
        self.is_wanted.store(1, Ordering::Relaxed);
        let mut found: Vec<_> = common.extract_if(.., |chunk| is_of_page(*chunk)).collect();
        drop(common);
        self.kept.give_up(is_of_page, &mut found);
        found
    }

    fn left(&self) -> Vec<ChunkRef> {
        let mut left = self.common.lock().clone();
        self.kept.give_up(|_| true, &mut left);
        left
    }
}

/// A thread takes a chunk, with another one to keep, and returns it, while their page is wanted: no
/// chunk of the page is in a list afterwards, and none is lost or doubled.
///
/// Seen to fail: `keep` that asks `refuses` before it takes the lock; `take` that calls `refill`
/// before it takes the lock.
#[test]
fn loom_no_chunk_of_a_wanted_page_is_kept() {
    loom::model(|| {
        let world = World::new(&[3, 2, 1]);
        let other = Arc::clone(&world);
        let storing = thread::spawn(move || {
            let Some(chunk) = other.take() else { return Vec::new() };
            other.keep(chunk)
        });
        let found = world.want_page();
        let refused = storing.join().unwrap();
        let left = world.left();
        assert!(!left.iter().any(|&chunk| is_of_page(chunk)), "{left:?} still kept");
        let mut all = [found, refused, left].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2, 3]);
    });
}

/// Two threads without a free chunk share those that a third one keeps: each goes to one.
///
/// Seen to fail: `share` that leaves the chunks in the list.
#[test]
fn loom_a_chunk_is_shared_once() {
    loom::model(|| {
        let world = World::new(&[1, 2]);
        assert_eq!(world.take(), Some(2));
        let other = Arc::clone(&world);
        let sharing = thread::spawn(move || {
            let mut into = Vec::new();
            other.kept.share(&mut into);
            into
        });
        let back = world.keep(2);
        let shared = sharing.join().unwrap();
        let mut all = [back, shared, world.left()].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
