//! Offsets in a log file above 4 GiB. A transaction is never split between files, so a large one
//! makes a large file, but the header of an event has only the low 32 bits of its offset.

use mysql_async::binlog::events::Event;

use super::event_type;

/// The largest offset at which a server can be asked to begin: `COM_BINLOG_DUMP` has 32 bits.
pub(super) const REQUESTED_MAX: u64 = u32::MAX as u64;

/// The offset after an event, in the file that was read up to `before`; none for an event that does
/// not show it.
pub(super) fn after(event: &Event, before: u64) -> Option<u64> {
    let header = event.header();
    let low = header.log_pos();
    match header.event_type_raw() {
        event_type::HEARTBEAT | event_type::HEARTBEAT_V2 => None,
        _ if low == 0 => None,
        // It is the first event of a file, also if reading starts in its middle.
        event_type::FORMAT_DESCRIPTION => Some(u64::from(low)),
        _ => Some(nearest(before, low)),
    }
}

/// The offset with these low bits that is nearest after `before`. One event is shorter than 2 GiB,
/// so a larger step back means that the low bits began again at 0.
const fn nearest(before: u64, low: u32) -> u64 {
    let offset = before & !REQUESTED_MAX | low as u64;
    if offset + (1 << 31) < before { offset + (1 << 32) } else { offset }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_grows_past_4_gib() {
        assert_eq!(nearest(4, 500), 500);
        assert_eq!(nearest(3_000_000_000, 4_294_967_000), 4_294_967_000);
        assert_eq!(nearest(4_294_967_000, 700), (1 << 32) + 700);
        assert_eq!(nearest((1 << 32) + 700, 1_500), (1 << 32) + 1_500);
        assert_eq!(nearest((2 << 32) - 1, 0x4000_0000), (2 << 32) + 0x4000_0000);
    }

    #[test]
    fn a_small_step_back_stays_in_the_same_4_gib() {
        assert_eq!(nearest(500, 400), 400);
        assert_eq!(nearest((1 << 32) + 500, 400), (1 << 32) + 400);
    }
}
