//! A request as a packet of the binary protocol, and the meaning of its answer.
//!
//! `ms`, `ma`, `mg` and `md` with plain flags have packets; leases, hold-offs and the other meta
//! flags have none.

use std::io::Write;

use proto::answer::MetaCode;
use proto::binary::answer::Response;
use proto::binary::opcode as code;
use proto::binary::{Status, request};
use proto::meta::Options;
use proto::number::write_u64;
use proto::text::Words;
use proto::{StoreMode, base64};

use crate::reply::{Outcome, Reply};
use crate::request::Request;
use narrow::to_u32;
use proto::{Command, Failure};

/// Buffers for parts of a reply that its packet does not contain in the same bytes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    value: Vec<u8>,
    words: Vec<u8>,
}

/// The parts of the request that its answer needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    pub(crate) op: Command,
    pub(crate) opcode: u8,
    pub(crate) key: &'a [u8],
    /// The words of a meta command.
    pub(crate) words: &'a [u8],
}

/// Appends `request` with this number, value included. Returns the command's number: NOOP for
/// requests without a packet.
pub(crate) fn write(out: &mut Vec<u8>, request: &Request<'_>, opaque: u32) -> u8 {
    let exptime = expiry(request.exptime).to_be_bytes();
    let (opcode, cas): (u8, u64) = match request.op {
        Command::Get | Command::Gets => (code::GETK, 0),
        Command::Gat | Command::Gats => (code::GAT, 0),
        Command::Touch => (code::TOUCH, 0),
        Command::Set => (code::SET, 0),
        Command::Cas => (code::SET, condition(request.number)),
        Command::Add => (code::ADD, 0),
        Command::Replace => (code::REPLACE, 0),
        Command::Append => (code::APPEND, 0),
        Command::Prepend => (code::PREPEND, 0),
        Command::Delete if request.exptime <= 0 => (code::DELETE, 0),
        Command::Incr => (code::INCREMENT, 0),
        Command::Decr => (code::DECREMENT, 0),
        Command::FlushAll if request.key.is_empty() => (code::FLUSH, 0),
        Command::Version => (code::VERSION, 0),
        Command::MetaArithmetic | Command::MetaDelete | Command::MetaGet | Command::MetaSet => {
            if let Some(opcode) = write_meta(out, request, opaque) {
                return opcode;
            }
            (code::NOOP, 0)
        }
        Command::Delete
        | Command::FlushAll
        | Command::LeaseGet
        | Command::LeaseSet
        | Command::MetaDebug
        | Command::MetaInfo => (code::NOOP, 0),
    };
    let mut extras = Extras::default();
    match opcode {
        code::GAT | code::TOUCH => extras.add(&exptime),
        code::SET | code::ADD | code::REPLACE => {
            extras.add(&request.flags.to_be_bytes());
            extras.add(&exptime);
        }
        code::INCREMENT | code::DECREMENT => extras.count(request.number, None),
        code::FLUSH if request.exptime > 0 => extras.add(&exptime),
        _ => {}
    }
    let is_noop = opcode == code::NOOP;
    let (key, value) = if is_noop { (&b""[..], &b""[..]) } else { (request.key, request.value) };
    let value = if request.op.has_value() { value } else { b"" };
    // `dialect::fits_packet` has refused longer ones.
    let value_len = to_u32(value.len());
    request::write(out, opcode, opaque, cas, extras.get(), key, value_len);
    out.extend_from_slice(value);
    opcode
}

