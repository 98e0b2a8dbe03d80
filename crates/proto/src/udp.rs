//! The 8-byte frame at the head of every UDP datagram, all numbers big endian:
//!
//! ```text
//!     0         2          4         6          8
//!     | request | sequence | total   | reserved | payload
//!     | id      | number   | of these| (0)      |
//! ```
//!
//! Source: memcached's `doc/protocol.txt`, "UDP protocol".

/// Bytes of the frame.
pub const FRAME_BYTES: usize = 8;

/// The frame of one datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// Chosen by the client; the answer repeats it.
    pub request_id: u16,
    /// The place of this datagram in the message, from 0.
    pub sequence: u16,
    /// The number of the message's datagrams.
    pub count: u16,
}

/// Splits a request datagram into its frame and its payload.
///
/// `None`, for a datagram to drop without an answer: shorter than a frame, or part of a request of
/// several datagrams, which this server (like memcached) does not assemble.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(Frame, &[u8])> {
    split(datagram).filter(|(frame, _)| frame.sequence == 0 && frame.count == 1)
}

/// Splits any datagram, for example a part of a reply. `None` if it is shorter than a frame.
#[must_use]
pub fn split(datagram: &[u8]) -> Option<(Frame, &[u8])> {
    let ([id0, id1, seq0, seq1, count0, count1, _, _], payload) = datagram.split_first_chunk()?;
    let frame = Frame {
        request_id: u16::from_be_bytes([*id0, *id1]),
        sequence: u16::from_be_bytes([*seq0, *seq1]),
        count: u16::from_be_bytes([*count0, *count1]),
    };
    Some((frame, payload))
}

/// The bytes of `frame`.
#[must_use]
pub const fn encode(frame: Frame) -> [u8; FRAME_BYTES] {
    let [id0, id1] = frame.request_id.to_be_bytes();
    let [seq0, seq1] = frame.sequence.to_be_bytes();
    let [count0, count1] = frame.count.to_be_bytes();
    [id0, id1, seq0, seq1, count0, count1, 0, 0]
}

/// Appends `payload` to `out` as datagrams, each `datagram_bytes` long except the last.
///
/// There is no datagram for an empty payload, or for one that needs more than the 65,535 that a
/// frame can count. `datagram_bytes` includes the frame and must be greater than [`FRAME_BYTES`].
pub fn append_reply(request_id: u16, payload: &[u8], datagram_bytes: usize, out: &mut Vec<u8>) {
    let payload_bytes = datagram_bytes.saturating_sub(FRAME_BYTES).max(1);
    let Ok(count) = u16::try_from(payload.len().div_ceil(payload_bytes)) else { return };
    out.reserve(payload.len() + usize::from(count) * FRAME_BYTES);
    for (sequence, part) in (0..count).zip(payload.chunks(payload_bytes)) {
        out.extend_from_slice(&encode(Frame { request_id, sequence, count }));
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_one_byte_over_takes_a_second_datagram() {
        for (len, want) in [(0, vec![]), (1392, vec![1400]), (1393, vec![1400, 9])] {
            let (payload, mut lens, mut whole) = (vec![7u8; len], Vec::new(), Vec::new());
            let mut reply = Vec::new();
            append_reply(9, &payload, 1400, &mut reply);
            for datagram in reply.chunks(1400) {
                let (frame, part) = split(datagram).unwrap();
                let sequence = u16::try_from(lens.len()).unwrap();
                let count = u16::try_from(want.len()).unwrap();
                assert_eq!(frame, Frame { request_id: 9, sequence, count });
                lens.push(datagram.len());
                whole.extend_from_slice(part);
            }
            assert_eq!((lens, whole), (want, payload));
        }
    }

    #[test]
    fn a_reply_with_too_many_datagrams_is_not_sent() {
        let mut reply = Vec::new();
        append_reply(9, &vec![7; 65_536 * 2], 10, &mut reply);
        assert_eq!(reply, b"");
    }

    #[test]
    fn a_datagram_is_split_into_frame_and_payload() {
        let (frame, payload) = parse(b"\x12\x34\0\0\0\x01\0\0get k\r\n").unwrap();
        assert_eq!(frame, Frame { request_id: 0x1234, sequence: 0, count: 1 });
        assert_eq!(payload, b"get k\r\n");
    }

    #[test]
    fn reserved_bytes_are_ignored_and_sent_as_zero() {
        let (frame, payload) = parse(b"\xff\xff\0\0\0\x01\x07\x08").unwrap();
        assert_eq!(payload, b"");
        assert_eq!(encode(frame), *b"\xff\xff\0\0\0\x01\0\0");
        let second = Frame { request_id: 1, sequence: 0x0203, count: 0x0405 };
        assert_eq!(encode(second), *b"\0\x01\x02\x03\x04\x05\0\0");
    }

    /// The second is CVE-2022-48571's datagram.
    #[test]
    fn short_and_split_datagrams_are_dropped() {
        let dropped: [&[u8]; 6] = [
            b"",
            b"\0\x01\0\0\0\0\0\0\0",
            b"\0\x01\0\0\0\x01\0",
            b"\0\x01\0\0\0\x02\0\0get k\r\n",
            b"\0\x01\0\x01\0\x01\0\0get k\r\n",
            b"\0\x01\0\x01\0\x02\0\0get k\r\n",
        ];
        for datagram in dropped {
            assert_eq!(parse(datagram), None, "{}", datagram.escape_ascii());
        }
    }
}
