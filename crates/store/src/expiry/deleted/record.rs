//! The queue of deleted items in the record of a clean end. The items lie in the file anyway.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded.

use super::{Deleted, Place};
use arena::budget::Budget;
use arena::codec::{Reader, Writer};
use arena::sync::Ordering;

impl Deleted {
    pub(crate) fn save(&self, out: &mut Writer) {
        let queue = self.queue.lock();
        out.numbers(queue.iter().map(|place| u64::from(place.chunk)));
        out.numbers(queue.iter().map(|place| u64::from(place.until)));
        let (items, bytes) = self.held();
        out.number(items);
        out.number(bytes);
    }

    /// Loads the output of `save`, and charges the queue. `None` if it is invalid.
    pub(crate) fn load(&self, input: &mut Reader<'_>, budget: &Budget) -> Option<()> {
        let (chunks, untils): (Vec<u32>, Vec<u32>) = (input.numbers()?, input.numbers()?);
        let places = chunks.into_iter().zip(untils);
        let mut queue = self.queue.lock();
        *queue = places.map(|(chunk, until)| Place { chunk, until }).collect();
        budget.charge((queue.capacity() * size_of::<Place>()) as u64);
        self.items.store(input.number()?, Ordering::Relaxed);
        self.bytes.store(input.number()?, Ordering::Relaxed);
        Some(())
    }
}
