//! Packets of the binary protocol, translated for servers.
//!
//! A get becomes `gets`, since a packet returns the cas unique, and so shares lines with others.
//! Stores and counts become meta commands, the only ones that return one. A key with spaces or
//! control characters, which no line of text can carry, is sent as base64 in meta commands.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use net::{Flow, Input};
use proto::binary::{self, Header, Parsed, Status, Then, reply};
use proto::reply::END;
use proto::{KEY_BYTES_MAX, StoreMode};
use upstream::{Command, Request};

use super::slot::{Kind, Packet, Slot, Want};
use super::store::{Block, Refused};
use super::text::ADMIN_PREFIX;
use super::{Front, Session, Step};

/// Maximum bytes of a key whose base64 fits the length of a key.
const ENCODED_KEY_BYTES_MAX: usize = KEY_BYTES_MAX / 4 * 3;

/// Bytes of a value above which an `add`, `replace`, `append` or `prepend` is sent without asking
/// for the cas unique. Servers delete the old value when they refuse an `ms` as too large, in every
/// mode; a classic command leaves it.
const UNIQUE_BYTES_MAX: usize = 512 * 1024;

impl Front {
    /// Reads one packet.
    pub(super) fn packet(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let bytes = input.bytes();
        let parsed = binary::parse(bytes);
        if session.client_login.is_some()
            && let Some(step) = self.guard_packet(session, input, &parsed)
        {
            return step;
        }
        let (request, consumed) = match parsed {
            Parsed::Incomplete => return Step::Stop(Flow::NeedInput),
            Parsed::BadMagic => {
                session.closes = true;
                return Step::Next;
            }
            Parsed::Bad(bad) => {
                input.consume(bad.consumed);
                match bad.then {
                    Then::Close => session.closes = true,
                    Then::Swallow(count) => session.swallow = u64::from(count),
                }
                self.queues.get(session.queue).push_with(|heap| {
                    reply::write_last_error(heap, &bad.header, bad.status);
                });
                return Step::Next;
            }
            Parsed::Request { request, consumed } => (request, consumed),
        };
        let mut value: &[u8] = b"";
        match request.command {
            binary::Command::Store { value_len, .. }
            | binary::Command::Concat { value_len, .. } => {
                match self.block(session, input, consumed, value_len, b"") {
                    Block::Whole(block) => value = block,
                    Block::Wait => return Step::Stop(Flow::NeedInput),
                    Block::Refused(why) => {
                        let status = match why {
                            Refused::TooLarge => Status::TooLarge,
                            Refused::BadEnd => Status::OutOfMemory,
                        };
                        if let binary::Command::Store { key, mode: StoreMode::Set, .. } =
                            request.command
                            && request.header.cas == 0
                            && why == Refused::TooLarge
                        {
                            self.delete_refused(session, key);
                        }
                        self.queues.get(session.queue).push_with(|heap| {
                            reply::write_error(heap, &request.header, status);
                        });
                        return Step::Next;
                    }
                }
            }
            _ => input.consume(consumed),
        }
        self.translate(session, &request, value);
        Step::Next
    }

    fn translate(&mut self, session: &mut Session, packet: &binary::Request<'_>, value: &[u8]) {
        match packet.command {
            binary::Command::Get { key, .. }
            | binary::Command::Arithmetic { key, .. }
            | binary::Command::Concat { key, .. }
            | binary::Command::Delete { key }
            | binary::Command::Store { key, .. }
            | binary::Command::Touch { key, .. } => self.keyed(session, packet, key, value),
            binary::Command::Flush { exptime } if self.shared.options.enable_flush_cmd => {
                if exptime.is_some_and(|exptime| is_far(exptime, now_secs())) {
                    // Text would flush at once.
                    self.queues.get(session.queue).push_with(|heap| {
                        reply::write_done(heap, &packet.header, 0);
                    });
                    return;
                }
                let slot = slot(Command::FlushAll, packet, Want::Other);
                let ticket = self.queues.push(session.queue, slot, b"");
                let exptime = exptime.map_or(0, i64::from);
                let request = Request { exptime, ..Request::new(Command::FlushAll, b"") };
                self.core.submit_to_all(&request, ticket);
            }
            _ => self.without_server(session, packet),
        }
    }

