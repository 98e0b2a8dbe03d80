//! Reclamation: when the memory of an unlinked item may be reused.

pub(crate) mod qsbr;
#[cfg(not(loom))]
pub(crate) mod retired;
