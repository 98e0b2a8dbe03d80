//! A table of connections by small number, so that the poller's 64 bits name one without a search.

use crate::conn_id::Token;

/// A growing table whose free places are used again, each time under a new generation.
///
/// It grows by small blocks that stay where they are. A table in one piece would double, and ask
/// for a megabyte at a time at which a connection could still be served.
#[derive(Debug)]
pub(crate) struct ConnTable<T> {
    blocks: Vec<Box<[Slot<T>]>>,
    /// Slots that were used; the others are behind them.
    begun: usize,
    /// Used slots that are free. There is room for all, so that giving one back allocates nothing.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// The timer wheel holds this slot's number, whoever lives in it.
    has_timer: bool,
    value: Option<T>,
}

/// Slots of a block: some ten kilobytes of connections.
const BLOCK_SLOTS: usize = 64;

/// No connection has this generation: the poller's other sources use it.
pub(crate) const NO_GENERATION: u32 = u32::MAX;

impl<T> ConnTable<T> {
    pub(crate) fn new() -> Self {
        Self { blocks: Vec::new(), begun: 0, free: Vec::new() }
    }

    /// Makes room for one more connection; false when there is no memory for it.
    pub(crate) fn try_make_room(&mut self) -> bool {
        let slots = self.blocks.len() * BLOCK_SLOTS;
        if !self.free.is_empty() || self.begun < slots {
            return true;
        }
        let mut block = Vec::new();
        let has_memory = block.try_reserve_exact(BLOCK_SLOTS).is_ok()
            && self.blocks.try_reserve(1).is_ok()
            && self.free.try_reserve(slots + BLOCK_SLOTS).is_ok();
        if has_memory {
            block.resize_with(BLOCK_SLOTS, || Slot {
                generation: 0,
                has_timer: false,
                value: None,
            });
            self.blocks.push(block.into_boxed_slice());
        }
        has_memory
    }

    fn slot(&self, slot: u32) -> Option<&Slot<T>> {
        self.blocks.get(slot as usize / BLOCK_SLOTS)?.get(slot as usize % BLOCK_SLOTS)
    }

    fn slot_mut(&mut self, slot: u32) -> Option<&mut Slot<T>> {
        self.blocks.get_mut(slot as usize / BLOCK_SLOTS)?.get_mut(slot as usize % BLOCK_SLOTS)
    }

    /// The token that the next [`Self::insert`] will use.
    pub(crate) fn next_token(&self) -> Token {
        let slot = self.free.last().copied().unwrap_or_else(|| {
            // A slot is a connection, and a process has far fewer descriptors than 2^32.
            assert!(self.begun <= u32::MAX as usize, "too many connections");
            #[allow(clippy::cast_possible_truncation, reason = "just checked")]
            let slot = self.begun as u32;
            slot
        });
        Token { slot, generation: self.slot(slot).map_or(0, |slot| slot.generation) }
    }

    /// Takes a connection in, for which [`Self::try_make_room`] made room.
    ///
    /// # Panics
    ///
    /// When there is no room, and no memory for any.
    pub(crate) fn insert(&mut self, value: T) -> Token {
        let has_room = self.try_make_room();
        assert!(has_room, "no memory for a connection that was let in");
        let token = self.next_token();
        if self.free.pop().is_none() {
            self.begun += 1;
        }
        if let Some(slot) = self.slot_mut(token.slot) {
            slot.value = Some(value);
        }
        token
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slot_mut(token.slot)?;
        if slot.generation == token.generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slot_mut(token.slot)?;
        if slot.generation != token.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % NO_GENERATION;
        self.free.push(token.slot);
        Some(value)
    }

    /// The occupant of a slot, whatever its generation.
    pub(crate) fn occupant(&self, slot: u32) -> Option<(Token, &T)> {
        let found = self.slot(slot)?;
        let value = found.value.as_ref()?;
        Some((Token { slot, generation: found.generation }, value))
    }

    /// Sets whether the timer wheel holds `slot`; returns what it was.
    pub(crate) fn set_timer(&mut self, slot: u32, has_timer: bool) -> bool {
        match self.slot_mut(slot) {
            Some(found) => std::mem::replace(&mut found.has_timer, has_timer),
            None => true,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        (0u32..).zip(self.blocks.iter().flatten()).filter_map(|(slot, found)| {
            let value = found.value.as_ref()?;
            Some((Token { slot, generation: found.generation }, value))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.begun - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_beyond_a_block_are_found() {
        let mut slots = ConnTable::new();
        let tokens: Vec<_> = (0..1000).map(|number| slots.insert(number)).collect();
        for (number, token) in (0..).zip(&tokens) {
            assert_eq!(slots.get_mut(*token), Some(&mut number.clone()));
        }
        for token in &tokens[100..] {
            slots.remove(*token);
        }
        assert_eq!((slots.len(), slots.iter().count()), (100, 100));
        assert!(slots.insert(7).slot >= 100);
    }

    #[test]
    fn a_used_again_slot_refuses_the_old_token() {
        let mut slots = ConnTable::new();
        let (first, second) = (slots.insert('a'), slots.insert('b'));
        assert_eq!(slots.remove(first), Some('a'));
        assert_eq!(slots.remove(first), None);
        let third = slots.insert('c');
        assert_eq!(third.slot, first.slot);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.get_mut(third), Some(&mut 'c'));
        assert_eq!(slots.get_mut(second), Some(&mut 'b'));
        assert_eq!(slots.len(), 2);
    }
}