    /// Answers packets that need no server.
    pub(super) fn without_server(&mut self, session: &mut Session, packet: &binary::Request<'_>) {
        let header = &packet.header;
        let shared = &self.shared;
        let queue = self.queues.get(session.queue);
        match packet.command {
            binary::Command::NoOp => queue.push_with(|heap| reply::write_done(heap, header, 0)),
            binary::Command::Version => queue.push_with(|heap| {
                reply::write_value(
                    heap,
                    header,
                    Status::Ok,
                    0,
                    b"",
                    proto::COMPATIBLE_VERSION.as_bytes(),
                );
            }),
            binary::Command::Stat { key } => {
                let lines = shared.stats(key);
                queue.push_with(|heap| {
                    if lines.ends_with(END) {
                        stats(heap, header, &lines);
                    } else {
                        reply::write_error(heap, header, Status::NotFound);
                    }
                });
            }
            binary::Command::Quit => {
                session.closes = true;
                if !packet.quiet {
                    queue.push_with(|heap| reply::write_done(heap, header, 0));
                }
            }
            binary::Command::Flush { .. } => {
                queue.push_with(|heap| reply::write_error(heap, header, Status::AccessDenied));
            }
            _ => queue.push_with(|heap| reply::write_error(heap, header, Status::UnknownCommand)),
        }
    }

    fn keyed(&mut self, session: &Session, packet: &binary::Request<'_>, key: &[u8], value: &[u8]) {
        let base64 = key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
        if base64 && key.len() > ENCODED_KEY_BYTES_MAX {
            let header = &packet.header;
            self.queues.get(session.queue).push_with(|heap| {
                reply::write_error(heap, header, Status::InvalidArguments);
            });
            return;
        }
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        let (op, want, exptime) = match packet.command {
            binary::Command::Get { exptime, with_key, .. } => {
                let want = if with_key { Want::GetWithKey } else { Want::Get };
                let exptime = exptime.map(expiry);
                (get_op(&mut words, base64, exptime, b"v f c"), want, exptime)
            }
            binary::Command::Touch { exptime, .. } if base64 => {
                (get_op(&mut words, base64, Some(expiry(exptime)), b"f c"), Want::Touch, None)
            }
            binary::Command::Touch { exptime, .. } => {
                (Command::Touch, Want::Touch, Some(expiry(exptime)))
            }
            binary::Command::Delete { .. } if packet.header.cas == 0 && !base64 => {
                (Command::Delete, Want::Other, None)
            }
            binary::Command::Delete { .. } => (Command::MetaDelete, Want::Other, None),
            binary::Command::Arithmetic { .. } => (Command::MetaArithmetic, Want::Number, None),
            binary::Command::Store { mode, .. } | binary::Command::Concat { mode, .. } => {
                (Command::MetaSet, want_of(mode, packet.header.cas), None)
            }
            // There are no others with a key.
            _ => (Command::MetaDebug, Want::Other, None),
        };
        write_words(&mut words, packet, base64);
        let request = Request {
            value,
            exptime: exptime.map_or(0, i64::from),
            words: &words,
            base64,
            tells_kept: packet.header.reserved == binary::TELLS_KEPT,
            is_packet: true,
            client: session.client,
            listener: session.listener,
            ..Request::new(op, key)
        };
        let request = without_unique(packet, request);
        let slot = slot(request.op, packet, want);
        if want.is_get() && key.starts_with(ADMIN_PREFIX) {
            self.admin_key(session.queue, slot, key);
        } else {
            self.submit(session.queue, slot, &request);
        }
        self.words = words;
    }
}

/// The slot of a reply to `packet`.
fn slot(op: Command, packet: &binary::Request<'_>, want: Want) -> Slot {
    let Header { opcode, opaque, .. } = packet.header;
    Slot::new(op, Kind::Whole).quiet(packet.quiet).packet(Packet { opcode, opaque, want })
}

/// The classic form of a large store with a mode and without a cas unique, which does not ask for
/// the new one; any other request as it is.
fn without_unique<'a>(packet: &binary::Request<'_>, request: Request<'a>) -> Request<'a> {
    if request.value.len() <= UNIQUE_BYTES_MAX || packet.header.cas != 0 || request.base64 {
        return request;
    }
    let (mode, flags, exptime) = match packet.command {
        binary::Command::Store { mode, flags, exptime, .. } => (mode, flags, expiry(exptime)),
        binary::Command::Concat { mode, .. } => (mode, 0, 0),
        _ => return request,
    };
    let op = match mode {
        StoreMode::Add => Command::Add,
        StoreMode::Append => Command::Append,
        StoreMode::Prepend => Command::Prepend,
        StoreMode::Replace => Command::Replace,
        StoreMode::Set => return request,
    };
    Request { op, flags, exptime: i64::from(exptime), words: b"", ..request }
}

