//! A client: its requests in one of three protocols, and its interpretation of the replies.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use arena::schedule::moment;
use proto::answer::{self, Answer, MetaCode};
use proto::binary::{self, Status, answer as packet};
use testkit::Rng;
use testkit::history::{Event, Op, Out, Val};

use super::keys::{self, Kind, Seen};
use super::request::{Asked, Reply, Wire, has_value, write};

/// Requests that a client sends in its life.
const REQUESTS: usize = 60;

/// The maximum number of requests without a reply at a time.
const OUTSTANDING_MAX: usize = 6;

/// In place of a lease token: another client has it.
const WAIT: u64 = 1;

/// More than the size of any value.
const ANSWER_BYTES_MAX: u32 = 1 << 20;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    wire: Wire,
    rng: Rng,
    requests_left: usize,
    /// Numbers the requests of all clients.
    serial: u64,
    asked: VecDeque<Asked>,
    /// Uniques of items that this client has seen, by key.
    uniques: HashMap<usize, u64>,
    /// Lease tokens that it received and has not used, by key.
    tokens: HashMap<usize, u64>,
    seen: Vec<Seen>,
}

impl Client {
    /// The client of this number.
    pub(super) fn new(rng: &mut Rng, number: u64) -> Self {
        Self {
            wire: *rng.pick(&[Wire::Binary, Wire::Meta, Wire::Text]),
            rng: Rng::new(rng.next_u64()),
            requests_left: REQUESTS,
            serial: number << 20,
            asked: VecDeque::new(),
            uniques: HashMap::new(),
            tokens: HashMap::new(),
            seen: Vec::new(),
        }
    }

    /// No request is left, and no reply is due.
    pub(super) fn is_done(&self) -> bool {
        self.requests_left == 0 && self.asked.is_empty()
    }

    /// Appends a request to `bytes`, if the client has one now.
    pub(super) fn ask(&mut self, bytes: &mut Vec<u8>) {
        if self.requests_left == 0 || self.asked.len() == OUTSTANDING_MAX {
            return;
        }
        self.requests_left -= 1;
        self.serial += 1;
        let key = keys::pick(&mut self.rng);
        let op = self.choose(key);
        let asked = match self.wire {
            Wire::Binary => self.binary(bytes, key, op.0, &op.1),
            Wire::Meta => self.meta(bytes, key, op.0, &op.1),
            Wire::Text => self.text(bytes, key, op.0, &op.1),
        };
        self.asked.push_back(asked);
    }

    /// A command on a key, and the value that it stores.
    fn choose(&mut self, key: usize) -> (Op, Vec<u8>) {
        let value = keys::value(&mut self.rng, key, self.serial);
        let val = Val::of(&value);
        let kind = keys::kind(key);
        // A reader by the meta protocol may win a stale item.
        let marks = kind == Kind::Marked && self.wire == Wire::Meta;
        let get = if marks { Op::MetaGet } else { Op::Get };
        // The last request must have a reply.
        if self.requests_left == 0 {
            return (get, value);
        }
        if self.wire == Wire::Text
            && kind != Kind::Number
            && let Some(token) = self.tokens.remove(&key)
        {
            return (Op::LeaseSet(val, token), value);
        }
        let op = match (self.rng.below(16), kind) {
            (0..=4, _) => get,
            (8, _) if marks => get,
            (11..=13, Kind::Marked) if marks => Op::Invalidate,
            (5, _) => Op::Add(val),
            (6, _) => Op::Replace(val),
            (7, _) => Op::Delete,
            (8, _) => Op::Touch,
            // Lease replies about a stale item are not judged here.
            (14, _) if self.wire == Wire::Text && kind != Kind::Marked => Op::LeaseGet,
            (9..=10, _) => match self.uniques.get(&key) {
                Some(&unique) => Op::Cas(val, unique),
                None => get,
            },
            (11..=12, Kind::Number) => Op::Incr(3),
            (13, Kind::Number) => Op::Decr(2),
            (11..=12, Kind::Text) => Op::Append(val),
            (13, Kind::Text) => Op::Prepend(val),
            _ => Op::Set(val),
        };
        (op, value)
    }

