//! Bags in the record of a clean end. Their blocks lie in the file anyway.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded. The one Release,
//! in `set_queue`, is that of `BagList::open`.

use super::{BAGS, Bag, BagList, Cursor, Order};
use arena::blocks::Blocks;
use arena::codec::{Reader, Writer};
use arena::sync::{AtomicU32, AtomicU64, Ordering};
use narrow::to_u32;

impl BagList {
    pub(crate) fn save(&self, out: &mut Writer) {
        let order = self.order.lock();
        out.numbers(order.queue.iter().map(|&bag| u64::from(bag)));
        for &bag in &order.queue {
            self.bag(bag).save(out);
        }
        out.number(u64::from(order.evict.block));
        out.number(u64::from(order.evict.index));
    }

    pub(crate) fn load(&self, input: &mut Reader<'_>, blocks: &Blocks) -> Option<()> {
        let queue: Vec<u8> = input.numbers()?;
        let newest = *queue.last()?;
        for &bag in &queue {
            self.bag(bag).load(input, blocks)?;
        }
        let evict = Cursor { block: input.small()?, index: input.small()? };
        if !blocks.is_known(evict.block) {
            return None;
        }
        self.set_queue(&mut self.order.lock(), queue);
        debug_assert_eq!(self.newest(), newest);
        self.order.lock().evict = evict;
        Some(())
    }

    /// Takes these bags, oldest first, into use.
    pub(crate) fn set_queue(&self, order: &mut Order, queue: Vec<u8>) {
        let is_free = |bag: &u8| !queue.contains(bag);
        let all = (0..BAGS).rev().filter_map(|bag| u8::try_from(bag).ok());
        order.free = all.filter(is_free).collect();
        self.count.store(to_u32(queue.len()), Ordering::Relaxed);
        if let Some(&newest) = queue.last() {
            // Release: partner of the Acquire in `newest`.
            self.newest.store(u32::from(newest), Ordering::Release);
        }
        order.queue = queue.into();
        self.note_oldest_mark(order);
    }
}

impl Bag {
    fn save(&self, out: &mut Writer) {
        for word in self.words() {
            out.number(u64::from(word.load(Ordering::Relaxed)));
        }
        for number in self.numbers() {
            out.number(number.load(Ordering::Relaxed));
        }
    }

    fn load(&self, input: &mut Reader<'_>, blocks: &Blocks) -> Option<()> {
        for word in self.words() {
            word.store(input.small()?, Ordering::Relaxed);
        }
        for number in self.numbers() {
            number.store(input.number()?, Ordering::Relaxed);
        }
        let ends = [self.first.load(Ordering::Relaxed), self.tail.load(Ordering::Relaxed)];
        // Its closing lies before any grace period of this process.
        self.closed_epoch.store(0, Ordering::Relaxed);
        ends.iter().all(|&block| blocks.is_known(block)).then_some(())
    }

    fn words(&self) -> [&AtomicU32; 5] {
        [&self.first, &self.tail, &self.blocks, &self.opened_secs, &self.closed_secs]
    }

    fn numbers(&self) -> [&AtomicU64; 4] {
        [&self.opened_tick, &self.closed_tick, &self.passed_tick, &self.opened_at]
    }
}
