//! The protocols' error texts for a value that gets no memory.

use proto::reply;
use store::DraftError;

/// The line that answers a command whose item got no memory.
pub(super) const fn line(error: DraftError) -> &'static [u8] {
    match error {
        DraftError::OutOfMemory | DraftError::TooLarge => reply::OUT_OF_MEMORY,
        DraftError::OverQuota => reply::OVER_QUOTA,
    }
}
