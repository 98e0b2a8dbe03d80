//! Workloads: the bytes of a batch of requests, and the test that its replies are complete.
//!
//! Keys are `key:` and twelve digits; the value of a key is the repeated key. So every request and
//! every reply of a workload has a fixed length, and a batch is complete when its bytes have
//! arrived: the generator need not parse.

use std::fmt;

use crate::rng::Rng;

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The kind of request.
    pub kind: Kind,
    /// Bytes of every value.
    pub value_bytes: usize,
}

/// The requests of a batch, which the generator sends in one write before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gets of random keys, `depth` at a time.
    Get {
        /// Requests in a batch.
        depth: usize,
    },
    /// Gets of one key, `depth` at a time.
    Hot {
        /// Requests in a batch.
        depth: usize,
    },
    /// One get or, one time in ten, one set.
    Mixed,
    /// One get of `keys` random keys.
    Multiget {
        /// Keys in the request.
        keys: usize,
    },
    /// Sets of random keys, `depth` at a time.
    Set {
        /// Requests in a batch.
        depth: usize,
        /// The key space is larger than the server's memory.
        evicts: bool,
    },
}

/// The test that the replies of a batch are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// This many bytes: replies of known length.
    Bytes(usize),
    /// This many lines of `STORED`; a longer line is a refusal.
    Stored(usize),
}

/// Every workload of the comparison, for one size of values.
pub const KINDS: [Kind; 9] = [
    Kind::Get { depth: 1 },
    Kind::Get { depth: 16 },
    Kind::Multiget { keys: 24 },
    Kind::Multiget { keys: 100 },
    Kind::Mixed,
    Kind::Set { depth: 16, evicts: false },
    Kind::Hot { depth: 1 },
    Kind::Hot { depth: 16 },
    Kind::Set { depth: 16, evicts: true },
];

impl Kind {
    /// Requests, or keys of a multiget, in one batch.
    #[must_use]
    pub fn units(self) -> usize {
        match self {
            Self::Get { depth } | Self::Hot { depth } | Self::Set { depth, .. } => depth,
            Self::Mixed => 1,
            Self::Multiget { keys } => keys,
        }
    }

    /// True for a workload that needs a server whose memory is too small for the keys.
    #[must_use]
    pub fn evicts(self) -> bool {
        matches!(self, Self::Set { evicts: true, .. })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get { depth } => write!(f, "get-{depth}"),
            Self::Hot { depth } => write!(f, "hot-{depth}"),
            Self::Mixed => f.write_str("mixed-90-10"),
            Self::Multiget { keys } => write!(f, "multiget-{keys}"),
            Self::Set { depth, evicts: false } => write!(f, "set-{depth}"),
            Self::Set { depth, evicts: true } => write!(f, "set-{depth}-evicting"),
        }
    }
}

/// Makes the batches of one workload.
#[derive(Debug)]
pub struct Batches {
    workload: Workload,
    keys: u32,
    rng: Rng,
    /// Four decimal digits of each number below 10,000.
    digits: Vec<[u8; 4]>,
    set_tail: Vec<u8>,
    value_reply_bytes: usize,
}

impl Batches {
    /// Batches over `keys` keys (fewer than 10^8), in an order that depends on `seed`.
    #[must_use]
    pub fn new(workload: Workload, keys: u32, seed: u64) -> Self {
        let digit = |n: u32, place: u32| b"0123456789"[(n / 10u32.pow(place) % 10) as usize];
        let digits = (0..10_000).map(|n| [digit(n, 3), digit(n, 2), digit(n, 1), digit(n, 0)]);
        let set_tail = format!(" 0 0 {}\r\n", workload.value_bytes).into_bytes();
        let head = format!("VALUE  0 {}\r\n\r\n", workload.value_bytes).len();
        let value_reply_bytes = head + KEY_BYTES + workload.value_bytes;
        let rng = Rng::new(seed);
        Self { workload, keys, rng, digits: digits.collect(), set_tail, value_reply_bytes }
    }

