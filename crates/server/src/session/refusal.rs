//! The words of the protocols for a value that gets no memory.

use proto::reply;
use store::DraftError;

/// The line that answers a command which was to make an item.
pub(super) const fn line(error: DraftError) -> &'static [u8] {
    match error {
        DraftError::OutOfMemory | DraftError::TooLarge => reply::OUT_OF_MEMORY,
        DraftError::OverQuota => reply::OVER_QUOTA,
    }
}