    fn asked(&self, reply: Reply, ops: Vec<(usize, Op)>) -> Asked {
        let hits = vec![None; ops.len()];
        Asked {
            opaque: self.opaque(),
            called: moment(),
            reply,
            ops,
            hits,
            token: None,
            is_refused: false,
        }
    }

    fn opaque(&self) -> u32 {
        self.serial as u32
    }

    fn text(&mut self, bytes: &mut Vec<u8>, key: usize, op: Op, value: &[u8]) -> Asked {
        let is_last = self.requests_left == 0;
        if !is_last && self.rng.one_in(50) {
            return self.flush(bytes);
        }
        let mut ops = vec![(key, op)];
        let name = keys::name(key);
        let len = value.len();
        let mut reply = Reply::One;
        let mut line = match op {
            Op::Add(_) => format!("add {name} 0 0 {len}"),
            Op::Append(_) => format!("append {name} 0 0 {len}"),
            Op::Cas(_, unique) => format!("cas {name} 0 0 {len} {unique}"),
            Op::Decr(by) => format!("decr {name} {by}"),
            Op::Delete => format!("delete {name}"),
            Op::Incr(by) => format!("incr {name} {by}"),
            Op::Prepend(_) => format!("prepend {name} 0 0 {len}"),
            Op::Replace(_) => format!("replace {name} 0 0 {len}"),
            Op::Set(_) if keys::kind(key) == Kind::Mortal => {
                format!("set {name} 0 {} {len}", self.rng.pick(&[0, 1, 2, 20]))
            }
            Op::Set(_) => format!("set {name} 0 0 {len}"),
            Op::Touch => format!("touch {name} 0"),
            Op::LeaseGet => {
                reply = Reply::Values;
                format!("lease-get {name}")
            }
            Op::LeaseSet(_, token) => format!("lease-set {name} {token} 0 0 {len}"),
            Op::Get | Op::Flush | Op::Invalidate | Op::MetaGet => {
                reply = Reply::Values;
                let mut line = format!("gets {name}");
                for _ in 0..self.rng.below(3) {
                    let more = keys::pick(&mut self.rng);
                    ops.push((more, Op::Get));
                    let _ = write!(line, " {}", keys::name(more));
                }
                line
            }
        };
        if reply == Reply::One && !is_last && self.rng.one_in(8) {
            line += " noreply";
            reply = Reply::None;
        }
        let asked = self.asked(reply, ops);
        write(bytes, &line, has_value(op).then_some(value));
        asked
    }

    fn flush(&mut self, bytes: &mut Vec<u8>) -> Asked {
        let (prefix, keys) = keys::pick_prefix(&mut self.rng);
        write(bytes, &format!("flush_prefix {prefix}"), None);
        self.asked(Reply::One, keys.into_iter().map(|key| (key, Op::Flush)).collect())
    }

    fn meta(&mut self, bytes: &mut Vec<u8>, key: usize, op: Op, value: &[u8]) -> Asked {
        let (name, opaque, len) = (keys::name(key), self.opaque(), value.len());
        let may_be_quiet = matches!(op, Op::Get | Op::MetaGet) && self.requests_left > 0;
        let is_quiet = may_be_quiet && self.rng.one_in(3);
        let line = match op {
            Op::Add(_) => format!("ms {name} {len} ME O{opaque}"),
            Op::Append(_) => format!("ms {name} {len} MA O{opaque}"),
            Op::Cas(_, unique) => format!("ms {name} {len} C{unique} O{opaque}"),
            Op::Decr(by) => format!("ma {name} MD D{by} v O{opaque}"),
            Op::Delete => format!("md {name} O{opaque}"),
            _ if is_quiet => {
                format!("mg {name} v c k q O{opaque}\r\nmn")
            }
            Op::Get | Op::Flush | Op::LeaseGet | Op::LeaseSet(..) | Op::MetaGet => {
                format!("mg {name} v c k O{opaque}")
            }
            Op::Incr(by) => format!("ma {name} D{by} v O{opaque}"),
            Op::Invalidate => format!("md {name} I O{opaque}"),
            Op::Prepend(_) => format!("ms {name} {len} MP O{opaque}"),
            Op::Replace(_) => format!("ms {name} {len} MR O{opaque}"),
            Op::Set(_) => format!("ms {name} {len} O{opaque}"),
            Op::Touch => format!("mg {name} T0 O{opaque}"),
        };
        let reply = if is_quiet { Reply::HitThenNoop } else { Reply::One };
        let asked = self.asked(reply, vec![(key, op)]);
        write(bytes, &line, has_value(op).then_some(value));
        asked
    }

