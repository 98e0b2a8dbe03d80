//! The protocols' error texts for a value, or a hold-off, that gets no memory.

use engine::NoRoom;
use proto::reply;
use store::DraftError;

/// The line that answers a command whose item got no memory.
pub(super) const fn line(error: DraftError) -> &'static [u8] {
    match error {
        DraftError::OutOfMemory | DraftError::TooLarge => reply::OUT_OF_MEMORY,
        DraftError::OverQuota => reply::OVER_QUOTA,
    }
}

/// The line that answers a delete that left no room for something else.
pub(super) const fn only_deleted(lacking: NoRoom) -> &'static [u8] {
    match lacking {
        NoRoom::EmptyItem => reply::NO_ROOM_FOR_EMPTY_ITEM,
        NoRoom::HoldOff => reply::NO_ROOM_FOR_HOLD_OFF,
    }
}
