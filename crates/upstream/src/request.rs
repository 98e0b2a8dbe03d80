//! A request to a server: borrowed while possible, owned when it has to wait.

use hashing::key::before_hash_stop;
use proto::Command;
use spans::Context;

use crate::trail::Trail;

/// One request for one key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'a> {
    /// The command.
    pub op: Command,
    /// The key, 1 to 250 bytes (decoded, if it came as base64); the prefix or empty for
    /// [`Command::FlushAll`], empty for [`Command::Version`].
    pub key: &'a [u8],
    /// Client flags of a stored value.
    pub flags: u32,
    /// The expiry time as on the wire, in seconds: of a stored value, of touch and gat; the delay
    /// of `flush_all`, the hold-off of delete.
    pub exptime: i64,
    /// The cas unique, the lease token, or the amount to count by.
    pub number: u64,
    /// The value to store.
    pub value: &'a [u8],
    /// Flag words of a meta command, without `q`.
    pub words: &'a [u8],
    /// Writes the key in base64: meta commands with `b`.
    pub base64: bool,
    /// Hashed bytes of the key; `None`: the hash functions' rule, up to the hash stop.
    pub hashed: Option<u8>,
    /// A hash of the client's address; 0 if there is none.
    pub client: u32,
    /// The routing prefix that the key had; empty, if none.
    pub prefix: &'a [u8],
    /// Reports a failed delete as failed, instead of keeping it for later.
    pub unkept: bool,
    /// The client requests a notice if a delete was kept for later instead of executed.
    pub tells_kept: bool,
    /// It came as a packet of the binary protocol, whose replies always have the cas unique.
    pub is_packet: bool,
    /// The number of the configuration's listener that received it; 0 if there is only one.
    pub listener: u16,
    /// Counted separately: another server failed before, or no client waits (a shadow).
    pub is_aside: bool,
    /// A shadow's request: no client waits for the answer.
    pub is_shadow: bool,
    /// Also goes to a server with values that are known to be old.
    pub takes_old: bool,
    /// Another server takes over after a failure. A server with values known to be old leaves
    /// stores to it, so that they go to the same server as gets.
    pub fails_over: bool,
    /// Records the pool used, if a client waits for the result.
    pub trail: Option<&'a Trail>,
    /// The span that causes this request, if it is traced.
    pub trace: Option<&'a Context>,
}

impl<'a> Request<'a> {
    /// A request with only a key.
    #[inline]
    #[must_use]
    pub const fn new(op: Command, key: &'a [u8]) -> Self {
        let (flags, exptime, number) = (0, 0, 0);
        let (base64, hashed, client, unkept, listener) = (false, None, 0, false, 0);
        let (tells_kept, is_packet) = (false, false);
        let (is_aside, is_shadow, takes_old, fails_over) = (false, false, false, false);
        let (trail, trace) = (None, None);
        let (value, words, prefix): (&[u8], &[u8], &[u8]) = (b"", b"", b"");
        Self {
            op,
            key,
            flags,
            exptime,
            number,
            value,
            words,
            base64,
            hashed,
            client,
            prefix,
            unkept,
            tells_kept,
            is_packet,
            listener,
            is_aside,
            is_shadow,
            takes_old,
            fails_over,
            trail,
            trace,
        }
    }