    fn binary(&mut self, bytes: &mut Vec<u8>, key: usize, op: Op, value: &[u8]) -> Asked {
        let (name, opaque) = (keys::name(key), self.opaque());
        let is_quiet = op == Op::Get && self.requests_left > 0 && self.rng.one_in(3);
        let count = |by: u64| {
            // No initial value: a missing key stays missing.
            [&by.to_be_bytes()[..], &[0; 8], &[0xff; 4]].concat()
        };
        let store = || vec![0; 8];
        let (opcode, extras, cas) = match op {
            Op::Add(_) => (0x02, store(), 0),
            Op::Append(_) => (0x0e, Vec::new(), 0),
            Op::Cas(_, unique) => (0x01, store(), unique),
            Op::Decr(by) => (0x06, count(by), 0),
            Op::Delete => (0x04, Vec::new(), 0),
            _ if is_quiet => (0x09, Vec::new(), 0),
            Op::Get
            | Op::Flush
            | Op::Invalidate
            | Op::LeaseGet
            | Op::LeaseSet(..)
            | Op::MetaGet => (0x00, Vec::new(), 0),
            Op::Incr(by) => (0x05, count(by), 0),
            Op::Prepend(_) => (0x0f, Vec::new(), 0),
            Op::Replace(_) => (0x03, store(), 0),
            Op::Set(_) => (0x01, store(), 0),
            Op::Touch => (0x1c, vec![0; 4], 0),
        };
        let reply = if is_quiet { Reply::HitOnly } else { Reply::One };
        let asked = self.asked(reply, vec![(key, op)]);
        let value = if has_value(op) { value } else { &[] };
        binary::request::write(
            bytes,
            opcode,
            opaque,
            cas,
            &extras,
            name.as_bytes(),
            value.len() as u32,
        );
        bytes.extend_from_slice(value);
        asked
    }

