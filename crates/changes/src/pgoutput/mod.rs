//! PostgreSQL's logical decoding by the plugin `pgoutput`: bytes of its messages to events.

mod decoder;
mod history;
mod message;

pub use decoder::Decoder;
pub use history::{History, Stray};

/// The start of PostgreSQL's clock, the year 2000, in microseconds since 1970.
pub const EPOCH_US: i64 = 946_684_800_000_000;
