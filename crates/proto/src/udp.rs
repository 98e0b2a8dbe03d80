//! The 8-byte frame at the head of every UDP datagram: request id, sequence number, datagram count,
//! and two reserved bytes, all big endian.
//!
//! Source: memcached's `doc/protocol.txt`, "UDP protocol".

/// Bytes of the frame.
pub const FRAME_BYTES: usize = 8;

/// The frame of one datagram.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Frame {
    /// Chosen by the client; the answer repeats it.
    pub request_id: u16,
    /// Which datagram of the message this is, from 0.
    pub sequence: u16,
    /// How many datagrams the message has.
    pub count: u16,
}

/// Splits a request datagram into its frame and its payload.
///
/// `None`, to be dropped without an answer: shorter than a frame, or part of a request of several
/// datagrams, which this server (as memcached) does not assemble.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(Frame, &[u8])> {
    split(datagram).filter(|(frame, _)| frame.sequence == 0 && frame.count == 1)
}

/// Splits any datagram, a part of a reply for instance. `None` if it is shorter than a frame.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_and_its_payload() {
        let (frame, payload) = parse(b"\x12\x34\0\0\0\x01\0\0get k\r\n").unwrap();
        assert_eq!(frame, Frame { request_id: 0x1234, sequence: 0, count: 1 });
        assert_eq!(payload, b"get k\r\n");
    }

    #[test]
    fn the_reserved_bytes_are_ignored_and_answered_as_zero() {
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
