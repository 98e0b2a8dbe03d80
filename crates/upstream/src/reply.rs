//! What came of a request: a server's answer, or why there is none.

use std::fmt;

use proto::answer::MetaCode;

/// What came of a request.
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
    /// What `metaget` tells.
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

/// Why there is no answer, by mcrouter's names.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Failure {
    /// Too much is outstanding already.
    Busy,
    /// The server says that the request was wrong (`CLIENT_ERROR`, `ERROR`).
    ClientError,
    /// The connection was refused or is impossible.
    ConnectError,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The time that the request had is over.
    DeadlineExceeded,
    /// Something here went wrong; no server was asked.
    LocalError,
    /// The server failed (`SERVER_ERROR`), spoke nonsense, or went away before it answered.
    RemoteError,
    /// The server or this program is about to end.
    Shutdown,
    /// The server is known to be down, and was not asked (total knockout).
    Tko,
    /// No answer in time.
    Timeout,
    /// The server asks to try again.
    TryAgain,
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Busy,
        Self::ClientError,
        Self::ConnectError,
        Self::ConnectTimeout,
        Self::DeadlineExceeded,
        Self::LocalError,
        Self::RemoteError,
        Self::Shutdown,
        Self::Tko,
        Self::Timeout,
        Self::TryAgain,
    ];

    /// mcrouter's name, as in `failover_errors`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::ClientError => "client_error",
            Self::ConnectError => "connect_error",
            Self::ConnectTimeout => "connect_timeout",
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::LocalError => "local_error",
            Self::RemoteError => "remote_error",
            Self::Shutdown => "shutdown",
            Self::Tko => "tko",
            Self::Timeout => "timeout",
            Self::TryAgain => "try_again",
        }
    }

    /// The sentence for the client, when the server gave none.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Busy => "307 busy",
            Self::ClientError => "malformed request",
            Self::ConnectError => "Connection error",
            Self::ConnectTimeout => "Connection timeout",
            Self::DeadlineExceeded => "Deadline exceeded",
            Self::LocalError => "Local error",
            Self::RemoteError => "Remote error",
            Self::Shutdown => "301 shutdown",
            Self::Tko => "Server unavailable. Reason: tko",
            Self::Timeout => "Reply timeout",
            Self::TryAgain => "302 try again",
        }
    }

    /// Whether another server is asked instead, unless the configuration says otherwise (mcrouter's default set).
    #[inline]
    #[must_use]
    pub const fn fails_over(self) -> bool {
        !matches!(self, Self::ClientError)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence())
    }
}

impl Outcome {
    /// How bad it is, by mcrouter's order; the worst of several replies is that of the greatest number.
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

    /// Why it failed, if it did.
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
    /// What came of it.
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
