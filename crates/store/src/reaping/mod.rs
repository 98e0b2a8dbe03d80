//! Passes over all items, wherever they lie: they free dead items and count namespaces.

pub(crate) mod deleted;
pub(crate) mod recount;
pub(crate) mod transient;
pub(crate) mod walk;
