//! Pins: a large value stays readable after its section, while it is being sent.
#![allow(unsafe_code, reason = "on the unsafe list in ARCHITECTURE.md")]

use crate::thread::ThreadState;
use arena::ChunkRef;
use arena::chunks::{PIECE_AT, PIECE_BYTES, chain};
use arena::sync::Ordering;
use std::cell::Cell;
use std::rc::Rc;

/// A chained value kept for sending. It belongs to the thread that made it.
pub struct Pin {
    thread: Rc<ThreadState>,
    head: ChunkRef,
    value_len: usize,
    first: ChunkRef,
    /// A known piece: its number in the chain and its chunk.
    at: Cell<(usize, ChunkRef)>,
}

impl std::fmt::Debug for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pin").field("value_len", &self.value_len).finish_non_exhaustive()
    }
}

impl Pin {
    /// The pin of the chained item with this head, whose pins already count it.
    pub(crate) fn counted(
        thread: &Rc<ThreadState>,
        head: ChunkRef,
        value_len: usize,
        first: ChunkRef,
    ) -> Self {
        Self { thread: Rc::clone(thread), head, value_len, first, at: Cell::new((0, first)) }
    }

    /// Bytes of the value.
    #[must_use]
    pub fn value_len(&self) -> usize {
        self.value_len
    }

    /// The bytes from `offset` to the end of their piece; empty at or past the end of the value.
    #[must_use]
    pub fn bytes_at(&self, offset: usize) -> &[u8] {
        if offset >= self.value_len {
            return &[];
        }
        let arena = &self.thread.store.arena;
        let wanted = offset / PIECE_BYTES;
        let (mut number, mut piece) = self.at.get();
        if number > wanted {
            (number, piece) = (0, self.first);
        }
        while number < wanted {
            (piece, _) = arena.piece(piece);
            number += 1;
        }
        self.at.set((number, piece));
        let (_, len) = arena.piece(piece);
        let from = offset % PIECE_BYTES;
        // SAFETY: the pin, counted in the head, keeps head and pieces from being freed while `self`
        // lives.
        unsafe { arena.bytes(arena.header(piece), PIECE_AT + from, len - from) }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // Release: partner of the Acquire in `Arena::is_pinned`; our reads come before a reuse.
        let arena = &self.thread.store.arena;
        arena.word(arena.header(self.head), chain::PINS).fetch_sub(1, Ordering::Release);
    }
}