/// Writes a meta command whose flags all have a meaning in a packet.
fn write_meta(out: &mut Vec<u8>, request: &Request<'_>, opaque: u32) -> Option<u8> {
    let known: &[u8] = match request.op {
        Command::MetaArithmetic => b"CDJMNObckv",
        Command::MetaDelete => b"CObk",
        Command::MetaGet => b"OTbcfksv",
        _ => b"CFMOTbck",
    };
    let words = Words::new(request.words);
    if !words.clone().all(|word| word.first().is_some_and(|letter| known.contains(letter))) {
        return None;
    }
    let (options, mode) = Options::parse(words).ok()?;
    let letter = mode.and_then(|mode| mode.first().copied());
    let exptime = expiry(options.exptime.unwrap_or(0)).to_be_bytes();
    let mut extras = Extras::default();
    let opcode = match request.op {
        Command::MetaGet if options.exptime.is_some() => {
            extras.add(&exptime);
            code::GAT
        }
        Command::MetaGet => code::GET,
        Command::MetaDelete => code::DELETE,
        Command::MetaArithmetic => {
            let create = options
                .autoviv_exptime
                .map(|exptime| (options.initial.unwrap_or(0), expiry(exptime).min(u32::MAX - 1)));
            extras.count(options.delta.unwrap_or(1), create);
            match letter {
                None | Some(b'I' | b'+') => code::INCREMENT,
                Some(b'D' | b'-') => code::DECREMENT,
                Some(_) => return None,
            }
        }
        _ => match store_mode(letter)? {
            StoreMode::Append => code::APPEND,
            StoreMode::Prepend => code::PREPEND,
            // With a cas unique, only a packet's set has the meaning of meta's.
            StoreMode::Add | StoreMode::Replace if options.compare_cas.is_some() => return None,
            mode => {
                extras.add(&options.client_flags.unwrap_or(0).to_be_bytes());
                extras.add(&exptime);
                match mode {
                    StoreMode::Add => code::ADD,
                    StoreMode::Replace => code::REPLACE,
                    _ => code::SET,
                }
            }
        },
    };
    let value = if request.op.has_value() { request.value } else { b"" };
    // `dialect::fits_packet` has refused longer ones.
    let value_len = to_u32(value.len());
    let cas = options.compare_cas.map_or(0, condition);
    request::write(out, opcode, opaque, cas, extras.get(), request.key, value_len);
    out.extend_from_slice(value);
    Some(opcode)
}

const fn store_mode(letter: Option<u8>) -> Option<StoreMode> {
    Some(match letter {
        None | Some(b'S') => StoreMode::Set,
        Some(b'A') => StoreMode::Append,
        Some(b'E') => StoreMode::Add,
        Some(b'P') => StoreMode::Prepend,
        Some(b'R') => StoreMode::Replace,
        Some(_) => return None,
    })
}

/// A cas unique as a condition. In a packet, 0 is no condition; no item has 0 as its unique, nor
/// the maximum.
const fn condition(unique: u64) -> u64 {
    if unique == 0 { u64::MAX } else { unique }
}

/// An expiry time without a sign: a time long ago for an item that expires at once.
fn expiry(exptime: i64) -> u32 {
    if exptime < 0 { LONG_AGO } else { u32::try_from(exptime).unwrap_or(u32::MAX) }
}

/// A second of January 31st, 1970: the lowest number that is a time, not a span.
const LONG_AGO: u32 = 30 * 24 * 3600 + 1;

/// The bytes before a packet's key.
#[derive(Debug, Default)]
struct Extras {
    bytes: [u8; 20],
    len: usize,
}

impl Extras {
    fn add(&mut self, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(self.len).zip(bytes) {
            *to = *from;
        }
        self.len += bytes.len();
    }

