//! Allocation: where a store finds memory for an item, and how pages move between slab classes.

pub(crate) mod allocate;
pub(crate) mod balance;
mod candidate;
mod page_move;