    /// Takes whole replies out of `bytes`.
    pub(super) fn hear(&mut self, bytes: &mut Vec<u8>) {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let consumed = match self.wire {
                Wire::Binary => self.hear_binary(rest),
                Wire::Meta | Wire::Text => self.hear_text(rest),
            };
            if consumed == 0 {
                break;
            }
            at += consumed;
        }
        bytes.drain(..at);
    }

    /// The request that a reply answers. Earlier requests without a reply are over.
    fn answered(&mut self, opaque: Option<u32>) -> &mut Asked {
        loop {
            let first = self.asked.front().expect("a request for each reply");
            let is_it = opaque.is_none_or(|opaque| opaque == first.opaque);
            match first.reply {
                Reply::None => self.finish(Out::Unknown),
                Reply::HitOnly if !is_it => self.finish(Out::Miss),
                Reply::One | Reply::Values | Reply::HitOnly | Reply::HitThenNoop => {
                    assert!(is_it, "a reply of request {opaque:?} where {first:?} is next");
                    break;
                }
            }
        }
        self.asked.front_mut().expect("just looked at")
    }

    /// Ends the first request with this answer to each of its commands without a hit. If it was
    /// refused, nothing is known of them; a refused store has done nothing.
    fn finish(&mut self, out: Out) {
        let Some(Asked { called, ops, hits, is_refused, .. }) = self.asked.pop_front() else {
            return;
        };
        let ret = moment();
        for ((key, op), hit) in ops.into_iter().zip(hits) {
            self.note_unique(key, hit);
            if let Some(out) = hit.or_else(|| (!is_refused).then_some(out)) {
                self.seen.push(Seen { key, event: Event { call: called, ret, op, out } });
            }
        }
    }

    fn hear_text(&mut self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            return 0;
        }
        let (answer, consumed) = match answer::parse(bytes, ANSWER_BYTES_MAX) {
            answer::Parsed::Answer { answer, consumed } => (answer, consumed),
            answer::Parsed::Incomplete { .. } => return 0,
            answer::Parsed::Bad => panic!("no reply: {}", bytes.escape_ascii()),
        };
        match answer {
            Answer::Value(value) => {
                let key = keys::of_name(value.key);
                let asked = self.answered(None);
                assert_eq!(asked.reply, Reply::Values, "a value for {asked:?}");
                // Values come in the order of their keys.
                let behind = asked.hits.iter().rposition(Option::is_some).map_or(0, |at| at + 1);
                let place = asked.ops[behind..].iter().position(|(asked, _)| *asked == key);
                let place = place.expect("a key that was asked for, once") + behind;
                let val = Val::of(value.value);
                asked.hits[place] = Some(Out::Hit { val, cas: value.cas });
            }
            Answer::Lease { key, token, .. } => {
                let asked = self.answered(None);
                assert_eq!(asked.ops, [(keys::of_name(key), Op::LeaseGet)], "a lease");
                asked.token = Some(token);
            }
            Answer::End => {
                let asked = self.answered(None);
                assert_eq!(asked.reply, Reply::Values, "an end for {asked:?}");
                let (token, key) = (asked.token, asked.ops[0].0);
                let out = match token {
                    None => Out::Miss,
                    // Another client has to fill the key.
                    Some(WAIT) => Out::Unknown,
                    Some(token) => {
                        self.tokens.insert(key, token);
                        Out::Token(token)
                    }
                };
                self.finish(out);
            }
            Answer::ServerError(text) => {
                assert!(text.starts_with(b"out of memory"), "{}", text.escape_ascii());
                let asked = self.answered(None);
                asked.is_refused = true;
                if asked.reply != Reply::HitThenNoop {
                    self.finish(Out::Miss);
                }
            }
            Answer::Meta(meta) if meta.code == MetaCode::Mn => {
                let asked = self.answered(None);
                assert_eq!(asked.reply, Reply::HitThenNoop, "MN for {asked:?}");
                self.finish(Out::Miss);
            }
            Answer::Meta(meta) => self.hear_meta(&meta),
            Answer::Deleted => self.hear_line(Out::Deleted),
            Answer::Exists => self.hear_line(Out::Exists),
            Answer::NotFound => self.hear_line(Out::NotFound),
            Answer::Ok => self.hear_line(Out::Flushed),
            Answer::NotStored => self.hear_line(Out::NotStored),
            Answer::Number(number) => self.hear_line(Out::Number(number)),
            Answer::Stored => self.hear_line(Out::Stored),
            Answer::Touched => self.hear_line(Out::Touched),
            other => panic!("{other:?} to {:?}", self.asked.front()),
        }
        consumed
    }

    fn hear_line(&mut self, out: Out) {
        let asked = self.answered(None);
        assert_eq!(asked.reply, Reply::One, "{out:?} for {asked:?}");
        self.finish(out);
    }

    fn hear_meta(&mut self, meta: &answer::Meta<'_>) {
        let flag = |letter: u8| {
            let mut flags = meta.flags;
            flags.find_map(|flag| flag.strip_prefix(&[letter]))
        };
        let number = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<u64>().ok();
        let opaque = flag(b'O').and_then(number).expect("the request's opaque");
        let unique = flag(b'c').and_then(number);
        let name = flag(b'k').map(keys::of_name);
        let asked = self.answered(Some(opaque as u32));
        let (key, op) = asked.ops[0];
        assert!(name.is_none_or(|name| name == key), "another key for {asked:?}");
        let out = match (meta.code, op) {
            (MetaCode::Va, Op::Get | Op::MetaGet) => {
                let val = Val::of(meta.value.expect("VA has a value"));
                let (won, lost) = (flag(b'W').is_some(), flag(b'Z').is_some());
                match flag(b'X') {
                    Some(_) if op == Op::MetaGet => {
                        assert!(won != lost, "one of W and Z: {meta:?}");
                        Out::Stale { val, cas: unique, won }
                    }
                    _ => Out::Hit { val, cas: unique },
                }
            }
            (MetaCode::Va, Op::Incr(_) | Op::Decr(_)) => {
                Out::Number(meta.value.and_then(number).expect("a number"))
            }
            (MetaCode::En, Op::Get | Op::MetaGet) => Out::Miss,
            (MetaCode::En | MetaCode::Nf, _) => Out::NotFound,
            (MetaCode::Hd, Op::Delete | Op::Invalidate) => Out::Deleted,
            (MetaCode::Hd, Op::Touch) => Out::Touched,
            (MetaCode::Hd, _) => Out::Stored,
            (MetaCode::Ns, _) => Out::NotStored,
            (MetaCode::Ex, _) => Out::Exists,
            (code, op) => panic!("{code:?} to {op:?}"),
        };
        if asked.reply == Reply::HitThenNoop {
            let is_hit = matches!(out, Out::Hit { .. } | Out::Stale { .. });
            assert!(is_hit, "{out:?} to a quiet get");
            asked.hits[0] = Some(out);
            return;
        }
        self.conclude(key, out);
    }

    fn hear_binary(&mut self, bytes: &[u8]) -> usize {
        let (response, consumed) = match packet::parse(bytes, ANSWER_BYTES_MAX) {
            packet::Parsed::Response { response, consumed } => (response, consumed),
            packet::Parsed::Incomplete { .. } => return 0,
            packet::Parsed::Bad => panic!("no reply: {}", bytes.escape_ascii()),
        };
        let asked = self.answered(Some(response.opaque));
        let (key, op) = asked.ops[0];
        let out = match (response.status.expect("a known status"), op) {
            (Status::OutOfMemory, _) => {
                asked.is_refused = true;
                self.finish(Out::Miss);
                return consumed;
            }
            (Status::Ok, Op::Get) => {
                Out::Hit { val: Val::of(response.value), cas: Some(response.cas) }
            }
            (Status::Ok, Op::Incr(_) | Op::Decr(_)) => {
                let number = response.value.try_into().expect("8 bytes");
                Out::Number(u64::from_be_bytes(number))
            }
            (Status::Ok, Op::Delete) => Out::Deleted,
            (Status::Ok, Op::Touch) => Out::Touched,
            (Status::Ok, _) => Out::Stored,
            (Status::NotFound, Op::Get) => Out::Miss,
            (Status::NotFound, Op::Replace(_) | Op::Append(_) | Op::Prepend(_))
            | (Status::Exists, Op::Add(_))
            | (Status::NotStored, _) => Out::NotStored,
            (Status::NotFound, _) => Out::NotFound,
            (Status::Exists, _) => Out::Exists,
            (status, op) => panic!("{status:?} to {op:?}"),
        };
        self.conclude(key, out);
        consumed
    }

    /// Ends the first request, which has one key.
    fn conclude(&mut self, key: usize, out: Out) {
        self.note_unique(key, Some(out));
        self.finish(out);
    }

    fn note_unique(&mut self, key: usize, out: Option<Out>) {
        if let Some(Out::Hit { cas: Some(unique), .. } | Out::Stale { cas: Some(unique), .. }) = out
        {
            self.uniques.insert(key, unique);
        }
    }

    /// The connection is lost: each of its requests has happened, or never will.
    pub(super) fn lose(&mut self) {
        while !self.asked.is_empty() {
            self.finish(Out::Unknown);
        }
    }

    /// Returns the client's observations.
    pub(super) fn end(mut self) -> Vec<Seen> {
        self.lose();
        self.seen
    }
}
