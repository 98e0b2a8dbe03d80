//! Allocation: where a store finds memory for an item, and how pages move between slab classes.

mod age_after_page;
pub(crate) mod ahead;
pub(crate) mod allocate;
mod candidate;
mod page_move;
pub(crate) mod rebalance;
mod store_rate;
