//! The 8-byte frame at the head of every UDP datagram: request id, sequence number, datagram count, and two reserved
//! bytes, all big endian.
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
/// `None`, to be dropped without an answer: shorter than a frame, or part of a request of several datagrams, which
/// this server (as memcached) does not assemble.
#[must_use]
pub fn parse(datagram: &[u8]) -> Option<(Frame, &[u8])> {
    let ([id0, id1, seq0, seq1, count0, count1, _, _], payload) = datagram.split_first_chunk()?;
    let frame = Frame {
        request_id: u16::from_be_bytes([*id0, *id1]),
        sequence: u16::from_be_bytes([*seq0, *seq1]),
        count: u16::from_be_bytes([*count0, *count1]),
    };
    (frame.sequence == 0 && frame.count == 1).then_some((frame, payload))
}

/// The bytes of `frame`.
#[must_use]
pub const fn encode(frame: Frame) -> [u8; FRAME_BYTES] {
    let [id0, id1] = frame.request_id.to_be_bytes();
    let [seq0, seq1] = frame.sequence.to_be_bytes();
    let [count0, count1] = frame.count.to_be_bytes();
    [id0, id1, seq0, seq1, count0, count1, 0, 0]
}
