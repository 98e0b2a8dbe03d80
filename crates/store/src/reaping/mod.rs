//! Reaping: freeing dead items, wherever they lie.

pub(crate) mod walk;
