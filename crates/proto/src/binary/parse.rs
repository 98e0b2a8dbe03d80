//! Binary requests: the header, the opcode table, and the sizes that each opcode allows.

use super::opcode::{
    ADD, APPEND, DECREMENT, DELETE, FLUSH, GAT, GATK, GATKQ, GATQ, GET, GETK, GETKQ, GETQ,
    INCREMENT, NOOP, PREPEND, PREPENDQ, QUIT, REPLACE, SASL_AUTH, SASL_LIST, SASL_STEP, SET, SETQ,
    STAT, TOUCH, VERSION,
};
use super::{
    BODY_BYTES_MAX, BadRequest, Command, HEADER_BYTES, Header, Parsed, REQUEST_MAGIC, Request,
    SASL_BODY_BYTES_MAX, Status, Then,
};
use crate::{KEY_BYTES_MAX, StoreMode};

/// Reads the next request from `input`, all unconsumed bytes.
#[must_use]
pub fn parse(input: &[u8]) -> Parsed<'_> {
    if input.first().is_some_and(|magic| *magic != REQUEST_MAGIC) {
        return Parsed::BadMagic;
    }
    let Some((header, body)) = input.split_first_chunk() else {
        return Parsed::Incomplete;
    };
    let header = read_header(header);
    let bad =
        |status, then| Parsed::Bad(BadRequest { header, status, consumed: HEADER_BYTES, then });
    let extras_len = usize::from(header.extras_len);
    let key_len = usize::from(header.key_len);
    let prefix_len = u32::from(header.extras_len) + u32::from(header.key_len);
    let Some(value_len) = header.body_len.checked_sub(prefix_len) else {
        return bad(Status::UnknownCommand, Then::Close);
    };
    if header.body_len > BODY_BYTES_MAX {
        return bad(Status::InvalidArguments, Then::Close);
    }
    let (opcode, quiet) = loud(header.opcode);
    let Some(shape) = Shape::of(opcode) else {
        return bad(Status::UnknownCommand, Then::Swallow(header.body_len));
    };
    if !shape.admits(extras_len, key_len, value_len) {
        return bad(Status::InvalidArguments, Then::Close);
    }
    // The rest is at most 20 bytes of extras and a key, or a SASL body.
    let streams = matches!(shape.value, Value::Streamed);
    let whole_len = if streams { prefix_len } else { header.body_len };
    let Some(body) = usize::try_from(whole_len).ok().and_then(|len| body.get(..len)) else {
        return Parsed::Incomplete;
    };
    let (extras, rest) = body.split_at_checked(extras_len).unwrap_or_default();
    let (key, data) = rest.split_at_checked(key_len).unwrap_or_default();
    match command(opcode, extras, key, data, value_len) {
        Some(command) => Parsed::Request {
            request: Request { header, quiet, command },
            consumed: HEADER_BYTES + body.len(),
        },
        None => bad(Status::InvalidArguments, Then::Close),
    }
}

pub(super) fn read_header(bytes: &[u8; HEADER_BYTES]) -> Header {
    let [_, opcode, k0, k1, extras_len, _, r0, r1, b0, b1, b2, b3, o0, o1, o2, o3, cas @ ..] =
        *bytes;
    Header {
        opcode,
        extras_len,
        key_len: u16::from_be_bytes([k0, k1]),
        reserved: u16::from_be_bytes([r0, r1]),
        body_len: u32::from_be_bytes([b0, b1, b2, b3]),
        opaque: u32::from_be_bytes([o0, o1, o2, o3]),
        cas: u64::from_be_bytes(cas),
    }
}

/// The loud form of an opcode, and true if the opcode is quiet.
const fn loud(opcode: u8) -> (u8, bool) {
    match opcode {
        GETQ => (GET, true),
        GETKQ => (GETK, true),
        SETQ..=PREPENDQ => (quiet_to_loud(opcode), true),
        GATQ => (GAT, true),
        GATKQ => (GATK, true),
        _ => (opcode, false),
    }
}

