//! The names of a worker's connections.

/// Names one connection of a worker. The generation distinguishes it from earlier connections in
/// the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl Token {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.slot)
    }

    pub(crate) fn from_u64(bits: u64) -> Self {
        Self { slot: (bits & 0xffff_ffff) as u32, generation: (bits >> 32) as u32 }
    }
}

/// Names a connection of this worker: [`crate::Output::conn_id`] returns it,
/// [`crate::Service::after_turn`] uses it. It is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnId(pub(crate) Token);
