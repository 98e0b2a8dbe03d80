//! Bags in the record of a clean end. Their blocks are already in the file.
//!
//! Relaxed is enough: no other thread uses the store while it is saved or loaded. The one Release,
//! in `set_queues`, is that of `BagList::open_in`.

use super::{BAGS, Bag, BagList, Cursor, Order, PARTS, Queue};
use arena::blocks::Blocks;
use arena::codec::{Reader, Writer};
use arena::sync::{AtomicU32, AtomicU64, Ordering};

impl BagList {
    pub(crate) fn save(&self, out: &mut Writer) {
        let order = self.order.lock();
        for part in PARTS {
            let queue = order.of(part);
            out.numbers(queue.bags.iter().map(|&bag| u64::from(bag)));
            for &bag in &queue.bags {
                self.bag(bag).save(out);
            }
            out.number(u64::from(queue.evict.block));
            out.number(u64::from(queue.evict.index));
        }
    }

    pub(crate) fn load(&self, input: &mut Reader<'_>, blocks: &Blocks) -> Option<()> {
        let mut queues = Vec::new();
        for _ in PARTS {
            let bags: Vec<u8> = input.numbers()?;
            bags.last()?;
            for &bag in &bags {
                self.bag(bag).load(input, blocks)?;
            }
            let evict = Cursor { block: input.small()?, index: input.small()? };
            if !blocks.is_known(evict.block) {
                return None;
            }
            queues.push(Queue { bags: bags.into(), evict });
        }
        let queues: [Queue; 2] = queues.try_into().ok()?;
        let [newcomers, proven] = &queues;
        if newcomers.bags.iter().any(|bag| proven.bags.contains(bag)) {
            return None;
        }
        self.set_queues(&mut self.order.lock(), queues);
        Some(())
    }

    /// Takes these bags into use.
    pub(crate) fn set_queues(&self, order: &mut Order, queues: [Queue; 2]) {
        order.queues = queues;
        let used: Vec<u8> = order.bags().collect();
        let all = (0..BAGS).rev().filter_map(|bag| u8::try_from(bag).ok());
        order.free = all.filter(|bag| !used.contains(bag)).collect();
        for part in PARTS {
            let bags = &order.of(part).bags;
            for &bag in bags {
                self.bag(bag).part.store(part as u32, Ordering::Relaxed);
            }
            if let Some(&newest) = bags.back() {
                // Release: partner of the Acquire in `newest`.
                self.newest[part as usize].store(u32::from(newest), Ordering::Release);
            }
        }
        self.note_counts(order);
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
        // The last block may not be full, and few others are not.
        let full = self.blocks.load(Ordering::Relaxed).saturating_sub(1);
        self.filled.store(full, Ordering::Relaxed);
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
