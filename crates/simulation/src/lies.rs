//! Wrong replies of simulated servers, each of a kind that a client can detect.

use testkit::Rng;

/// What a reply says of the question that it answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Tells {
    /// Its key, or, of a packet, its number.
    Key,
    /// Nothing but its kind.
    Nothing,
    /// A number that could be any counter's.
    Number,
}

/// An honest reply to one question.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    tells: Tells,
    is_packet: bool,
}

impl Reply {
    /// In text.
    pub(crate) fn new(tells: Tells, bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), tells, is_packet: false }
    }

    /// In the binary protocol.
    pub(crate) fn packet(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), tells: Tells::Key, is_packet: true }
    }

    /// With other letters for those of the key, and of the value.
    fn of_another_key(&self) -> Vec<u8> {
        // All keys begin so, and nothing else does.
        let swapped = self.bytes.windows(2).enumerate().filter(|(_, two)| two == b"k:");
        let places: Vec<_> = swapped.map(|(place, _)| place).collect();
        let mut bytes = self.bytes.clone();
        places.into_iter().for_each(|place| bytes[place] = b'q');
        bytes
    }

    /// A key stands in it by which the client can tell.
    fn has_key(&self) -> bool {
        if self.is_packet { self.bytes[2..4] != [0, 0] } else { self.tells == Tells::Key }
    }

    /// A length that is not the data's, and at whose end none of ours can end.
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

    /// Where the first line tells a length, and which.
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

/// Says something else, or something more; true when the connection ends with it.
pub(crate) fn tell(honest: &Reply, out: &mut Vec<u8>, rng: &mut Rng) -> bool {
    match rng.below(8) {
        0 if honest.has_key() => out.extend(honest.of_another_key()),
        1 if honest.is_packet || honest.length().is_some() => {
            out.extend(honest.of_another_length(rng))
        }
        2 if honest.tells == Tells::Key => {
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
