//! A connection without a socket, for tests of a service. Only the feature `simulation` has it.

use crate::conn_id::{ConnId, Token};

/// A connection without a socket, which takes as many bytes as it has room for.
#[derive(Debug)]
pub struct SimulatedSocket {
    /// The connection's name.
    pub conn: ConnId,
    /// The number of bytes that it still takes.
    pub room: usize,
    /// Bytes that were taken.
    pub taken: Vec<u8>,
    /// Bytes that wait for room, before all later ones.
    pub pending: Vec<u8>,
}

impl SimulatedSocket {
    /// The connection with this number, which takes nothing yet.
    #[must_use]
    pub fn new(number: u32) -> Self {
        let conn = ConnId(Token { slot: number, generation: 0 });
        Self { conn, room: 0, taken: Vec::new(), pending: Vec::new() }
    }

    /// Takes the bytes that wait for room, as far as there is some. True if none are left.
    pub fn take_pending(&mut self) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let taken = self.take(&pending);
        self.pending.extend_from_slice(&pending[taken..]);
        self.pending.is_empty()
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.room);
        self.taken.extend_from_slice(&bytes[..count]);
        self.room -= count;
        count
    }
}
