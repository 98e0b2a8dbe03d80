//! Eviction: passes over the bags, oldest items first.

pub(crate) mod evict;
