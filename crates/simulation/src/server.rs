//! A simulated server: a map of items behind the protocols' own parsers. It records the calls that
//! it executed, and their times.

use std::collections::{BTreeMap, BTreeSet};

use proto::binary::{self, Command, Header, Status};
use proto::meta::reply::{self as meta_reply, ItemFacts, Status as MetaStatus};
use proto::reply::{CRLF, write_lease_header, write_number, write_value, write_value_header};
use proto::text::{self, KeyToken, Parsed};
use proto::udp::{self, Frame};
use proto::{KeyBuf, StoreMode, Wire, meta};
use testkit::Rng;

use super::call::{mark, number_of};
use super::handshake::{Handshake, Rules};
use super::lies::{self, Identifies, Reply};

/// Maximum bytes of an item.
const ITEM_BYTES_MAX: usize = 500_000;

/// The server's state of one connection.
#[derive(Debug)]
pub(crate) struct Session {
    handshake: Handshake,
    /// Encrypted bytes were changed, so the input may be senseless.
    is_lied_to: bool,
    /// Received bytes of an incomplete request.
    input: Vec<u8>,
}

/// The number of bytes of the following data block, if any.
fn block_len(request: &text::Request<'_>) -> Option<usize> {
    match request {
        text::Request::Store(store) => Some(store.len as usize),
        text::Request::Meta(meta::Request { command: meta::Command::Set { len, .. }, .. }) => {
            Some(*len as usize)
        }
        _ => None,
    }
}

/// The answer to received bytes.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    /// It closes the connection after that.
    pub(crate) ends: bool,
}

/// A simulated server and its records.
#[derive(Debug, Default)]
pub struct Server {
    items: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The end of items with an expiry time from `set` or `touch`, in microseconds.
    ends_us: BTreeMap<Vec<u8>, u64>,
    /// It answers wrongly.
    pub lies: bool,
    /// Corrupts the next encrypted bytes that it sends.
    pub spoils: bool,
    /// It refuses all logins.
    pub(crate) refuses: bool,
    /// The requirements at the start of connections.
    pub(crate) rules: Rules,
    /// The number of times that a client sent something else before the handshake and login.
    pub unauthenticated: u64,
    /// The number of executions of each call that must run only once, by the calls' numbers.
    pub executed: BTreeMap<u64, u32>,
    /// The time at which each key was last deleted.
    pub deleted_us: BTreeMap<Vec<u8>, u64>,
    /// The keys whose values were requested.
    pub asked: BTreeSet<Vec<u8>>,
    /// The tokens to fill keys, and the number of tokens granted.
    tokens: BTreeMap<Vec<u8>, u64>,
    pub(crate) tokens_given: u64,
    now_us: u64,
}

impl Server {
    /// A new connection.
    pub(crate) fn session(&self) -> Session {
        Session { handshake: Handshake::new(&self.rules), is_lied_to: false, input: Vec::new() }
    }

    /// Takes received bytes, and answers complete requests.
    pub(crate) fn serve(
        &mut self,
        session: &mut Session,
        bytes: &[u8],
        now_us: u64,
        rng: &mut Rng,
    ) -> Answer {
        self.now_us = now_us;
        let mut answer = Answer::default();
        match session.handshake.open(bytes) {
            Ok(plain) => session.input.extend(plain),
            Err(_) => {
                self.unauthenticated += u64::from(!session.is_lied_to);
                answer.ends = true;
            }
        }
        while !answer.ends
            && let Some((used, replies)) = self.next_of(session)
        {
            session.input.drain(..used);
            for reply in replies {
                if self.lies && rng.one_in(4) {
                    answer.ends |= lies::tell(&reply, &mut answer.bytes, rng);
                } else {
                    answer.bytes.extend_from_slice(&reply.bytes);
                }
            }
        }
        let says_end = answer.ends && rng.one_in(2);
        answer.bytes = session.handshake.seal(answer.bytes, says_end);
        let has_tls = self.rules.tls.is_some() && !answer.bytes.is_empty();
        if has_tls && (std::mem::take(&mut self.spoils) || self.lies && rng.one_in(8)) {
            let place = rng.below(answer.bytes.len());
            session.is_lied_to = true;
            answer.bytes[place] ^= 1 << rng.below(8);
        }
        answer
    }