    /// Appends the next batch to `out`.
    #[inline]
    pub fn next(&mut self, out: &mut Vec<u8>) -> Expect {
        match self.workload.kind {
            Kind::Get { depth } => self.gets(depth, false, out),
            Kind::Hot { depth } => self.gets(depth, true, out),
            Kind::Mixed if self.rng.below(10) > 0 => self.gets(1, false, out),
            Kind::Mixed => self.sets(1, out),
            Kind::Multiget { keys } => {
                out.extend_from_slice(b"get");
                for _ in 0..keys {
                    out.push(b' ');
                    let key = self.rng.below(self.keys);
                    self.key(key, out);
                }
                out.extend_from_slice(b"\r\n");
                Expect::Bytes(keys * self.value_reply_bytes + 5)
            }
            Kind::Set { depth, .. } => self.sets(depth, out),
        }
    }

    fn gets(&mut self, depth: usize, is_hot: bool, out: &mut Vec<u8>) -> Expect {
        for _ in 0..depth {
            let key = if is_hot { 0 } else { self.rng.below(self.keys) };
            out.extend_from_slice(b"get ");
            self.key(key, out);
            out.extend_from_slice(b"\r\n");
        }
        Expect::Bytes(depth * (self.value_reply_bytes + 5))
    }

    fn sets(&mut self, depth: usize, out: &mut Vec<u8>) -> Expect {
        for _ in 0..depth {
            let key = self.rng.below(self.keys);
            self.set(key, out);
        }
        Expect::Stored(depth)
    }

    /// Appends a request that stores `key`.
    pub fn set(&self, key: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(b"set ");
        self.key(key, out);
        out.extend_from_slice(&self.set_tail);
        self.value(key, out);
        out.extend_from_slice(b"\r\n");
    }

    /// Appends the reply to a get of the keys from `keys`, all of them found.
    pub fn found(&self, keys: impl Iterator<Item = u32>, out: &mut Vec<u8>) {
        for key in keys {
            out.extend_from_slice(b"VALUE ");
            self.key(key, out);
            out.extend_from_slice(format!(" 0 {}\r\n", self.workload.value_bytes).as_bytes());
            self.value(key, out);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"END\r\n");
    }

    /// Appends the name of `key`.
    #[inline]
    pub fn key(&self, key: u32, out: &mut Vec<u8>) {
        let (high, low) = (key / 10_000 % 10_000, key % 10_000);
        let mut name = *b"key:000000000000";
        name[8..12].copy_from_slice(&self.digits[high as usize]);
        name[12..16].copy_from_slice(&self.digits[low as usize]);
        out.extend_from_slice(&name);
    }

    fn value(&self, key: u32, out: &mut Vec<u8>) {
        let (start, end) = (out.len(), out.len() + self.workload.value_bytes);
        while out.len() < end {
            self.key(key, out);
        }
        out.truncate(end);
        debug_assert!(out.len() - start == self.workload.value_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_have_the_length_expected_for_their_batch() {
        let workload = Workload { kind: Kind::Multiget { keys: 3 }, value_bytes: 20 };
        let mut batches = Batches::new(workload, 100, 1);
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let expect = batches.next(&mut request);
        assert_eq!(request.len(), "get".len() + 3 * (1 + KEY_BYTES) + 2);
        batches.found([5, 6, 12_345_678].into_iter(), &mut reply);
        assert_eq!(expect, Expect::Bytes(reply.len()));
        assert!(
            reply.starts_with(b"VALUE key:000000000005 0 20\r\nkey:000000000005key:\r\nVALUE key")
        );
        assert!(reply.ends_with(b"VALUE key:000012345678 0 20\r\nkey:000012345678key:\r\nEND\r\n"));
    }

    #[test]
    fn a_set_is_written_completely() {
        let workload = Workload { kind: Kind::Mixed, value_bytes: 5 };
        let mut out = Vec::new();
        Batches::new(workload, 1, 1).set(42, &mut out);
        assert_eq!(out, b"set key:000000000042 0 0 5\r\nkey:0\r\n");
    }
}
