//! Records of items that will die: invalidations, deleted items, short-lived items.

#[cfg(not(loom))]
pub(crate) mod deleted;
pub(crate) mod invalidation;
#[cfg(not(loom))]
pub(crate) mod transient;
