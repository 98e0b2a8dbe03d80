//! UDP: memcached's 8-byte frame, replies cut into datagrams, and the limit that keeps us from being an amplifier.
//!
//! ```text
//!     0         2          4         6          8
//!     | request | sequence | total   | reserved | payload up to 1392 bytes
//!     | id      | number   | of these| (0)      |
//! ```
//!
//! The sender's address can be forged, so a reply is at most [`DatagramReply::limit`] bytes, one datagram unless the
//! server was told otherwise. No state is kept between datagrams.
//!
//! Source: memcached `doc/protocol.txt`, "UDP protocol"; `UDP_MAX_PAYLOAD_SIZE` and the split in `memcached.c`.

/// Bytes of memcached's frame.
pub const FRAME_BYTES: usize = 8;

/// Largest datagram sent, frame included, in bytes.
pub const DATAGRAM_BYTES: usize = 1400;

/// Payload bytes of one datagram.
pub const DATAGRAM_PAYLOAD: usize = DATAGRAM_BYTES - FRAME_BYTES;

/// A reply buffer that has grown past this is given back, in bytes.
const KEPT_BYTES: usize = 64 * 1024;

/// The reply to one datagram, without frames.
#[derive(Debug)]
pub struct DatagramReply {
    buf: Vec<u8>,
    limit: usize,
}

impl DatagramReply {
    /// An empty reply of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buf: Vec::new(), limit }
    }

    /// Where the reply is appended. A reply longer than the limit is dropped and counted, so a service that wants to
    /// say so replaces it by an error line.
    pub fn buf(&mut self) -> &mut Vec<u8> {
        &mut self.buf
    }

    /// Most payload bytes that will be sent to this peer.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Changes the limit for this reply, in bytes: for a peer the service trusts.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What was appended, if it may be sent.
    pub(crate) fn payload(&self) -> Option<&[u8]> {
        (self.buf.len() <= self.limit).then_some(&self.buf)
    }

    pub(crate) fn reset(&mut self, limit: usize) {
        self.buf.clear();
        self.buf.shrink_to(KEPT_BYTES);
        self.limit = limit;
    }
}

/// Splits a request into its id and payload. `None` when it is too short for a frame or not the only datagram of its
/// request: those are dropped, as memcached does.
#[must_use]
pub fn parse_frame(datagram: &[u8]) -> Option<(u16, &[u8])> {
    let (frame, payload) = datagram.split_first_chunk::<FRAME_BYTES>()?;
    let [id_high, id_low, _, _, total_high, total_low, _, _] = *frame;
    let total = u16::from_be_bytes([total_high, total_low]);
    (total == 1).then_some((u16::from_be_bytes([id_high, id_low]), payload))
}

/// Appends `payload` to `out` as datagrams, each [`DATAGRAM_BYTES`] long but the last. An empty payload makes none, and one
/// that needs more than 65,535 datagrams, which the frame cannot count, neither.
pub fn frame(request_id: u16, payload: &[u8], out: &mut Vec<u8>) {
    let Ok(total) = u16::try_from(payload.len().div_ceil(DATAGRAM_PAYLOAD)) else { return };
    out.reserve(payload.len() + usize::from(total) * FRAME_BYTES);
    for (sequence, part) in (0..total).zip(payload.chunks(DATAGRAM_PAYLOAD)) {
        out.extend_from_slice(&request_id.to_be_bytes());
        out.extend_from_slice(&sequence.to_be_bytes());
        out.extend_from_slice(&total.to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_two_datagrams_is_dropped() {
        assert_eq!(
            parse_frame(b"\x12\x34\0\0\0\x01\0\0get k\r\n"),
            Some((0x1234, &b"get k\r\n"[..]))
        );
        assert_eq!(parse_frame(b"\x12\x34\0\0\0\x02\0\0get k\r\n"), None);
        assert_eq!(parse_frame(b"\x12\x34\0\0\0\x01\0"), None);
    }

    #[test]
    fn a_reply_one_byte_over_takes_a_second_datagram() {
        for (len, want) in [(0, vec![]), (1392, vec![1400]), (1393, vec![1400, 9])] {
            let (payload, mut lens, mut whole) = (vec![7u8; len], Vec::new(), Vec::new());
            let mut framed = Vec::new();
            frame(9, &payload, &mut framed);
            for datagram in framed.chunks(DATAGRAM_BYTES) {
                assert_eq!(datagram[..2], [0, 9]);
                assert_eq!(usize::from(datagram[3]), lens.len());
                assert_eq!(usize::from(datagram[5]), want.len());
                lens.push(datagram.len());
                whole.extend_from_slice(&datagram[FRAME_BYTES..]);
            }
            assert_eq!(lens, want);
            assert_eq!(whole, payload);
        }
    }
}
