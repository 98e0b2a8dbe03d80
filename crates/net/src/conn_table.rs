//! A table of connections by small number, so that the poller's 64 bits name one without a search.

use crate::conn_id::Token;

/// A table whose free places are reused, each time under a new generation.
///
/// It has room from the start, which costs only address space, so it need not grow when there is no
/// memory. Beyond that it grows only if it can.
#[derive(Debug)]
pub(crate) struct ConnTable<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    /// The timer wheel holds this slot's number, regardless of its occupant.
    has_timer: bool,
    value: Option<T>,
}

/// No connection has this generation: the poller's other sources use it.
pub(crate) const NO_GENERATION: u32 = u32::MAX;

impl<T> ConnTable<T> {
    /// A table with room for `connections`.
    pub(crate) fn with_room(connections: usize) -> Self {
        Self { slots: Vec::with_capacity(connections), free: Vec::with_capacity(connections) }
    }

    /// True if one more connection fits without more memory.
    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.slots.len() < self.slots.capacity()
    }

    /// Makes room for `connections` more; false when there is no memory for them.
    pub(crate) fn try_grow(&mut self, connections: usize) -> bool {
        // Room for all to be free, so that freeing one allocates nothing.
        let free = self.slots.len() + connections - self.free.len();
        self.slots.try_reserve_exact(connections).is_ok()
            && self.free.try_reserve_exact(free).is_ok()
    }

    /// The token that the next [`Self::insert`] will use.
    pub(crate) fn next_token(&self) -> Token {
        match self.free.last() {
            Some(&slot) => Token { slot, generation: self.slots[slot as usize].generation },
            None => {
                // A slot is a connection, and a process has far fewer descriptors than 2^32.
                assert!(self.slots.len() <= u32::MAX as usize, "too many connections");
                #[allow(clippy::cast_possible_truncation, reason = "just checked")]
                let slot = self.slots.len() as u32;
                Token { slot, generation: 0 }
            }
        }
    }

    pub(crate) fn insert(&mut self, value: T) -> Token {
        let token = self.next_token();
        if self.free.pop().is_some() {
            self.slots[token.slot as usize].value = Some(value);
        } else {
            self.slots.push(Slot { generation: 0, has_timer: false, value: Some(value) });
        }
        token
    }

    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let slot = self.slots.get_mut(token.slot as usize)?;
        if slot.generation == token.generation { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<T> {
        let slot = self.slots.get_mut(token.slot as usize)?;
        if slot.generation != token.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) % NO_GENERATION;
        self.free.push(token.slot);
        Some(value)
    }

    /// The occupant of a slot, regardless of its generation.
    pub(crate) fn occupant(&self, slot: u32) -> Option<(Token, &T)> {
        let found = self.slots.get(slot as usize)?;
        let value = found.value.as_ref()?;
        Some((Token { slot, generation: found.generation }, value))
    }

    /// Sets the flag that the timer wheel holds `slot`; returns the old one.
    pub(crate) fn set_timer(&mut self, slot: u32, has_timer: bool) -> bool {
        match self.slots.get_mut(slot as usize) {
            Some(found) => std::mem::replace(&mut found.has_timer, has_timer),
            None => true,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        (0u32..).zip(&self.slots).filter_map(|(slot, found)| {
            let value = found.value.as_ref()?;
            Some((Token { slot, generation: found.generation }, value))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_has_grown_keeps_its_connections() {
        let mut slots = ConnTable::with_room(1);
        let first = slots.insert('a');
        assert!(!slots.has_room() && slots.try_grow(100) && slots.has_room());
        assert!(!slots.try_grow(isize::MAX as usize), "more than the address space was granted");
        assert_eq!(slots.get_mut(first), Some(&mut 'a'));
        slots.remove(first);
        assert_eq!(slots.insert('b').slot, first.slot);
    }

    #[test]
    fn a_reused_slot_refuses_the_old_token() {
        let mut slots = ConnTable::with_room(2);
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
