//! Binary requests: every opcode, quiet variants, wrong and right cas, malformed packets.

use super::{Command, Keys, WIDE, number, value};
use testkit::Rng;

/// The parts of a request, from which the header is made.
#[derive(Debug, Clone, Default)]
pub struct Packet<'a> {
    /// The opcode.
    pub opcode: u8,
    /// Opcode-specific fields.
    pub extras: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The expected version; [`LAST_CAS`] stands for the last one from the server.
    pub cas: u64,
    /// Echoed in the reply.
    pub opaque: u32,
}

/// Replaced by the last cas unique from the server on this connection.
pub const LAST_CAS: u64 = 0xca5_ca5c_a5ca_5ca5;

impl Packet<'_> {
    /// The bytes of the request.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let key_len = u16::try_from(self.key.len()).expect("a key of a packet is short");
        let extras_len = u8::try_from(self.extras.len()).expect("extras are short");
        let body = self.extras.len() + self.key.len() + self.value.len();
        header(self.opcode, key_len, extras_len, u32::try_from(body).expect("a short body"))
            .into_iter()
            .chain(self.opaque.to_be_bytes())
            .chain(self.cas.to_be_bytes())
            .chain([self.extras, self.key, self.value].concat())
            .collect()
    }
}

/// The first twelve bytes of a request, possibly with wrong lengths.
#[must_use]
pub fn header(opcode: u8, key_len: u16, extras_len: u8, body_len: u32) -> [u8; 12] {
    let ([k0, k1], [b0, b1, b2, b3]) = (key_len.to_be_bytes(), body_len.to_be_bytes());
    [0x80, opcode, k0, k1, extras_len, 0, 0, 0, b0, b1, b2, b3]
}

const EXPTIMES: [u32; 4] = [0, 0, 100, 2_000_000_000];

/// A valid request for one of `keys`.
pub fn valid(rng: &mut Rng, keys: &Keys) -> Command {
    let (key, data) = (keys.one(rng).to_vec(), value(rng));
    let cas = *rng.pick(&[0, 0, 0, 0, LAST_CAS, 1]);
    let opaque = u32::try_from(rng.next_u64() >> 33).unwrap_or(0);
    let exptime = rng.pick(&EXPTIMES).to_be_bytes();
    let base = Packet { key: &key, opaque, ..Packet::default() };
    let packet = match rng.below(12) {
        0..=2 => Packet { opcode: *rng.pick(&[0x00, 0x09, 0x0c, 0x0d]), ..base },
        3 if rng.one_in(3) => {
            let extras = [0; 8];
            let value = number(rng);
            return Command::same(
                Packet { opcode: 0x01, extras: &extras, key: &keys.number, value, cas, opaque }
                    .bytes(),
            );
        }
        3..=5 => {
            let extras = [7_u32.to_be_bytes(), exptime].concat();
            let opcode = *rng.pick(&[0x01, 0x11, 0x02, 0x12, 0x03, 0x13]);
            return Command::same(
                Packet { opcode, extras: &extras, value: &data, cas, ..base }.bytes(),
            );
        }
        6 => Packet { opcode: *rng.pick(&[0x04, 0x14]), cas, ..base },
        7 | 8 => {
            let [delta, initial] = [*rng.pick(&[0, 1, 13]), WIDE + 1_000_000].map(u64::to_be_bytes);
            let create = rng.pick(&[0, 100, u32::MAX]).to_be_bytes();
            let extras = [delta.as_slice(), &initial, &create].concat();
            let decr = rng.one_in(2);
            let opcode = *rng.pick(if decr { &[0x06, 0x16] } else { &[0x05, 0x15] });
            let key = if decr { &keys.wide } else { &keys.number };
            return Command::same(
                Packet { opcode, extras: &extras, cas, key, opaque, value: &[] }.bytes(),
            );
        }
        9 => Packet { opcode: *rng.pick(&[0x0e, 0x19, 0x0f, 0x1a]), value: &data, cas, ..base },
        10 => {
            let opcode = *rng.pick(&[0x1c, 0x1d, 0x1e, 0x23, 0x24]);
            return Command::same(Packet { opcode, extras: &exptime, ..base }.bytes());
        }
        _ => Packet {
            opcode: *rng.pick(&[0x0a, 0x0b, 0x08, 0x18, 0x20]),
            opaque,
            ..Packet::default()
        },
    };
    Command::same(packet.bytes())
}

