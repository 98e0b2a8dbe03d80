//! The requests of a client of the checked histories: seeded commands, each with a unique value.

use crate::dialect::{Dialect, Request};
use testkit::Rng;
use testkit::history::{Op, Out, Val};

/// The kind of commands.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The number of keys. Every fourth holds numbers.
    pub keys: usize,
    /// The maximum number of commands sent together, each for another key.
    pub pipelined: usize,
    /// The maximum number of bytes added to a stored text.
    pub padding: usize,
    /// Text and meta read with leases and fill with their tokens. Needs a server that gives every
    /// miss one.
    pub leases: bool,
}

/// A client's choices, and the replies that later commands need.
#[derive(Debug)]
pub struct Mix {
    /// The client's protocol.
    pub dialect: Dialect,
    /// The source of the choices.
    pub rng: Rng,
    /// The kind of the next commands.
    pub shape: Shape,
    number: usize,
    /// Values stored so far, which makes each one unique.
    stored: u64,
    /// The last cas unique seen of each key.
    uniques: Vec<u64>,
    /// The last lease token seen of each key.
    tokens: Vec<u64>,
}

/// A cas unique or token that no server gives.
const NONE: u64 = u64::MAX;

impl Mix {
    /// The commands of client `number`; the protocols alternate with the numbers.
    #[must_use]
    pub fn new(number: usize, rng: Rng, shape: Shape) -> Self {
        let dialect = [Dialect::Classic, Dialect::Meta, Dialect::Binary][number % 3];
        let (uniques, tokens) = (vec![NONE; shape.keys], vec![NONE; shape.keys]);
        Self { dialect, rng, shape, number, stored: 0, uniques, tokens }
    }

    /// Records the parts of a reply that later commands for the key need.
    pub fn saw(&mut self, key: usize, out: Out) {
        match out {
            Out::Hit { cas: Some(unique), .. } => self.uniques[key] = unique,
            Out::Token(token) => self.tokens[key] = token,
            _ => {}
        }
    }

    /// Forgets the key's version and token.
    pub fn forget(&mut self, key: usize) {
        (self.uniques[key], self.tokens[key]) = (NONE, NONE);
    }

    /// The next commands, for different keys, so that the checker never has two pending commands of
    /// one client.
    pub fn batch(&mut self) -> Vec<Request> {
        let count = 1 + self.rng.below(self.shape.pipelined.min(self.shape.keys));
        let (keys, first) = (self.shape.keys, self.rng.below(self.shape.keys));
        (first..first + count).map(|key| self.request(key % keys)).collect()
    }

    fn request(&mut self, key: usize) -> Request {
        if key % 4 == 3 { self.on_number(key) } else { self.on_text(key) }
    }

    fn on_text(&mut self, key: usize) -> Request {
        let data = self.text();
        let val = Val::of(&data);
        let has_leases = self.shape.leases && self.dialect != Dialect::Binary;
        let op = match self.rng.below(100) {
            0..=24 if has_leases => Op::LeaseGet,
            40..=54 if has_leases => Op::LeaseSet(val, self.tokens[key]),
            0..=39 => Op::Get,
            40..=59 => Op::Set(val),
            60..=65 => Op::Add(val),
            66..=70 => Op::Replace(val),
            71..=74 => Op::Append(val),
            75 | 76 => Op::Prepend(val),
            77..=86 => Op::Cas(val, self.uniques[key]),
            87..=94 => Op::Delete,
            _ => Op::Touch,
        };
        Request { key, op, data }
    }

    fn on_number(&mut self, key: usize) -> Request {
        self.stored += 1;
        let number = self.stored * 1000 + u64::try_from(self.number).unwrap_or(0);
        let data = number.to_string().into_bytes();
        let val = Val::Number(number);
        let by = 1 + u64::try_from(self.rng.below(100)).unwrap_or(0);
        let op = match self.rng.below(100) {
            0..=29 => Op::Get,
            30..=64 => Op::Incr(by),
            65..=79 => Op::Decr(by),
            80..=87 => Op::Set(val),
            88..=93 => Op::Add(val),
            _ => Op::Delete,
        };
        Request { key, op, data }
    }

    /// A text that no other client stores.
    pub fn text(&mut self) -> Vec<u8> {
        self.stored += 1;
        let mut data = format!("<{}.{}>", self.number, self.stored).into_bytes();
        if self.shape.padding > 0 {
            data.resize(data.len() + self.rng.below(self.shape.padding), b'.');
        }
        data
    }
}
