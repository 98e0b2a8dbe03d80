//! Eviction: passes over the bags of a class, oldest items first.
//!
//! Evictions by storing threads ([`evict`]) and the cleaner's rounds ([`clean`]) examine the items
//! of settled bags under the list's order lock, and judge each ([`scan`]) under its key's stripe. A
//! dead item is freed, and a touched one moves to the bag that its mark names. An untouched item is
//! evicted by a pass that needs memory, and stays in place in one that cleans.

pub(crate) mod clean;
pub(crate) mod evict;
pub(crate) mod scan;
pub(crate) mod victim;
