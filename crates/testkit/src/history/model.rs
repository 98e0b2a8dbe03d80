//! One key of a memcached in the checker's model: the possible effects and answers of a command.

use super::Mode;

/// A value: its number if it is one, else a hash that can be extended at both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Val {
    /// A decimal number, as written by `incr`.
    Number(u64),
    /// A polynomial hash of the bytes, modulo 2^64, and their number.
    Text {
        /// The sum of byte x BASE^(distance from the end).
        hash: u64,
        /// Length in bytes.
        len: u32,
    },
}

const BASE: u64 = 0x0001_0000_01b3;

impl Val {
    /// The value of these bytes. Only digits are a number (except for trailing spaces, which
    /// memcached's `decr` may leave).
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).unwrap_or("x").trim_end_matches(' ');
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(number) if digits => Self::Number(number),
            _ => Self::text(bytes),
        }
    }

    fn text(bytes: &[u8]) -> Self {
        let hash = bytes
            .iter()
            .fold(0_u64, |hash, &byte| hash.wrapping_mul(BASE).wrapping_add(u64::from(byte) + 1));
        let len = u32::try_from(bytes.len()).expect("a value is shorter than 4 GB");
        Self::Text { hash, len }
    }

    /// This value with `tail` after it.
    #[must_use]
    pub fn followed_by(self, tail: Self) -> Self {
        let ((head_hash, head_len), (tail_hash, tail_len)) = (self.parts(), tail.parts());
        let hash = head_hash.wrapping_mul(BASE.wrapping_pow(tail_len)).wrapping_add(tail_hash);
        Self::Text { hash, len: head_len + tail_len }
    }

    fn parts(self) -> (u64, u32) {
        match self {
            Self::Text { hash, len } => (hash, len),
            Self::Number(number) => match Self::text(number.to_string().as_bytes()) {
                Self::Text { hash, len } => (hash, len),
                Self::Number(_) => (0, 0),
            },
        }
    }
}

/// A client's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// `add`
    Add(Val),
    /// `append`
    Append(Val),
    /// `cas` with the unique of an earlier `gets`
    Cas(Val, u64),
    /// `decr`
    Decr(u64),
    /// `delete`
    Delete,
    /// `flush_all`, or `flush_prefix` with a prefix of the key
    Flush,
    /// `get` or `gets`
    Get,
    /// `incr`
    Incr(u64),
    /// `md` with `I`: the item stays, as a stale one
    Invalidate,
    /// `lease-get` of a server that gives every miss a token
    LeaseGet,
    /// `lease-set` with the token of an earlier `lease-get`
    LeaseSet(Val, u64),
    /// `mg`, which reports stale items, and whose first reader of one wins
    MetaGet,
    /// `prepend`
    Prepend(Val),
    /// `replace`
    Replace(Val),
    /// `set`
    Set(Val),
    /// `touch`, with a time far ahead
    Touch,
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    /// `DELETED`
    Deleted,
    /// `EXISTS`
    Exists,
    /// `OK`
    Flushed,
    /// a value, with its cas unique when it was asked for
    Hit {
        /// The bytes.
        val: Val,
        /// The version.
        cas: Option<u64>,
    },
    /// `END` with no value before it
    Miss,
    /// `NOT_FOUND`
    NotFound,
    /// `NOT_STORED`
    NotStored,
    /// the new number of `incr` or `decr`
    Number(u64),
    /// a stale value (`X`), with its cas unique when it was asked for
    Stale {
        /// The bytes.
        val: Val,
        /// The version.
        cas: Option<u64>,
        /// This reader must renew it (`W`), and not another (`Z`).
        won: bool,
    },
    /// `STORED`
    Stored,
    /// `LVALUE`: a miss, and the token to fill it with
    Token(u64),
    /// `TOUCHED`
    Touched,
    /// the connection was cut before the answer: it happened, or it did not
    Unknown,
}

/// A key: absent, or a value and its version, if a `gets` has shown it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct State {
    item: Option<(Val, Option<u64>)>,
    /// For an item: whether it is stale.
    mark: Mark,
    /// For an absent key: the last lease token, if nothing has voided it.
    token: Option<u64>,
}

/// The effect of an invalidation on an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
enum Mark {
    #[default]
    Fresh,
    /// No reader has won it.
    Stale,
    Won,
}

/// The same hit, with the cas unique of no item.
fn without_cas(out: &Out) -> Option<Out> {
    match *out {
        Out::Hit { val, cas: Some(_) } => Some(Out::Hit { val, cas: None }),
        Out::Stale { val, cas: Some(_), won } => Some(Out::Stale { val, cas: None, won }),
        _ => None,
    }
}

/// A token granted on a cut connection: no client has it.
const TOKEN_LOST: u64 = 0;

impl State {
    /// The possible states after `op` with the answer `out`; none if that is impossible.
    #[must_use]
    pub fn after(self, op: &Op, out: &Out, mode: Mode) -> [Option<Self>; 3] {
        if matches!(out, Out::Unknown) {
            let [stays, vanishes] = self.after_unknown(op, mode);
            return [stays, vanishes, None];
        }
        let stays = self.step(op, out);
        let vanishes = match (mode, self.item) {
            (Mode::Evicting | Mode::Starved, Some(_)) => Self::default().step(op, out),
            _ => None,
        };
        let is_new = |state: &Self| Some(*state) != stays;
        let lacks_memory = matches!(mode, Mode::Starved | Mode::Full);
        let unnamed = if lacks_memory { without_cas(out) } else { None };
        let unnamed = unnamed.and_then(|out| self.step(op, &out));
        [stays, vanishes.filter(is_new), unnamed.filter(is_new)]
    }

