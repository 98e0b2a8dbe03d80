//! The logs that can be followed.

pub mod lines;
pub mod mysql;
pub mod postgres;
mod recheck;
mod rotation;
pub mod ssl_mode;
