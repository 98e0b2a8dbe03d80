//! Wrong replies of simulated servers, all of kinds that a client can detect.

use testkit::Rng;

/// The information in a reply about its question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Identifies {
    /// Its key, or, in a packet, its number.
    Key,
    /// Only its kind.
    Nothing,
    /// A number that any counter could have.
    Number,
}

/// An honest reply to one question.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    tells: Identifies,
    is_packet: bool,
}

impl Reply {
    /// A reply in text.
    pub(crate) fn new(tells: Identifies, bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), tells, is_packet: false }
    }

    /// A reply in the binary protocol.
    pub(crate) fn packet(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), tells: Identifies::Key, is_packet: true }
    }

    /// The reply with other letters in the key and the value.
    fn of_another_key(&self) -> Vec<u8> {
        // All keys start with these bytes, and nothing else does.
        let swapped = self.bytes.windows(2).enumerate().filter(|(_, two)| two == b"k:");
        let places: Vec<_> = swapped.map(|(place, _)| place).collect();
        let mut bytes = self.bytes.clone();
        places.into_iter().for_each(|place| bytes[place] = b'q');
        bytes
    }

    /// Returns true if it contains a key that the client can check.
    fn has_key(&self) -> bool {
        if self.is_packet { self.bytes[2..4] != [0, 0] } else { self.tells == Identifies::Key }
    }

    /// The reply with a wrong length, at whose end no unit can end.
    fn of_another_length(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        if self.is_packet {
            // A body shorter than the key, or longer than any limit. Any other length is valid.
            let len: u32 = if rng.one_in(2) { 1 } else { 0x7fff_ffff };
            bytes[8..12].copy_from_slice(&len.to_be_bytes());
            return bytes;
        }
        let Some((at, len)) = self.length() else { return bytes };
        let told = match rng.below(4) {
            0 => (len - 1).to_string(),
            1 => (len + 7).to_string(),
            2 => "2147483640".to_owned(),
            _ => "18446744073709551617".to_owned(),
        };
        bytes.splice(at..at + len.to_string().len(), told.into_bytes());
        bytes
    }

    /// The position of the length in the first line, and its value.
    fn length(&self) -> Option<(usize, usize)> {
        let line = self.bytes.split(|byte| *byte == b'\r').next()?;
        let place = match line.split(|byte| *byte == b' ').next()? {
            b"VALUE" => 3,
            b"VA" => 1,
            _ => return None,
        };
        let before: usize = line.split(|byte| *byte == b' ').take(place).map(|w| w.len() + 1).sum();
        let word = line.get(before..)?.split(|byte| *byte == b' ').next()?;
        Some((before, str::from_utf8(word).ok()?.parse().ok()?))
    }
}

/// Sends a different reply, or additional bytes; returns true if the connection ends with it.
pub(crate) fn tell(honest: &Reply, out: &mut Vec<u8>, rng: &mut Rng) -> bool {
    match rng.below(8) {
        0 if honest.has_key() => out.extend(honest.of_another_key()),
        1 if honest.is_packet || honest.length().is_some() => {
            out.extend(honest.of_another_length(rng))
        }
        2 if honest.tells == Identifies::Key => {
            out.extend_from_slice(&honest.bytes);
            out.extend_from_slice(&honest.bytes);
        }
        3 if honest.has_key() => {
            out.extend_from_slice(&honest.bytes);
            out.extend(honest.of_another_key());
        }
        4 => out.extend_from_slice(b"\x01\x02garbage\r\n"),
        5 => out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        6 => {
            out.extend_from_slice(&honest.bytes);
            out.extend_from_slice(b"nonsense\r\n");
        }
        _ => {
            out.extend_from_slice(&honest.bytes[..rng.below(honest.bytes.len())]);
            return true;
        }
    }
    false
}
