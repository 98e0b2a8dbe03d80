//! Allocation: where a store finds memory for an item, and how pages move between slab classes.

pub(crate) mod ahead;
pub(crate) mod allocate;
mod candidate;
mod depth;
mod page_move;
pub(crate) mod rebalance;
