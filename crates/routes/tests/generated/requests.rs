//! Random requests: every command, over few keys.

use testkit::Rng;
use upstream::{Command, Request};

/// Few keys, so that requests meet: with parts, prefixes, hash stops, and lengths that leave no
/// room for suffixes.
const KEYS: [&[u8]; 14] = [
    b"k",
    b"k1",
    b"k:1:x",
    b"k:2:x",
    b"other",
    b"k|#|stop",
    b"|#|",
    b"/a/b/k",
    b"/a/c/k",
    b"/*/*/k",
    b"/a/b/",
    b"/",
    &[b'x'; 250],
    &[b'k'; 244],
];

const VALUES: [&[u8]; 5] = [b"", b"1", b"12345678901234567890", &[b'v'; 5000], b"1-2-3"];

const WORDS: [&[u8]; 7] = [b"", b"v", b"v f t k", b"c s O1", b"MA N9", b"N30 J5 v", b"x I T5"];

const NUMBERS: [i64; 6] = [0, 1, -1, 60, 4_000_000_000, i64::MAX];

/// One request.
#[derive(Debug)]
pub(crate) struct Made {
    op: Command,
    key: &'static [u8],
    value: &'static [u8],
    words: &'static [u8],
    exptime: i64,
    number: u64,
    flags: u32,
    client: u32,
}

impl Made {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let op = loop {
            // A command that empties every server is not a request for a key.
            let op = *rng.pick(&Command::ALL);
            if !matches!(op, Command::FlushAll | Command::Version) {
                break op;
            }
        };
        Self {
            op,
            key: *rng.pick(&KEYS),
            value: *rng.pick(&VALUES),
            words: if op.is_meta() { *rng.pick(&WORDS) } else { b"" },
            exptime: *rng.pick(&NUMBERS),
            number: rng.pick(&NUMBERS).unsigned_abs(),
            flags: *rng.pick(&[0, 5, 0x8000, 0x20, 0x1_0000, u32::MAX]),
            client: *rng.pick(&[0, 1, u32::MAX]),
        }
    }

    pub(crate) fn request(&self) -> Request<'_> {
        let Self { op, key, value, words, exptime, number, flags, client } = *self;
        Request { flags, exptime, number, value, words, client, ..Request::new(op, key) }
    }
}
