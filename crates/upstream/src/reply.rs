//! The outcome of a request: a server's answer, or the reason why there is none.

use proto::answer::MetaCode;
use proto::{Command, CommandClass, Failure};
use spans::{OpenSpan, Value};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// delete found its item.
    Deleted,
    /// cas: the item has changed.
    Exists,
    /// There is no answer, or the server refused.
    Failed(Failure),
    /// A value.
    Found,
    /// lease-get: no fresh value; the token, and perhaps a stale value.
    Lease,
    /// A reply to a meta command.
    Meta(MetaCode),
    /// The answer to `metaget`.
    MetaInfo,
    /// get: a miss. delete, touch, cas, incr: no such item.
    NotFound,
    /// The condition of add, replace, append, prepend, lease-set does not hold.
    NotStored,
    /// The answer to incr and decr.
    Number,
    /// `flush_all` is done.
    Ok,
    /// lease-set: stored as a stale value.
    StaleStored,
    /// Stored.
    Stored,
    /// touch found its item.
    Touched,
    /// The answer to version.
    Version,
}

impl Outcome {
    /// Its rank by mcrouter's order; the worst of several replies is that of the greatest
    /// number.
    #[inline]
    #[must_use]
    pub const fn severity(self) -> u8 {
        match self {
            Self::Deleted
            | Self::Found
            | Self::Number
            | Self::Ok
            | Self::StaleStored
            | Self::Stored
            | Self::Touched
            | Self::Version
            | Self::MetaInfo
            | Self::Exists
            | Self::Meta(
                MetaCode::Hd | MetaCode::Va | MetaCode::Me | MetaCode::Mn | MetaCode::Ex,
            ) => 1,
            Self::Lease => 2,
            Self::NotFound
            | Self::NotStored
            | Self::Meta(MetaCode::En | MetaCode::Nf | MetaCode::Ns) => 4,
            Self::Failed(failure) => match failure {
                Failure::DeadlineExceeded => 6,
                Failure::RemoteError => 7,
                Failure::LocalError => 8,
                Failure::ClientError => 9,
                Failure::Busy
                | Failure::ConnectError
                | Failure::ConnectTimeout
                | Failure::Shutdown
                | Failure::Tko
                | Failure::Timeout
                | Failure::TryAgain => 5,
            },
        }
    }

    /// A miss of a get, or a delete that found nothing.
    #[inline]
    #[must_use]
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::NotFound | Self::Lease | Self::Meta(MetaCode::En | MetaCode::Nf))
    }

    /// A value was found.
    #[inline]
    #[must_use]
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Found | Self::Meta(MetaCode::Va | MetaCode::Hd))
    }

    /// Says in a span what came of its request, a command `op`.
    pub fn describe(self, op: Command, span: &mut OpenSpan) {
        let is_get = op.class() == CommandClass::Get;
        let outcome = match self {
            Self::Failed(failure) => {
                span.set("error.type", Value::Text(failure.name().to_owned()));
                span.fail(failure.sentence());
                return;
            }
            _ if is_get && self.is_hit() => "hit",
            _ if self.is_miss() => "miss",
            _ if self.severity() > 1 => "refused",
            _ => "done",
        };
        span.set("holdall.outcome", Value::Text(outcome.to_owned()));
    }

    /// The failure, if it is one.
    #[inline]
    #[must_use]
    pub const fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// A reply as it lies in a connection's buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reply<'a> {
    /// The outcome of the request.
    pub outcome: Outcome,
    /// The key that was asked, where the reply tells one.
    pub key: &'a [u8],
    /// Client flags of a value.
    pub flags: u32,
    /// The cas unique, the lease token, or the number.
    pub number: u64,
    /// The value; of a failure, the server's words (empty: [`Failure::sentence`] does).
    pub value: &'a [u8],
    /// Flag words of a meta reply; what `metaget` tells.
    pub words: &'a [u8],
}

impl<'a> Reply<'a> {
    /// A reply that says nothing more.
    #[inline]
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, key: b"", flags: 0, number: 0, value: b"", words: b"" }
    }

    /// A failure with somebody's words.
    #[inline]
    #[must_use]
    pub const fn failed(failure: Failure, words: &'a [u8]) -> Self {
        Self { value: words, ..Self::of(Outcome::Failed(failure)) }
    }

    /// A copy of everything that it borrows.
    #[must_use]
    pub fn to_owned(&self) -> OwnedReply {
        OwnedReply {
            outcome: self.outcome,
            key: self.key.to_vec(),
            flags: self.flags,
            number: self.number,
            value: self.value.to_vec(),
            words: self.words.to_vec(),
        }
    }
}

/// A [`Reply`] that borrows nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedReply {
    /// See [`Reply`].
    pub outcome: Outcome,
    /// See [`Reply`].
    pub key: Vec<u8>,
    /// See [`Reply`].
    pub flags: u32,
    /// See [`Reply`].
    pub number: u64,
    /// See [`Reply`].
    pub value: Vec<u8>,
    /// See [`Reply`].
    pub words: Vec<u8>,
}

impl OwnedReply {
    /// A reply that says nothing more.
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, key: Vec::new(), flags: 0, number: 0, value: Vec::new(), words: Vec::new() }
    }

    /// The reply.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Reply<'_> {
        Reply {
            outcome: self.outcome,
            key: &self.key,
            flags: self.flags,
            number: self.number,
            value: &self.value,
            words: &self.words,
        }
    }
}

impl From<Failure> for OwnedReply {
    fn from(failure: Failure) -> Self {
        Self::of(Outcome::Failed(failure))
    }
}
