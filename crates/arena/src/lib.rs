//! Memory of one store: reserved regions, the chunks in them, the words that outlive the process,
//! the limit on all of it, and the moment from which unlinked memory may be written again.
//!
//! # Layers
//!
//! Each module imports only modules above it in this list, or to its left:
//!
//! ```text
//!     sync  barrier  uniques                 atomics and locks; a fence; numbers given once
//!     birth  budget  codec  control          codes of births; the limit; words beside the items
//!     version  region                        cas uniques with their marks; reserved memory
//!     names                                  what references to chunks mean
//!     chunks  blocks                         chunks and their headers; lists of chunks
//!     qsbr  retired                          grace periods, and what waits for their end
//!     kept                                   free chunks that a thread keeps
//! ```
//!
//! Tests use two more: `lines` counts cache lines that threads contend for, and `schedule` lets a
//! test choose which thread runs.
//!
//! Safe functions stay sound for any arguments. ARCHITECTURE.md lists the files with unsafe code.
#![deny(unsafe_code)]

mod barrier;
pub mod birth;
pub mod blocks;
pub mod budget;
#[cfg(not(loom))]
pub mod chunks;
pub mod codec;
pub mod control;
pub mod kept;
#[cfg(all(not(loom), feature = "schedule"))]
pub mod lines;
#[cfg(not(loom))]
pub mod names;
pub mod qsbr;
pub mod region;
pub mod retired;
#[cfg(all(not(loom), feature = "schedule"))]
pub mod schedule;
pub mod sync;
pub mod uniques;
pub mod version;

/// Name of a chunk (see [`names`]). Zero names no chunk.
pub type ChunkRef = u32;

/// Bytes of a cache line.
#[cfg(not(loom))]
pub(crate) const LINE_BYTES: usize = 64;
