//! The logs that can be followed.

pub mod mysql;
pub mod postgres;