/// The form of the answer to a set whose condition does not hold.
const fn want_of(mode: StoreMode, cas: u64) -> Want {
    match mode {
        StoreMode::Add if cas == 0 => Want::Add,
        StoreMode::Append | StoreMode::Prepend => Want::Concat,
        StoreMode::Add | StoreMode::Replace | StoreMode::Set => Want::Store,
    }
}

/// gets or gats, or `mg` for a key that only base64 can write.
fn get_op(words: &mut Vec<u8>, base64: bool, exptime: Option<u32>, flags: &[u8]) -> Command {
    if !base64 {
        return if exptime.is_some() { Command::Gats } else { Command::Gets };
    }
    words.extend_from_slice(flags);
    if let Some(exptime) = exptime {
        word(words, format_args!("T{exptime}"));
    }
    Command::MetaGet
}

/// The last number that memcached reads as a time in text, on 2038-01-19. It takes greater ones for
/// negative, so in the past. In a packet it reads them as they are.
const TEXT_MAX: u32 = u32::MAX >> 1;

/// A packet's expiry time in text.
fn expiry(exptime: u32) -> u32 {
    if exptime <= TEXT_MAX { exptime } else { expiry_at(exptime, now_secs()) }
}

fn now_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A time that memcached would take for the past becomes never. The greatest number is a client's
/// -1. After 2038, every time is one of those; then servers must understand them.
const fn expiry_at(exptime: u32, now_secs: u64) -> u32 {
    if is_far(exptime, now_secs) { 0 } else { exptime }
}

/// Returns true if text would take this time of the future for the past.
const fn is_far(exptime: u32, now_secs: u64) -> bool {
    let is_future = now_secs <= TEXT_MAX as u64;
    exptime == u32::MAX || exptime > TEXT_MAX && is_future
}

/// Writes the words of a meta command for the packet.
fn write_words(words: &mut Vec<u8>, packet: &binary::Request<'_>, base64: bool) {
    let cas = packet.header.cas;
    match packet.command {
        binary::Command::Store { mode, flags, exptime, .. } => {
            word(words, format_args!("c F{flags} T{}", expiry(exptime)));
            let letter = match mode {
                // With a cas unique, set, add and replace are one command.
                StoreMode::Add if cas == 0 => 'E',
                StoreMode::Replace if cas == 0 => 'R',
                _ => 'S',
            };
            word(words, format_args!("M{letter}"));
        }
        binary::Command::Concat { mode, .. } => {
            let letter = if mode == StoreMode::Append { 'A' } else { 'P' };
            word(words, format_args!("c M{letter}"));
        }
        binary::Command::Arithmetic { decrement, delta, initial, exptime, .. } => {
            let letter = if decrement { 'D' } else { 'I' };
            word(words, format_args!("v c D{delta} M{letter}"));
            if let Some(exptime) = exptime {
                word(words, format_args!("N{} J{initial}", expiry(exptime)));
            }
        }
        _ => {}
    }
    if cas != 0
        && !matches!(packet.command, binary::Command::Get { .. } | binary::Command::Touch { .. })
    {
        word(words, format_args!("C{cas}"));
    }
    if base64 {
        word(words, format_args!("b"));
    }
}

fn word(words: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    if !words.is_empty() {
        words.push(b' ');
    }
    // Writing into a vector does not fail.
    let _ = words.write_fmt(text);
}

/// `STAT name value` lines as packets, followed by an empty one.
fn stats(heap: &mut Vec<u8>, header: &Header, lines: &[u8]) {
    for line in lines.split(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let Some(rest) = line.strip_prefix(b"STAT ") else { continue };
        let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        let (name, value) = rest.split_at(end);
        reply::write_stat(heap, header, name, value.trim_ascii_start());
    }
    reply::write_stat(heap, header, b"", b"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_from_2038_on_never_expire_before_2038() {
        let (in_2026, in_2040) = (1_800_000_000, 2_210_000_000);
        for (exptime, until_2038, since) in [
            (0, 0, 0),
            (100, 100, 100),
            (0x7fff_ffff, 0x7fff_ffff, 0x7fff_ffff),
            (0x8000_0000, 0, 0x8000_0000),
            (0xffff_fffe, 0, 0xffff_fffe),
            (0xffff_ffff, 0, 0),
        ] {
            assert_eq!(expiry_at(exptime, in_2026), until_2038, "{exptime}");
            assert_eq!(expiry_at(exptime, in_2040), since, "{exptime}");
        }
    }
}