    /// A request with only `key`, for the same client: this key, or one that starts with it. It
    /// takes the same path as this request.
    #[must_use]
    pub fn derived<'b>(&self, op: Command, key: &'b [u8]) -> Request<'b>
    where
        'a: 'b,
    {
        let Self { hashed, client, prefix, unkept, listener, .. } = *self;
        let Self { is_aside, is_shadow, fails_over, trace, .. } = *self;
        // If the whole key is hashed, so is the whole other one.
        let is_all = hashed.is_some_and(|len| usize::from(len) == self.key.len());
        let hashed = if is_all { u8::try_from(key.len()).ok() } else { hashed };
        Request {
            hashed,
            client,
            prefix,
            unkept,
            listener,
            is_aside,
            is_shadow,
            fails_over,
            trace,
            ..Request::new(op, key)
        }
    }

    /// The part of the key that selects a server: the part before the hash stop `|#|`, unless a
    /// route has decided otherwise.
    #[inline]
    #[must_use]
    pub fn routed_key(&self) -> &'a [u8] {
        if let Some(len) = self.hashed {
            return self.key.get(..usize::from(len)).unwrap_or(self.key);
        }
        before_hash_stop(self.key)
    }

    /// Bytes of key, prefix, words and value together.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.key.len() + self.prefix.len() + self.words.len() + self.value.len()
    }

    /// A copy of everything that it borrows.
    #[must_use]
    pub fn to_owned(&self) -> OwnedRequest {
        let mut bytes = Vec::with_capacity(self.bytes());
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(self.prefix);
        bytes.extend_from_slice(self.words);
        bytes.extend_from_slice(self.value);
        let rest = Request {
            flags: self.flags,
            exptime: self.exptime,
            number: self.number,
            base64: self.base64,
            hashed: self.hashed,
            client: self.client,
            unkept: self.unkept,
            tells_kept: self.tells_kept,
            is_packet: self.is_packet,
            listener: self.listener,
            is_aside: self.is_aside,
            is_shadow: self.is_shadow,
            takes_old: self.takes_old,
            fails_over: self.fails_over,
            ..Request::new(self.op, b"")
        };
        OwnedRequest {
            rest,
            key_len: self.key.len(),
            prefix_len: self.prefix.len(),
            words_len: self.words.len(),
            bytes,
            trace: self.trace.copied(),
        }
    }
}

/// A [`Request`] that borrows nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedRequest {
    /// The fields that are not bytes.
    rest: Request<'static>,
    key_len: usize,
    prefix_len: usize,
    words_len: usize,
    /// Key, prefix, words, value.
    bytes: Vec<u8>,
    trace: Option<Context>,
}

impl OwnedRequest {
    /// Bytes of key, prefix, words and value together.
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The request.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Request<'_> {
        let (key, rest) = self.bytes.split_at(self.key_len);
        let (prefix, rest) = rest.split_at(self.prefix_len);
        let (words, value) = rest.split_at(self.words_len);
        Request { key, prefix, words, value, trace: self.trace.as_ref(), ..self.rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_before_the_hash_stop_is_hashed() {
        let routed = |key| Request::new(Command::Get, key).routed_key();
        assert_eq!(routed(b"a:b"), b"a:b");
        assert_eq!(routed(b"a|#|b"), b"a");
        assert_eq!(routed(b"a|#|b|#|c"), b"a");
        assert_eq!(routed(b"a|#b"), b"a|#b");
        assert_eq!(routed(b"|#|b"), b"");
    }

    #[test]
    fn a_derived_request_is_routed_like_its_original() {
        let request = Request {
            client: 9,
            listener: 1,
            hashed: Some(1),
            ..Request::new(Command::Set, b"a:b")
        };
        let piece = request.derived(Command::Get, b"a:b:0");
        assert_eq!((piece.client, piece.listener, piece.routed_key()), (9, 1, &b"a"[..]));
        let request = Request { hashed: Some(5), ..Request::new(Command::Set, b"a|#|b") };
        assert_eq!(request.derived(Command::Get, b"a|#|b:0").routed_key(), b"a|#|b:0");
        assert_eq!(
            Request::new(Command::Set, b"a|#|b").derived(Command::Get, b"a|#|b:0").routed_key(),
            b"a"
        );
    }

    #[test]
    fn an_owned_request_equals_its_original() {
        let context = Context::begin();
        let request = Request {
            trace: Some(&context),
            flags: 1,
            exptime: -2,
            number: 3,
            value: b"value",
            words: b"k O1",
            base64: true,
            hashed: Some(2),
            client: 9,
            listener: 1,
            is_aside: true,
            is_shadow: true,
            takes_old: true,
            prefix: b"/a/b/",
            unkept: true,
            ..Request::new(Command::MetaSet, b"key")
        };
        assert_eq!(request.to_owned().get(), request);
    }
}