    /// The next request of a connection, or the login before it.
    fn next_of(&mut self, session: &mut Session) -> Option<(usize, Vec<Reply>)> {
        if !session.handshake.awaits_login {
            return self.next(&session.input);
        }
        let login = session.handshake.login(&session.input, self.refuses)?;
        self.unauthenticated += u64::from(login.is_wrong);
        Some((login.len, vec![login.reply]))
    }

    /// Answers one datagram: only gets, in datagrams of a size that often cuts replies.
    pub(crate) fn datagram(&mut self, bytes: &[u8], now_us: u64, rng: &mut Rng) -> Vec<Vec<u8>> {
        self.now_us = now_us;
        let Some((frame, payload)) = udp::split(bytes) else { return Vec::new() };
        let Some((_, replies)) = self.next(payload) else { return Vec::new() };
        let mut whole: Vec<u8> = replies.into_iter().flat_map(|reply| reply.bytes).collect();
        if whole.len() > 30_000 || rng.one_in(20) {
            whole = b"SERVER_ERROR too long\r\n".to_vec();
        }
        let parts: Vec<&[u8]> = whole.chunks(400).collect();
        let count = u16::try_from(parts.len()).unwrap_or(0);
        let framed = (0..count).zip(parts).map(|(sequence, part)| {
            let head = udp::encode(Frame { request_id: frame.request_id, sequence, count });
            [&head[..], part].concat()
        });
        framed.collect()
    }

    /// The next request of `input`: its bytes, and the replies to it.
    fn next(&mut self, input: &[u8]) -> Option<(usize, Vec<Reply>)> {
        for (key, _) in self.ends_us.extract_if(.., |_, end_us| *end_us <= self.now_us) {
            self.items.remove(&key);
        }
        match Wire::of(*input.first()?) {
            Wire::Binary => self.packet(input),
            Wire::Text => self.line(input),
        }
    }

    fn record(&mut self, number: u64) {
        *self.executed.entry(number).or_default() += 1;
    }