    /// Appends the amount to count by, and the value and lifetime of a created item, if any.
    fn count(&mut self, delta: u64, create: Option<(u64, u32)>) {
        let (initial, exptime) = create.unwrap_or((0, u32::MAX));
        self.add(&delta.to_be_bytes());
        self.add(&initial.to_be_bytes());
        self.add(&exptime.to_be_bytes());
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// The reply in `response` to `question`; `None` if it cannot be the answer.
pub(crate) fn read<'a>(
    question: &Question<'_>,
    response: &Response<'a>,
    scratch: &'a mut Scratch,
) -> Option<Reply<'a>> {
    let Question { op, key, .. } = *question;
    if !response.key.is_empty() && response.key != key {
        return None;
    }
    if question.opcode == code::NOOP {
        return Some(Reply::refused(no_packet_reason(op)));
    }
    let outcome = match response.status {
        Some(Status::Ok) => done(op),
        Some(Status::NotFound) => missing(question)?,
        Some(Status::NotStored) if op.has_value() || op == Command::MetaArithmetic => {
            Outcome::NotStored
        }
        Some(Status::Exists) => exists(question)?,
        status => {
            let (failure, words) = failed(status)?;
            return Some(Reply::failed(failure, words));
        }
    };
    if op.is_meta() {
        return meta(question, outcome, response, scratch);
    }
    let reply = Reply::of(outcome);
    Some(match outcome {
        Outcome::Found => {
            let key = match op {
                // An answer to gat does not repeat the key.
                Command::Gat | Command::Gats => copied(&mut scratch.value, key),
                _ if response.key.is_empty() => return None,
                _ => response.key,
            };
            let number = if matches!(op, Command::Gets | Command::Gats) { response.cas } else { 0 };
            let flags = u32::from_be_bytes(response.extras.try_into().ok()?);
            Reply { key, flags, number, value: response.value, ..reply }
        }
        Outcome::Number => Reply { number: number(response)?, ..reply },
        Outcome::Version if response.value.iter().any(|byte| !(b' '..=b'~').contains(byte)) => {
            return None;
        }
        Outcome::Version => Reply { value: response.value, ..reply },
        _ => reply,
    })
}

/// The outcome of a success.
const fn done(op: Command) -> Outcome {
    match op {
        Command::Get | Command::Gets | Command::Gat | Command::Gats | Command::MetaGet => {
            Outcome::Found
        }
        Command::Delete | Command::MetaDelete => Outcome::Deleted,
        Command::Incr | Command::Decr | Command::MetaArithmetic => Outcome::Number,
        Command::Touch => Outcome::Touched,
        Command::Version => Outcome::Version,
        Command::FlushAll => Outcome::Ok,
        _ => Outcome::Stored,
    }
}

/// The outcome of a missing item; `None`: invalid. Without an item, replace, append and prepend
/// store nothing.
const fn missing(question: &Question<'_>) -> Option<Outcome> {
    match question.opcode {
        code::REPLACE | code::APPEND | code::PREPEND => Some(Outcome::NotStored),
        code::ADD | code::FLUSH | code::VERSION => None,
        _ if matches!(question.op, Command::Set) => None,
        _ => Some(Outcome::NotFound),
    }
}

/// The outcome of an existing or different item; `None`: invalid.
const fn exists(question: &Question<'_>) -> Option<Outcome> {
    match question.op {
        _ if question.opcode == code::ADD => Some(Outcome::NotStored),
        Command::Cas | Command::MetaSet | Command::MetaDelete | Command::MetaArithmetic => {
            Some(Outcome::Exists)
        }
        op if op.has_value() => Some(Outcome::NotStored),
        _ => None,
    }
}

/// A failure with our own text: a server's may contain any bytes, including line ends.
fn failed(status: Option<Status>) -> Option<(Failure, &'static [u8])> {
    let Some(status) = status else { return Some((Failure::RemoteError, b"the server failed")) };
    let (failure, words) = match status {
        Status::Ok | Status::NotFound | Status::Exists | Status::NotStored => return None,
        Status::AuthContinue => return None,
        Status::TooLarge => (Failure::RemoteError, "object too large for cache"),
        Status::InvalidArguments => (Failure::ClientError, "the server finds the arguments wrong"),
        Status::NonNumeric => {
            (Failure::ClientError, "cannot increment or decrement non-numeric value")
        }
        Status::AuthFailure => (Failure::ClientError, "unauthenticated"),
        Status::AccessDenied => (Failure::ClientError, "permission denied"),
        Status::UnknownCommand => (Failure::ClientError, "the server does not know the command"),
        Status::OutOfMemory => (Failure::RemoteError, "out of memory storing object"),
        Status::Busy => (Failure::Busy, ""),
        Status::TemporaryFailure => (Failure::TryAgain, ""),
    };
    Some((failure, words.as_bytes()))
}

