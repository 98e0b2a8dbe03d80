//! Memory of one store: reserved regions, the chunks in them, the words that outlive the process,
//! and the limit on all of it.

#[cfg(not(loom))]
pub(crate) mod arena;
pub(crate) mod birth;
pub(crate) mod budget;
#[cfg(not(any(loom, miri)))]
pub(crate) mod codec;
pub(crate) mod control;
pub(crate) mod region;
pub(crate) mod version;

/// Name of a chunk: its offset in the arena's granules, plus one. Zero names no chunk.
pub(crate) type ChunkRef = u32;
