//! Restarts: a store's memory outlives its process in a file.

pub(crate) mod recover;
pub(crate) mod warm;
