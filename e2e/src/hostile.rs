//! Inputs that once broke a server, by name.
//!
//! Most names are those of the published vulnerability, or of the fix in memcached, mcrouter or
//! twemproxy; the rest are of the same classes. An input is sent on one connection. The test checks
//! after each that the server still serves other clients.

pub mod admin;
pub mod binary;
pub mod meta;
pub mod text;

/// The bytes that one hostile connection sends.
#[derive(Debug, Clone)]
pub struct Input {
    /// Its origin.
    pub name: String,
    /// The bytes, sent at once.
    pub bytes: Vec<u8>,
    /// The required reply.
    pub want: Want,
}

/// The required properties of the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Want {
    /// Anything, including silence.
    Anything,
    /// The reply must not confirm a store, because the request is invalid.
    Refused,
    /// The server must not execute the request's body as a request: a `version` in it has no reply.
    BodyUnread,
}

fn any(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Input {
    Input { name: name.into(), bytes: bytes.into(), want: Want::Anything }
}

fn refused(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Input {
    Input { name: name.into(), bytes: bytes.into(), want: Want::Refused }
}

impl Input {
    /// Describes the fault in this reply; None when it has none.
    #[must_use]
    pub fn fault(&self, reply: &[u8]) -> Option<String> {
        let shown = testkit::wire::show(reply);
        let has = |text: &str| testkit::wire::find(reply, text.as_bytes()).is_some();
        let confirmed = match self.bytes.first() {
            Some(0x80) => reply.first() == Some(&0x81) && reply.get(6..8) == Some(&[0, 0]),
            _ => has("STORED\r\n") && !has("NOT_STORED") || reply.starts_with(b"HD"),
        };
        let bad = match self.want {
            Want::Anything => false,
            Want::Refused => confirmed,
            Want::BodyUnread => has("VERSION"),
        };
        bad.then(|| format!("{}: answered {shown}", self.name))
    }
}

/// Numbers that break parsers.
const LENGTHS: [&str; 20] = [
    "-1",
    "-2",
    "-2147483648",
    "2147483645",
    "2147483646",
    "2147483647",
    "2147483648",
    "4294967293",
    "4294967294",
    "4294967295",
    "4294967296",
    "4294967297",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551613",
    "18446744073709551615",
    "18446744073709551616",
    "18446744073709551617",
    "99999999999999999999999999999999",
    "0x10",
];