/// The reason why a request has no packet.
fn no_packet_reason(op: Command) -> &'static str {
    match op {
        Command::Delete => "the server's protocol (binary) has no hold-off",
        Command::FlushAll => "the server's protocol (binary) has no flush_prefix",
        Command::LeaseGet | Command::LeaseSet => "the server's protocol (binary) has no leases",
        Command::MetaInfo | Command::MetaDebug => {
            "the server's protocol (binary) tells nothing of items"
        }
        _ => "the server's protocol (binary) lacks one of these meta flags",
    }
}

fn number(response: &Response<'_>) -> Option<u64> {
    Some(u64::from_be_bytes(response.value.try_into().ok()?))
}

fn copied<'a>(buffer: &'a mut Vec<u8>, bytes: &[u8]) -> &'a [u8] {
    buffer.clear();
    buffer.extend_from_slice(bytes);
    buffer
}

/// The reply to a meta command.
fn meta<'a>(
    question: &Question<'_>,
    outcome: Outcome,
    response: &Response<'a>,
    scratch: &'a mut Scratch,
) -> Option<Reply<'a>> {
    let Scratch { value, words } = scratch;
    let asks = |letter: u8| Words::new(question.words).any(|word| word.first() == Some(&letter));
    let mut flags = 0;
    let (code, value): (MetaCode, &[u8]) = match outcome {
        Outcome::Found => {
            flags = u32::from_be_bytes(response.extras.try_into().ok()?);
            if asks(b'v') { (MetaCode::Va, response.value) } else { (MetaCode::Hd, b"") }
        }
        Outcome::Number => {
            let number = number(response)?;
            value.clear();
            write_u64(value, number);
            if asks(b'v') { (MetaCode::Va, value.as_slice()) } else { (MetaCode::Hd, b"") }
        }
        Outcome::Stored | Outcome::Deleted => (MetaCode::Hd, b""),
        Outcome::NotStored => (MetaCode::Ns, b""),
        Outcome::Exists => (MetaCode::Ex, b""),
        Outcome::NotFound if question.op == Command::MetaGet => (MetaCode::En, b""),
        Outcome::NotFound => (MetaCode::Nf, b""),
        _ => return None,
    };
    words.clear();
    // A missing item has only what the request says of it.
    let letters: &[u8] = match code {
        MetaCode::En | MetaCode::Nf if question.op != Command::MetaSet => b"Obk",
        _ => b"Obcfks",
    };
    tell(words, question, response, flags, letters);
    Some(Reply { value, words, ..Reply::of(Outcome::Meta(code)) })
}

/// Appends the words that the flags request, in their order, if they are among `letters`.
fn tell(
    words: &mut Vec<u8>,
    question: &Question<'_>,
    response: &Response<'_>,
    flags: u32,
    letters: &[u8],
) {
    let is_base64 = Words::new(question.words).any(|word| word == b"b");
    for word in Words::new(question.words) {
        let Some(letter) = word.first() else { continue };
        if !letters.contains(letter) {
            continue;
        }
        words.push(b' ');
        match letter {
            b'c' => {
                words.push(b'c');
                write_u64(words, response.cas);
            }
            b'f' => {
                // Writing into a vector does not fail.
                let _ = write!(words, "f{flags}");
            }
            b's' => {
                words.push(b's');
                write_u64(words, response.value.len() as u64);
            }
            b'k' => {
                words.push(b'k');
                if is_base64 {
                    base64::encode(question.key, words);
                } else {
                    words.extend_from_slice(question.key);
                }
            }
            _ => words.extend_from_slice(word),
        }
    }
}
