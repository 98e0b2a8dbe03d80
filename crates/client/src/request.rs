//! A request on its way to a server: borrowed while it can be, owned when it has to wait.

use memchr::memmem;

/// What is asked.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Op {
    /// add
    Add,
    /// append
    Append,
    /// cas
    Cas,
    /// decr
    Decr,
    /// delete
    Delete,
    /// `flush_all`
    FlushAll,
    /// gat
    Gat,
    /// gats
    Gats,
    /// get
    Get,
    /// gets
    Gets,
    /// incr
    Incr,
    /// lease-get
    LeaseGet,
    /// lease-set
    LeaseSet,
    /// ma
    MetaArithmetic,
    /// me
    MetaDebug,
    /// md
    MetaDelete,
    /// metaget
    MetaInfo,
    /// mg
    MetaGet,
    /// ms
    MetaSet,
    /// prepend
    Prepend,
    /// replace
    Replace,
    /// set
    Set,
    /// touch
    Touch,
    /// version
    Version,
}

/// mcrouter's classes of commands.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Class {
    /// `arithmetic_like`: incr, decr.
    Arithmetic,
    /// `delete_like`: delete.
    Delete,
    /// `get_like`: whatever returns a value.
    Get,
    /// None of the others: `flush_all`, version.
    Other,
    /// `update_like`: whatever stores, and touch.
    Update,
}

impl Op {
    /// Which class of commands it belongs to.
    #[must_use]
    pub const fn class(self) -> Class {
        match self {
            Self::Gat
            | Self::Gats
            | Self::Get
            | Self::Gets
            | Self::LeaseGet
            | Self::MetaDebug
            | Self::MetaInfo
            | Self::MetaGet => Class::Get,
            Self::Add
            | Self::Append
            | Self::Cas
            | Self::LeaseSet
            | Self::MetaSet
            | Self::Prepend
            | Self::Replace
            | Self::Set
            | Self::Touch => Class::Update,
            Self::Delete | Self::MetaDelete => Class::Delete,
            Self::Decr | Self::Incr | Self::MetaArithmetic => Class::Arithmetic,
            Self::FlushAll | Self::Version => Class::Other,
        }
    }

    /// mcrouter's name of the command, as in `operation_policies`; of a meta command, that of the classic one it is like.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Append => "append",
            Self::Cas => "cas",
            Self::Decr => "decr",
            Self::Delete | Self::MetaDelete => "delete",
            Self::FlushAll => "flushall",
            Self::Gat => "gat",
            Self::Gats => "gats",
            Self::Get | Self::MetaGet => "get",
            Self::Gets => "gets",
            Self::Incr | Self::MetaArithmetic => "incr",
            Self::LeaseGet => "lease-get",
            Self::LeaseSet => "lease-set",
            Self::MetaDebug | Self::MetaInfo => "metaget",
            Self::Prepend => "prepend",
            Self::Replace => "replace",
            Self::Set | Self::MetaSet => "set",
            Self::Touch => "touch",
            Self::Version => "version",
        }
    }

    /// Whether a data block follows the line.
    #[must_use]
    pub const fn has_value(self) -> bool {
        matches!(
            self,
            Self::Add
                | Self::Append
                | Self::Cas
                | Self::LeaseSet
                | Self::MetaSet
                | Self::Prepend
                | Self::Replace
                | Self::Set
        )
    }

    /// Whether it is one of the meta protocol.
    #[must_use]
    pub const fn is_meta(self) -> bool {
        matches!(
            self,
            Self::MetaArithmetic
                | Self::MetaDebug
                | Self::MetaDelete
                | Self::MetaGet
                | Self::MetaSet
        )
    }
}

