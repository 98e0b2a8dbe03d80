//! Seeded generators of commands: those of clients, of faulty clients and of attackers.

pub mod binary;
pub mod meta;
pub mod refused;
pub mod text;

use testkit::Rng;

/// A command and the possible differences of its reply from memcached's.
#[derive(Debug, Clone)]
pub struct Command {
    /// The bytes to send. [`CAS_MARK`] in them stands for the last cas unique from the server.
    pub bytes: Vec<u8>,
    /// The intended differences that its reply may show; see [`crate::differences`].
    pub may_differ: &'static [&'static str],
    /// True when the server must close the connection after it.
    pub closes: bool,
}

/// Replaced by the last cas unique from this server on this connection (text: as a number).
pub const CAS_MARK: &[u8] = b"{CAS-UNIQUE}";

impl Command {
    /// A command whose reply must equal memcached's.
    #[must_use]
    pub fn same(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), may_differ: &[], closes: false }
    }

    /// A command whose reply may show one of the intended differences.
    #[must_use]
    pub fn differs(bytes: impl Into<Vec<u8>>, may_differ: &'static [&'static str]) -> Self {
        Self { bytes: bytes.into(), may_differ, closes: false }
    }

    /// A command after which the connection is closed.
    #[must_use]
    pub fn closing(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), may_differ: &[], closes: true }
    }
}

/// The keys of a case: few, so that commands interact; new in each case, so that cases do not.
#[derive(Debug)]
pub struct Keys {
    /// For any command but arithmetic.
    pub any: Vec<Vec<u8>>,
    /// Holds only numbers of nineteen digits, which never become shorter. memcached may write a
    /// shorter result over a longer one and pad with spaces, or may not, depending on its load.
    pub wide: Vec<u8>,
    /// Never empty and never only white space: memcached 1.6.18 looks for a number in the bytes
    /// after such a value.
    pub number: Vec<u8>,
    /// For commands that one server executes and the other refuses. No other command reads the
    /// result.
    pub odd: Vec<u8>,
    /// For commands including meta commands with the flag `I`. Nothing is appended to it, because
    /// in memcached that ends an invalidation.
    pub invalidated: Vec<u8>,
    /// A key in base64, only for meta commands with the flag `b`.
    pub encoded: Vec<u8>,
}

/// The least number of nineteen digits. Not twenty: from 2^63 on, memcached 1.6.18 looks for a
/// minus sign in the bytes after the value.
pub const WIDE: u64 = 1_000_000_000_000_000_000;

/// Creates new keys.
#[must_use]
pub fn keys(rng: &mut Rng) -> Keys {
    let stem = format!("{:016x}", rng.next_u64());
    let mut any: Vec<Vec<u8>> = (0..3).map(|i| format!("{stem}-{i}").into_bytes()).collect();
    let mut longest = stem.clone().into_bytes();
    longest.resize(250, b'x');
    any.push(longest);
    any.push([stem.as_bytes(), b"\x01\x7f\t\xc3\xa9\xff"].concat());
    Keys {
        any,
        wide: format!("{stem}-wide").into_bytes(),
        number: format!("{stem}-number").into_bytes(),
        odd: format!("{stem}-odd").into_bytes(),
        invalidated: format!("{stem}-invalidated").into_bytes(),
        encoded: base64(&stem.as_bytes()[..15]),
    }
}

impl Keys {
    /// One of the keys for any command.
    pub fn one(&self, rng: &mut Rng) -> &[u8] {
        &self.any[rng.below(self.any.len())]
    }
}

/// A value: numbers, text with line ends, and sizes around the server's steps.
pub fn value(rng: &mut Rng) -> Vec<u8> {
    const TEXTS: [&[u8]; 10] = [
        b"",
        b"7",
        b"99",
        b"100",
        b"9000000000000000000",
        b"abc",
        b"-1",
        b"a\r\nb",
        b"\r\n",
        b"get x\r\n",
    ];
    match rng.below(10) {
        0..=5 => rng.pick(&TEXTS).to_vec(),
        6 | 7 => letters(rng, 100),
        8 => letters(rng, 3000),
        _ => letters(rng, 70_000),
    }
}

/// A value of [`Keys::number`]: a number, or something else, but never empty.
pub fn number(rng: &mut Rng) -> &'static [u8] {
    let texts: [&[u8]; 7] = [b"7", b"99", b"100", b"9000000000000000000", b"abc", b"-1", b"a\r\nb"];
    texts[rng.below(texts.len())]
}

/// Up to `max` letters without line ends, so that no value contains the end of a reply.
pub fn letters(rng: &mut Rng, max: usize) -> Vec<u8> {
    let len = rng.below(max + 1);
    (0..len).map(|_| b'a' + u8::try_from(rng.below(26)).unwrap_or(0)).collect()
}

/// Base64 of a multiple of three bytes.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let four = |three: &[u8]| {
        let bits = three.iter().fold(0_usize, |bits, &byte| bits << 8 | usize::from(byte));
        [18, 12, 6, 0].map(|shift| ALPHABET[bits >> shift & 63])
    };
    bytes.chunks(3).flat_map(four).collect()
}
