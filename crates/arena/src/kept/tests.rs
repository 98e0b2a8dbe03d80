//! Kept chunks in one thread.

use super::{KEPT_MAX, Keeping, KeptChunks, Refill};
use crate::ChunkRef;
use std::cell::RefCell;

/// Refuses the chunks below a number, and notes those that are kept.
#[derive(Default)]
struct From {
    first: ChunkRef,
    marked: RefCell<Vec<ChunkRef>>,
}

impl Keeping for From {
    fn refuses(&self, chunk: ChunkRef) -> bool {
        chunk < self.first
    }

    fn mark(&self, chunk: ChunkRef) {
        self.marked.borrow_mut().push(chunk);
    }
}

/// A list that has taken a chunk from numbers above 100 and may keep this many.
fn list(most: usize) -> KeptChunks {
    let kept = KeptChunks::default();
    assert_eq!(kept.take(|| Refill { chunks: 101.., most }, drop), Some(101));
    kept
}

fn empty<T>() -> Refill<std::iter::Empty<T>> {
    Refill { chunks: std::iter::empty(), most: 0 }
}

#[test]
fn a_list_is_refilled_to_half_of_its_limit() {
    let kept = list(6);
    assert_eq!((kept.len(), kept.taken()), (3, 1));
    let taken: Vec<_> = std::iter::from_fn(|| kept.take(empty, drop)).collect();
    assert_eq!(taken, [104, 103, 102]);
    assert_eq!((kept.len(), kept.taken()), (0, 4));
    assert_eq!(list(1000).len(), KEPT_MAX as u64 / 2);
    assert!(list(0).is_empty() && list(1).is_empty());
}

#[test]
fn a_thread_that_takes_nothing_keeps_nothing() {
    let (kept, mut back) = (KeptChunks::default(), Vec::new());
    kept.keep(&[1, 2], &From::default(), &mut back);
    assert_eq!((back, kept.len()), (vec![1, 2], 0));
}

#[test]
fn a_full_list_gives_older_chunks_back() {
    let (kept, mut back) = (list(4), Vec::new());
    let how = From { first: 3, ..From::default() };
    kept.keep(&[1, 2, 3, 4], &how, &mut back);
    assert_eq!((&back[..], kept.len()), (&[1, 2][..], 4), "those of the page that is wanted");
    kept.keep(&[5], &how, &mut back);
    assert_eq!((&back[2..], kept.len()), (&[102, 103][..], 3));
    assert_eq!(*how.marked.borrow(), [3, 4, 5]);
}

#[test]
fn chunks_can_be_released_shared_and_limited() {
    let (kept, mut into) = (list(8), Vec::new());
    kept.give_up(|chunk| chunk % 2 == 0, &mut into);
    assert_eq!((&into[..], kept.len()), (&[102, 104][..], 2));
    kept.keep(&[1, 2, 3], &From::default(), &mut into);
    into.clear();
    kept.share(&mut into);
    assert_eq!((&into[..], kept.len()), (&[103, 105, 1][..], 2));
    kept.share(&mut into);
    kept.share(&mut into);
    assert_eq!((into.len(), kept.len()), (5, 0), "the last one, too");
    kept.keep(&[4, 5, 6], &From::default(), &mut into);
    into.clear();
    kept.limit(1, &mut into);
    assert_eq!((&into[..], kept.len()), (&[4, 5][..], 1));
    kept.limit(7, &mut into);
    kept.keep(&[7], &From::default(), &mut into);
    assert_eq!((&into[2..], kept.len()), (&[6][..], 1), "a limit is not raised by this");
}
