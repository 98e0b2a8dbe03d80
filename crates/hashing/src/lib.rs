//! Placements of keys on servers.
//!
//! Everything here is a pure function of the key and the pool, and bit-exact with the program it is
//! named after, so that a fleet that changes to holdall keeps its keys in place. A [`Placement`] is
//! built once for a pool and used once per request; a lookup allocates nothing.
//!
//! * mcrouter's: [`Placement::ch3`], `weighted_ch3`, `crc32`, `const_shard`, `rendezvous`,
//!   `weighted_rendezvous`.
//! * libmemcached's: [`Placement::ketama`], `ketama_weighted`, `ketama_spy`, `modula`, with the
//!   hashes of [`KeyHash`].
//! * twemproxy's: [`Placement::twemproxy_ketama`], `twemproxy_modula`, with the hashes of
//!   [`KeyHash`].
//! * memcached's proxy's: [`Placement::jump`].
//!
//! [`key`] selects the part of a key that is hashed: routing prefixes, the hash stop `|#|`, hash
//! tags.
#![forbid(unsafe_code)]

mod ch3;
mod continuum;
mod digest;
mod jenkins;
mod jump;
pub mod key;
mod murmur;
mod placement;
mod rendezvous;
mod spooky;

pub use ch3::{POOL_SIZE_MAX, furc_hash};
pub use continuum::libmemcached_name;
pub use digest::KeyHash;
pub use jump::{jump_hash, seed_of};
pub use placement::{Placement, PlacementError};
pub use rendezvous::rendezvous_order;
pub use spooky::{routing_hash, spooky_hash32, spooky_hash64};