    fn line(&mut self, input: &[u8]) -> Option<(usize, Vec<Reply>)> {
        let end = input.iter().position(|byte| *byte == b'\n')? + 1;
        let mut key_buf = KeyBuf::default();
        let line = &input[..end];
        let (request, consumed) = match text::parse(line, &mut key_buf) {
            Parsed::Request { request, consumed } => (request, consumed),
            Parsed::Bad(bad) => {
                let used = end + usize::try_from(bad.swallow).ok()?;
                let reply = Reply::new(Identifies::Nothing, bad.error.line());
                return (input.len() >= used).then(|| (used, vec![reply]));
            }
            _ => return Some((end, vec![Reply::new(Identifies::Nothing, b"ERROR\r\n")])),
        };
        let len = block_len(&request);
        let data = match len {
            None => &b""[..],
            Some(len) if input.len() < end + len + CRLF.len() => return None,
            Some(len) => &input[end..end + len],
        };
        let used = end + len.map_or(0, |len| len + CRLF.len());
        let word = |bytes: &[u8]| vec![Reply::new(Identifies::Nothing, bytes)];
        let replies = match request {
            text::Request::Get(mut keys) => {
                let mut reply = Vec::new();
                let mut rest = &line[consumed..];
                let with_cas = keys.with_cas;
                while let KeyToken::Key { key, consumed } = keys.next_key(rest) {
                    self.asked.insert(key.to_vec());
                    rest = &rest[consumed..];
                    if keys.with_lease {
                        self.lease(key, &mut reply);
                    } else if let Some(value) = self.items.get(key) {
                        let cas = with_cas.then(|| mark(key, 0));
                        write_value(&mut reply, key, 0, value, cas);
                    }
                }
                let tells = if reply.is_empty() { Identifies::Nothing } else { Identifies::Key };
                reply.extend_from_slice(b"END\r\n");
                vec![Reply::new(tells, &reply)]
            }
            text::Request::Store(store) => {
                self.record_store(data);
                let is_stored = self.may_store(&store) && self.store(store.mode, store.key, data);
                if is_stored && store.mode == StoreMode::Set {
                    self.end_in(store.key, store.exptime);
                }
                word(if is_stored { b"STORED\r\n" } else { b"NOT_STORED\r\n" })
            }
            text::Request::Arithmetic(count) => {
                self.record(count.delta);
                let mut reply = Vec::new();
                write_number(&mut reply, mark(count.key, count.delta));
                vec![Reply::new(Identifies::Number, &reply)]
            }
            text::Request::Delete { key, .. } => {
                let is_there = self.delete(key);
                word(if is_there { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" })
            }
            text::Request::Touch { key, exptime, .. } => {
                self.record(u64::try_from(exptime).unwrap_or(0));
                let is_there = self.touch(key, exptime);
                word(if is_there { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" })
            }
            text::Request::Version => word(b"VERSION simulated\r\n"),
            text::Request::Meta(request) => vec![self.meta(&request, data)],
            _ => word(b"ERROR\r\n"),
        };
        Some((used, replies))
    }

    fn record_store(&mut self, data: &[u8]) {
        if let Some(number) = number_of(data) {
            self.record(number);
        }
    }

    /// Takes the token of a lease-set. A lease that is given back stores nothing.
    fn may_store(&mut self, store: &text::Store<'_>) -> bool {
        let Some(token) = store.lease else { return true };
        let is_mine = self.tokens.get(store.key) == Some(&token);
        is_mine && self.tokens.remove(store.key).is_some() && store.exptime >= 0
    }

    fn lease(&mut self, key: &[u8], reply: &mut Vec<u8>) {
        if let Some(value) = self.items.get(key) {
            write_value_header(reply, key, 0, value.len(), None);
            reply.extend_from_slice(value);
        } else if self.tokens.contains_key(key) {
            write_lease_header(reply, key, 1, 0, 0);
        } else {
            self.tokens_given += 1;
            let token = 100 + self.tokens_given;
            self.tokens.insert(key.to_vec(), token);
            write_lease_header(reply, key, token, 0, 0);
        }
        reply.extend_from_slice(CRLF);
    }

    fn store(&mut self, mode: StoreMode, key: &[u8], data: &[u8]) -> bool {
        let present = self.items.get(key);
        let value = match (mode, present) {
            (StoreMode::Set, _) | (StoreMode::Add, None) | (StoreMode::Replace, Some(_)) => {
                data.to_vec()
            }
            (StoreMode::Append, Some(old)) => [old, data].concat(),
            (StoreMode::Prepend, Some(old)) => [data, old].concat(),
            _ => return false,
        };
        if value.len() > ITEM_BYTES_MAX {
            return false;
        }
        self.items.insert(key.to_vec(), value);
        true
    }

    /// Makes the item end in this many seconds; 0: never.
    fn end_in(&mut self, key: &[u8], secs: i64) {
        self.ends_us.remove(key);
        if let Ok(secs @ 1..) = u64::try_from(secs) {
            self.ends_us.insert(key.to_vec(), self.now_us + secs * 1_000_000);
        }
    }

    fn touch(&mut self, key: &[u8], secs: i64) -> bool {
        let is_there = self.items.contains_key(key);
        if is_there {
            self.end_in(key, secs);
        }
        is_there
    }

    fn delete(&mut self, key: &[u8]) -> bool {
        self.deleted_us.insert(key.to_vec(), self.now_us);
        self.tokens.remove(key);
        self.items.remove(key).is_some()
    }

    fn meta(&mut self, request: &meta::Request<'_>, data: &[u8]) -> Reply {
        let key = request.key;
        let mut out = Vec::new();
        let facts = ItemFacts { cas: mark(key, 0), ..ItemFacts::default() };
        match request.command {
            meta::Command::Get if !self.items.contains_key(key) => {
                meta_reply::write_status(&mut out, request, MetaStatus::Miss);
            }
            meta::Command::Get => {
                let value = &self.items[key];
                meta_reply::write_value_header(&mut out, request, value.len(), &facts);
                out.extend_from_slice(value);
                out.extend_from_slice(CRLF);
            }
            meta::Command::Set { mode, .. } => {
                self.record_store(data);
                let is_stored = self.store(mode, key, data);
                let status = if is_stored { MetaStatus::Done } else { MetaStatus::NotStored };
                meta_reply::write_item(&mut out, request, status, &facts);
            }
            meta::Command::Delete => {
                let is_there = self.delete(key);
                let status = if is_there { MetaStatus::Done } else { MetaStatus::NotFound };
                meta_reply::write_status(&mut out, request, status);
            }
            meta::Command::Arithmetic { .. } => {
                let number = request.options.delta.unwrap_or(0);
                self.record(number);
                let digits = mark(key, number).to_string();
                meta_reply::write_value_header(&mut out, request, digits.len(), &facts);
                out.extend_from_slice(digits.as_bytes());
                out.extend_from_slice(CRLF);
            }
            meta::Command::Debug => out.extend_from_slice(b"EN\r\n"),
            meta::Command::NoOp => out.extend_from_slice(meta_reply::noop(request.flags, false)),
        }
        let tells = if out.windows(4).any(|four| four == b" kk:") {
            Identifies::Key
        } else {
            Identifies::Nothing
        };
        Reply::new(tells, &out)
    }

    fn packet(&mut self, input: &[u8]) -> Option<(usize, Vec<Reply>)> {
        let binary::Parsed::Request { request, consumed } = binary::parse(input) else {
            return None;
        };
        let header = request.header;
        let len = match request.command {
            Command::Store { value_len, .. } | Command::Concat { value_len, .. } => {
                value_len as usize
            }
            _ => 0,
        };
        let data = input.get(consumed..consumed + len)?;
        let mut out = Vec::new();
        self.command(&header, request.command, data, &mut out);
        let replies = if out.is_empty() { Vec::new() } else { vec![Reply::packet(&out)] };
        Some((consumed + len, replies))
    }

    fn command(&mut self, header: &Header, command: Command<'_>, data: &[u8], out: &mut Vec<u8>) {
        use binary::reply::{
            write_done, write_error, write_hit, write_miss, write_touched, write_value,
        };
        match command {
            Command::Get { key, with_key, .. } => {
                let told = with_key.then_some(key);
                self.asked.insert(key.to_vec());
                match self.items.get(key) {
                    Some(value) => {
                        let len = u32::try_from(value.len()).expect("a short value");
                        write_hit(out, header, 0, mark(key, 0), told, len);
                        out.extend_from_slice(value);
                    }
                    None => write_miss(out, header, told),
                }
            }
            Command::Store { mode, key, .. } | Command::Concat { mode, key, .. } => {
                self.record_store(data);
                match (self.store(mode, key, data), mode) {
                    (true, _) => write_done(out, header, mark(key, 0)),
                    (false, StoreMode::Add) => write_error(out, header, Status::Exists),
                    (false, StoreMode::Replace) => write_error(out, header, Status::NotFound),
                    (false, _) => write_error(out, header, Status::NotStored),
                }
            }
            Command::Delete { key } => match self.delete(key) {
                true => write_done(out, header, 0),
                false => write_error(out, header, Status::NotFound),
            },
            Command::Arithmetic { key, delta, .. } => {
                self.record(delta);
                binary::reply::write_number(out, header, 0, mark(key, delta));
            }
            Command::Touch { key, exptime } => {
                self.record(u64::from(exptime));
                match self.touch(key, i64::from(exptime)) {
                    true => write_touched(out, header, 0, mark(key, 0)),
                    false => write_error(out, header, Status::NotFound),
                }
            }
            Command::NoOp => write_done(out, header, 0),
            Command::Version => write_value(out, header, Status::Ok, 0, b"", b"simulated"),
            _ => write_error(out, header, Status::UnknownCommand),
        }
    }
}
