//! Memory for replies that no connection currently needs.
//!
//! A connection with nothing to send keeps little or no memory, since most connections are idle. It
//! takes more from here when needed, and returns it when all has left. So the replies of many
//! successive connections are written to the same few buffers, and a busy worker does not request
//! memory from the system. The kept memory is limited for each worker (two megabytes), so no
//! client's account includes it.

use std::collections::VecDeque;

use super::slot::Slot;

/// Maximum number of kept buffers, and of kept lists of slots.
const KEPT_MAX: usize = 32;

/// The maximum size of either, in bytes.
const KEPT_BYTES_MAX: usize = 32 * 1024;

/// The minimum size of a kept buffer, in bytes.
const KEPT_BYTES_MIN: usize = 4096;

/// Beyond this size, a buffer grows by the needed bytes and an eighth, not by doubling.
const DOUBLING_BYTES: usize = 256 * 1024;

/// One worker's spares. The two lists have their full capacity, so keeping a buffer needs no
/// memory.
#[derive(Debug)]
pub(super) struct Spares {
    heaps: Vec<Vec<u8>>,
    slots: Vec<VecDeque<Slot>>,
}

impl Default for Spares {
    fn default() -> Self {
        Self { heaps: Vec::with_capacity(KEPT_MAX), slots: Vec::with_capacity(KEPT_MAX) }
    }
}

impl Spares {
    /// Makes room for `needed` more bytes in `heap`. Returns false without memory.
    #[inline(never)]
    pub(super) fn grow(&mut self, heap: &mut Vec<u8>, needed: usize) -> bool {
        let wanted = heap.len() + needed;
        if let Some(mut spare) = self.heaps.pop_if(|spare| spare.capacity() >= wanted) {
            spare.extend_from_slice(heap);
            self.keep_heap(std::mem::replace(heap, spare));
            return true;
        }
        if wanted <= DOUBLING_BYTES {
            return heap.try_reserve(needed).is_ok();
        }
        heap.try_reserve_exact(needed + wanted / 8).is_ok()
    }

    /// Keeps a buffer whose content is no longer needed.
    pub(super) fn keep_heap(&mut self, mut heap: Vec<u8>) {
        let is_useful = (KEPT_BYTES_MIN..=KEPT_BYTES_MAX).contains(&heap.capacity());
        if is_useful && self.heaps.len() < KEPT_MAX {
            heap.clear();
            self.heaps.push(heap);
        }
    }

    /// Returns a list without slots.
    #[inline(never)]
    pub(super) fn slots(&mut self) -> VecDeque<Slot> {
        self.slots.pop().unwrap_or_default()
    }

    /// Keeps a list without slots.
    pub(super) fn keep_slots(&mut self, slots: VecDeque<Slot>) {
        debug_assert!(slots.is_empty(), "somebody is owed a reply");
        let bytes = slots.capacity() * size_of::<Slot>();
        if bytes <= KEPT_BYTES_MAX && self.slots.len() < KEPT_MAX {
            self.slots.push(slots);
        }
    }

    /// Frees everything.
    #[cold]
    pub(super) fn clear(&mut self) {
        self.heaps.clear();
        self.slots.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_growing_buffer_takes_a_spare_and_keeps_its_content() {
        let mut spares = Spares::default();
        spares.keep_heap(Vec::with_capacity(KEPT_BYTES_MAX));
        let mut heap = b"replies".to_vec();
        assert!(spares.grow(&mut heap, 5000));
        assert_eq!((&heap[..], heap.capacity()), (&b"replies"[..], KEPT_BYTES_MAX));
        assert!(spares.grow(&mut heap, KEPT_BYTES_MAX));
        assert_eq!(&heap[..], b"replies");
        assert!(heap.capacity() >= KEPT_BYTES_MAX + 7);
    }

    #[test]
    fn kept_buffers_are_bounded_and_empty() {
        let mut spares = Spares::default();
        for capacity in [0, 100, KEPT_BYTES_MAX + 1, 1 << 20] {
            spares.keep_heap(Vec::with_capacity(capacity));
            assert!(spares.heaps.is_empty(), "{capacity}");
        }
        spares.keep_slots(VecDeque::with_capacity(KEPT_BYTES_MAX));
        assert!(spares.slots.is_empty());
        for _ in 0..2 * KEPT_MAX {
            spares.keep_heap(vec![1; KEPT_BYTES_MAX]);
            spares.keep_slots(VecDeque::with_capacity(100));
        }
        assert_eq!((spares.heaps.len(), spares.slots.len()), (KEPT_MAX, KEPT_MAX));
        assert!(spares.heaps.iter().all(Vec::is_empty));
        assert!(spares.slots().capacity() >= 100);
        spares.clear();
        assert!(spares.heaps.is_empty() && spares.slots().capacity() == 0);
    }
}