/// A request that the server refuses and that leaves the connection usable.
pub fn edge(rng: &mut Rng, keys: &Keys) -> Command {
    let key = keys.one(rng).to_vec();
    let opaque = u32::try_from(rng.next_u64() >> 33).unwrap_or(0);
    let base = Packet { key: &key, opaque, ..Packet::default() };
    let flags_and_time = [0; 8];
    let packet = match rng.below(24) {
        // Unknown opcodes, without a body.
        0..=3 => {
            let opcode = *rng.pick(&[0x1b, 0x1f, 0x25, 0x30, 0x3c, 0x40, 0x99, 0xff]);
            Packet { opcode, opaque, ..Packet::default() }
        }
        4..=5 => Packet { opcode: 0x20, opaque, ..Packet::default() },
        6 => Packet { opcode: 0x10, key: b"nosuch", opaque, ..Packet::default() },
        7..=11 => {
            let mut extras = [0; 20];
            extras[7] = 1;
            let opcode = *rng.pick(&[0x05, 0x06, 0x15, 0x16]);
            let bytes = Packet { opcode, extras: &extras, ..base.clone() }.bytes();
            let first = Packet { opcode: 0x11, extras: &flags_and_time, value: b"a", ..base };
            return Command::same([first.bytes(), bytes].concat());
        }
        12 => {
            let opcode = *rng.pick(&[0x01, 0x11, 0x02, 0x12, 0x03, 0x13]);
            let value = vec![b'z'; 1_049_600];
            let first = Packet { opcode, extras: &flags_and_time, value: &value, ..base.clone() };
            return Command::same([first.bytes(), base.bytes()].concat());
        }
        13 => {
            let value = vec![b'z'; 600_000];
            let first = Packet { opcode: 0x11, extras: &flags_and_time, value: &value, ..base };
            let opcode = *rng.pick(&[0x0e, 0x0f, 0x19, 0x1a]);
            let second = Packet { opcode, value: &value, key: &key, ..Packet::default() };
            // Deletes a large value, because replies that nobody reads yet would stop the stream.
            let last = Packet { opcode: 0x14, key: &key, ..Packet::default() };
            let bytes = [first.bytes(), second.bytes(), last.bytes()].concat();
            return Command::differs(bytes, &["append-too-large"]);
        }
        14..=16 => {
            let opcode = *rng.pick(&[0x02, 0x12, 0x03, 0x13]);
            Packet { opcode, extras: &flags_and_time, value: b"hi", cas: 1, ..base }
        }
        17..=18 => Packet { opcode: *rng.pick(&[0x0e, 0x19, 0x0f, 0x1a]), cas: 1, ..base },
        19 => {
            let extras = u32::MAX.to_be_bytes();
            let opcode = *rng.pick(&[0x1c, 0x1d, 0x23]);
            return Command::same(Packet { opcode, extras: &extras, ..base }.bytes());
        }
        20 => {
            let opcode = *rng.pick(&[0x08, 0x18]);
            return Command::same(
                Packet { opcode, extras: &[0; 4], opaque, ..Packet::default() }.bytes(),
            );
        }
        _ => Packet { opcode: *rng.pick(&[0x04, 0x14]), cas: 1, ..base },
    };
    Command::same(packet.bytes())
}

/// A packet that ends the connection: quit, or lengths that do not match the opcode.
pub fn closing(rng: &mut Rng) -> Command {
    let malformed = |opcode, key, extras, body| {
        [header(opcode, key, extras, body).as_slice(), &[0; 12], &vec![b'm'; body as usize]]
            .concat()
    };
    match rng.below(6) {
        0 => Command::closing(Packet { opcode: 0x07, ..Packet::default() }.bytes()),
        1 => Command::closing(Packet { opcode: 0x17, ..Packet::default() }.bytes()),
        // A get with a value, one without a key, a set without extras, a key of 251 bytes.
        2 => Command::closing(malformed(0x00, 2, 0, 4)),
        3 => Command::closing(malformed(0x00, 0, 0, 0)),
        4 => Command::closing(malformed(0x01, 3, 0, 3)),
        _ => Command::closing(malformed(0x00, 251, 0, 251)),
    }
}
