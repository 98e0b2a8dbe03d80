//! A span: the work of one program for one request.

use xxhash_rust::xxh3::xxh3_64;

use crate::context::Context;

/// The side of the request that a span shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// The program received the request.
    Server,
    /// The program sent the request.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// A span that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// Its trace, and its own number.
    pub context: Context,
    /// The span that caused it.
    pub parent: Option<[u8; 8]>,
    /// The side that it shows.
    pub kind: Kind,
    /// The operation.
    pub name: &'static str,
    /// Nanoseconds since 1970.
    pub began_ns: u64,
    /// Nanoseconds since 1970; not before `began_ns`.
    pub ended_ns: u64,
    /// Facts about it.
    pub attributes: Vec<(&'static str, Value)>,
    /// The reason why it failed.
    pub error: Option<&'static str>,
}

/// The number that identifies a key in spans: XXH3, the same in every process.
#[must_use]
pub fn key_hash(key: &[u8]) -> Value {
    Value::Text(format!("{:016x}", xxh3_64(key)))
}