    /// The states after an answer that no client saw: the command did what the state allowed. The
    /// checker handles the case that it never happened.
    fn after_unknown(self, op: &Op, mode: Mode) -> [Option<Self>; 2] {
        const ANSWERS: [Out; 8] = [
            Out::Deleted,
            Out::Exists,
            Out::Flushed,
            Out::Miss,
            Out::NotFound,
            Out::NotStored,
            Out::Stored,
            Out::Touched,
        ];
        let number = match (op, self.item) {
            (Op::Incr(by), Some((Val::Number(now), _))) => Some(Out::Number(now.wrapping_add(*by))),
            (Op::Decr(by), Some((Val::Number(now), _))) => {
                Some(Out::Number(now.saturating_sub(*by)))
            }
            _ => None,
        };
        let from = |state: Self| ANSWERS.iter().chain(&number).find_map(|out| state.step(op, out));
        let stays = match op {
            Op::Get => Some(self),
            Op::MetaGet if self.mark == Mark::Stale => Some(Self { mark: Mark::Won, ..self }),
            Op::MetaGet => Some(self),
            Op::LeaseGet if self.item.is_some() => Some(self),
            Op::LeaseGet => self.step(op, &Out::Token(TOKEN_LOST)),
            _ => from(self),
        };
        let stays_here = matches!(mode, Mode::Strict | Mode::Full);
        let vanishes = if stays_here { None } else { from(Self::default()) };
        [stays, vanishes.filter(|&state| Some(state) != stays)]
    }

    /// The rules of the commands, for an item that does not vanish.
    fn step(self, op: &Op, out: &Out) -> Option<Self> {
        let fresh = |val: Val| Some(Self { item: Some((val, None)), ..Self::default() });
        match (*op, *out, self.item) {
            (Op::Get | Op::MetaGet, Out::Miss, None)
            | (Op::Add(_), Out::NotStored, Some(_))
            | (Op::Append(_) | Op::Prepend(_) | Op::Replace(_), Out::NotStored, None)
            | (Op::Cas(..) | Op::Decr(_) | Op::Incr(_) | Op::Touch, Out::NotFound, None)
            | (Op::Touch, Out::Touched, Some(_)) => Some(self),
            (Op::MetaGet, Out::Hit { .. }, Some(_)) if self.mark != Mark::Fresh => None,
            (Op::Get | Op::LeaseGet | Op::MetaGet, Out::Hit { val, cas }, Some(now)) => {
                self.seen(now, val, cas)
            }
            (Op::MetaGet, Out::Stale { val, cas, won }, Some(now)) => {
                let is_right = self.mark != Mark::Fresh && won == (self.mark == Mark::Stale);
                let seen = self.seen(now, val, cas).filter(|_| is_right)?;
                Some(Self { mark: Mark::Won, ..seen })
            }
            // It is another version from now on.
            (Op::Invalidate, Out::Deleted, Some((now, _))) => {
                Some(Self { item: Some((now, None)), mark: Mark::Stale, token: None })
            }
            (Op::LeaseGet, Out::Token(token), None) => {
                Some(Self { token: Some(token), ..Self::default() })
            }
            (Op::LeaseSet(val, token), Out::Stored, None) if self.token == Some(token) => {
                fresh(val)
            }
            (Op::LeaseSet(_, token), Out::NotStored, _) if self.token != Some(token) => Some(self),
            (Op::Set(val), Out::Stored, _)
            | (Op::Add(val), Out::Stored, None)
            | (Op::Replace(val), Out::Stored, Some(_)) => fresh(val),
            (Op::Append(tail), Out::Stored, Some((now, _))) => fresh(now.followed_by(tail)),
            (Op::Prepend(head), Out::Stored, Some((now, _))) => fresh(head.followed_by(now)),
            // A client has a unique from a `gets` that returned before, so its version is known.
            (Op::Cas(val, unique), Out::Stored, Some((_, Some(known)))) if known == unique => {
                fresh(val)
            }
            (Op::Cas(_, unique), Out::Exists, Some((_, known))) if known != Some(unique) => {
                Some(self)
            }
            // A delete of nothing has changed the database, too: the holder of a token has read the
            // older value.
            (Op::Delete, Out::Deleted, Some(_))
            | (Op::Delete | Op::Invalidate, Out::NotFound, None)
            | (Op::Flush, Out::Flushed, _) => Some(Self::default()),
            (Op::Incr(by), Out::Number(answer), Some((Val::Number(now), _)))
                if answer == now.wrapping_add(by) =>
            {
                fresh(Val::Number(answer))
            }
            (Op::Decr(by), Out::Number(answer), Some((Val::Number(now), _)))
                if answer == now.saturating_sub(by) =>
            {
                fresh(Val::Number(answer))
            }
            _ => None,
        }
    }
    /// The state after a read of `now`; `None` if it showed another value or version.
    fn seen(self, now: (Val, Option<u64>), val: Val, cas: Option<u64>) -> Option<Self> {
        let (now, known) = now;
        let agree = val == now && (cas.is_none() || known.is_none() || cas == known);
        agree.then_some(Self { item: Some((now, known.or(cas))), token: None, ..self })
    }
}