/// 0x11..=0x1a are the quiet forms of set, add, replace, delete, increment, decrement, quit, flush,
/// append, prepend.
const fn quiet_to_loud(opcode: u8) -> u8 {
    match opcode {
        0x11..=0x18 => opcode - 0x10,
        _ => opcode - 0x0b,
    }
}

/// The sizes an opcode allows.
struct Shape {
    extras: &'static [usize],
    key: Key,
    value: Value,
}

#[derive(Clone, Copy)]
enum Key {
    None,
    Optional,
    Required,
}

#[derive(Clone, Copy)]
enum Value {
    None,
    /// Awaited and included in the request.
    Whole,
    /// Left in the input.
    Streamed,
}

impl Shape {
    /// The shape of a loud opcode; `None` if there is no such command.
    const fn of(opcode: u8) -> Option<Self> {
        let (extras, key, value): (&[usize], _, _) = match opcode {
            GET | GETK | DELETE => (&[0], Key::Required, Value::None),
            SET | ADD | REPLACE => (&[8], Key::Required, Value::Streamed),
            INCREMENT | DECREMENT => (&[20], Key::Required, Value::None),
            QUIT | NOOP | VERSION | SASL_LIST => (&[0], Key::None, Value::None),
            FLUSH => (&[0, 4], Key::None, Value::None),
            APPEND | PREPEND => (&[0], Key::Required, Value::Streamed),
            STAT => (&[0], Key::Optional, Value::None),
            TOUCH | GAT | GATK => (&[4], Key::Required, Value::None),
            SASL_AUTH | SASL_STEP => (&[0], Key::Required, Value::Whole),
            _ => return None,
        };
        Some(Self { extras, key, value })
    }

    fn admits(&self, extras_len: usize, key_len: usize, value_len: u32) -> bool {
        self.extras.contains(&extras_len)
            && match self.key {
                Key::None => key_len == 0,
                Key::Optional => key_len <= KEY_BYTES_MAX,
                Key::Required => (1..=KEY_BYTES_MAX).contains(&key_len),
            }
            && match self.value {
                Value::None => value_len == 0,
                Value::Whole => value_len <= SASL_BODY_BYTES_MAX,
                Value::Streamed => true,
            }
    }
}

/// Builds the command. `None` only if the extras do not have the form that [`Shape`] has admitted.
fn command<'b>(
    opcode: u8,
    extras: &'b [u8],
    key: &'b [u8],
    data: &'b [u8],
    value_len: u32,
) -> Option<Command<'b>> {
    let mut extras = Extras(extras);
    Some(match opcode {
        GET | GETK => Command::Get { key, with_key: opcode == GETK, exptime: None },
        GAT | GATK => Command::Get { key, with_key: opcode == GATK, exptime: Some(extras.u32()?) },
        SET | ADD | REPLACE => Command::Store {
            mode: match opcode {
                SET => StoreMode::Set,
                ADD => StoreMode::Add,
                _ => StoreMode::Replace,
            },
            key,
            flags: extras.u32()?,
            exptime: extras.u32()?,
            value_len,
        },
        DELETE => Command::Delete { key },
        INCREMENT | DECREMENT => Command::Arithmetic {
            key,
            decrement: opcode == DECREMENT,
            delta: extras.u64()?,
            initial: extras.u64()?,
            exptime: Some(extras.u32()?).filter(|exptime| *exptime != u32::MAX),
        },
        QUIT => Command::Quit,
        FLUSH => Command::Flush { exptime: extras.u32() },
        NOOP => Command::NoOp,
        VERSION => Command::Version,
        APPEND => Command::Concat { mode: StoreMode::Append, key, value_len },
        PREPEND => Command::Concat { mode: StoreMode::Prepend, key, value_len },
        STAT => Command::Stat { key },
        TOUCH => Command::Touch { key, exptime: extras.u32()? },
        SASL_LIST => Command::SaslList,
        SASL_AUTH => Command::SaslAuth { mechanism: key, data },
        SASL_STEP => Command::SaslStep { mechanism: key, data },
        _ => return None,
    })
}

/// Takes big endian numbers from the front of the extras.
struct Extras<'b>(&'b [u8]);

impl Extras<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*bytes))
    }

    fn u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*bytes))
    }
}
