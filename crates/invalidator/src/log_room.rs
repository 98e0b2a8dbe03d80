//! The space that a database leaves to its log before it removes undelivered parts of it.

/// The space that a database's log has left before the database removes it unread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRoom {
    /// Bytes that may still be written.
    pub bytes: u64,
    /// True when less than a quarter is left.
    pub is_short: bool,
}
