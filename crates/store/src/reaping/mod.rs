//! Passes over items, wherever they lie: dead ones are freed, and namespaces counted.

pub(crate) mod deleted;
pub(crate) mod flush;
pub(crate) mod recount;
pub(crate) mod transient;
pub(crate) mod walk;
