//! Reaping: freeing dead items, wherever they lie.

pub(crate) mod deleted;
pub(crate) mod flush;
pub(crate) mod transient;
pub(crate) mod walk;