/// One request for one key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request<'a> {
    /// What is asked.
    pub op: Op,
    /// The key, 1 to 250 bytes (decoded, if it came as base64); empty for [`Op::FlushAll`] and [`Op::Version`].
    pub key: &'a [u8],
    /// Client flags of what is stored.
    pub flags: u32,
    /// The expiry time as it is on the wire, in seconds: of what is stored, of touch and gat; the delay of `flush_all`, the hold-off
    /// of delete.
    pub exptime: i64,
    /// The cas unique, the lease token, or by how much to count.
    pub number: u64,
    /// What is stored.
    pub value: &'a [u8],
    /// Flag words of a meta command, without `q`.
    pub words: &'a [u8],
    /// The key is to be written in base64: meta commands with `b`.
    pub base64: bool,
    /// Only so many bytes of the key are hashed; `None`: as hash functions have it, up to the hash stop.
    pub hashed: Option<u8>,
    /// A hash of the client's address; 0 where there is none.
    pub client: u32,
}

impl<'a> Request<'a> {
    /// A request of a key alone.
    #[must_use]
    pub const fn new(op: Op, key: &'a [u8]) -> Self {
        let (flags, exptime, number) = (0, 0, 0);
        let (base64, hashed, client) = (false, None, 0);
        Self { op, key, flags, exptime, number, value: b"", words: b"", base64, hashed, client }
    }

    /// The part of the key by which a server is chosen: what stands before the hash stop `|#|`, if there is one and no route
    /// has said otherwise.
    #[inline]
    #[must_use]
    pub fn routed_key(&self) -> &'a [u8] {
        if let Some(len) = self.hashed {
            return self.key.get(..usize::from(len)).unwrap_or(self.key);
        }
        if memchr::memchr(b'|', self.key).is_none() {
            return self.key;
        }
        let end = memmem::find(self.key, HASH_STOP).unwrap_or(self.key.len());
        self.key.get(..end).unwrap_or(self.key)
    }

    /// A copy of everything that it borrows.
    #[must_use]
    pub fn to_owned(&self) -> OwnedRequest {
        let mut bytes = Vec::with_capacity(self.key.len() + self.words.len() + self.value.len());
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(self.words);
        bytes.extend_from_slice(self.value);
        OwnedRequest {
            op: self.op,
            flags: self.flags,
            exptime: self.exptime,
            number: self.number,
            base64: self.base64,
            hashed: self.hashed,
            client: self.client,
            key_len: self.key.len(),
            words_len: self.words.len(),
            bytes,
        }
    }
}

/// What separates the part of a key that is hashed from the rest (mcrouter).
pub const HASH_STOP: &[u8] = b"|#|";

/// A [`Request`] that borrows nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedRequest {
    op: Op,
    flags: u32,
    exptime: i64,
    number: u64,
    base64: bool,
    hashed: Option<u8>,
    client: u32,
    key_len: usize,
    words_len: usize,
    /// Key, words, value.
    bytes: Vec<u8>,
}

impl OwnedRequest {
    /// Bytes of key, words and value together.
    #[cfg(feature = "application")]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The request.
    #[must_use]
    pub fn get(&self) -> Request<'_> {
        let (key, rest) = self.bytes.split_at(self.key_len);
        let (words, value) = rest.split_at(self.words_len);
        let Self { op, flags, exptime, number, base64, hashed, client, .. } = *self;
        Request { op, key, flags, exptime, number, value, words, base64, hashed, client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_before_the_hash_stop_is_hashed() {
        let routed = |key| Request::new(Op::Get, key).routed_key();
        assert_eq!(routed(b"a:b"), b"a:b");
        assert_eq!(routed(b"a|#|b"), b"a");
        assert_eq!(routed(b"a|#|b|#|c"), b"a");
        assert_eq!(routed(b"a|#b"), b"a|#b");
        assert_eq!(routed(b"|#|b"), b"");
    }

    #[test]
    fn an_owned_request_is_the_same() {
        let request = Request {
            flags: 1,
            exptime: -2,
            number: 3,
            value: b"value",
            words: b"k O1",
            base64: true,
            hashed: Some(2),
            client: 9,
            ..Request::new(Op::MetaSet, b"key")
        };
        assert_eq!(request.to_owned().get(), request);
    }
}
