//! Whom to ask next, and after which failures.

use super::hash::Hash;
use super::route::RouteId;

/// `FailoverRoute`, and `FailoverWithExptimeRoute` and `SaltedFailoverRoute`, which are made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failover {
    /// The first is asked first.
    pub children: Vec<RouteId>,
    /// In which order the others follow.
    pub policy: FailoverPolicy,
    /// Which replies count as failures.
    pub errors: FailoverErrors,
    /// How many requests may go on to the others.
    pub limit: Option<FailoverLimit>,
    /// `failover_tag`: `:failover=1` is put behind the hash stop from the second try on. A name, or empty for `true`.
    pub tag: Option<String>,
    /// `enable_lease_pairing`: a lease-set goes where its lease-get was answered. The name tells pairings apart.
    pub lease_pairing: Option<String>,
    /// `FailoverWithExptimeRoute`: what the others store lives at most so long, seconds.
    pub exptime: Option<u32>,
}

/// `failover_policy`.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverPolicy {
    /// `DeterministicOrderPolicy`: the hash with changing salt chooses each next one.
    DeterministicOrder {
        /// At most so many children are tried.
        max_tries: u32,
        /// At most so many tries may end in an error; the first counts.
        max_error_tries: u32,
        /// Errors that do not count for that.
        exclude_errors: Vec<Failure>,
        /// `enable_failure_domains`: not the same failure domain twice.
        failure_domains: bool,
        /// `ignore_normal_reply_index`.
        ignore_normal_reply_index: bool,
        /// Ch3 or WeightedCh3 over all children.
        hash: Hash,
    },
    /// `InOrderPolicy`, the default.
    InOrder,
    /// `LeastFailuresPolicy`: the first, then those that failed least of late.
    LeastFailures {
        /// At most so many children are tried.
        max_tries: u32,
    },
    /// `RendezvousPolicy`: by descending rendezvous score of these tags.
    Rendezvous {
        /// At most so many children are tried.
        max_tries: u32,
        /// One for each child but the first.
        tags: Vec<String>,
    },
}

/// A reply that may lead to the next child; mcrouter's names of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each is the result of that name")]
pub enum Failure {
    Aborted,
    BadKey,
    BadValue,
    Busy,
    ClientError,
    ConnectError,
    ConnectTimeout,
    DeadlineExceeded,
    LocalError,
    OutOfOrder,
    RemoteError,
    Shutdown,
    Timeout,
    Tko,
    TryAgain,
    Unknown,
}

impl Failure {
    /// All, with their names in configurations (`mc_res_` in front is left out).
    pub const ALL: [(&str, Self); 16] = [
        ("aborted", Self::Aborted),
        ("bad_key", Self::BadKey),
        ("bad_value", Self::BadValue),
        ("busy", Self::Busy),
        ("client_error", Self::ClientError),
        ("connect_error", Self::ConnectError),
        ("connect_timeout", Self::ConnectTimeout),
        ("deadline_exceeded", Self::DeadlineExceeded),
        ("local_error", Self::LocalError),
        ("ooo", Self::OutOfOrder),
        ("remote_error", Self::RemoteError),
        ("shutdown", Self::Shutdown),
        ("timeout", Self::Timeout),
        ("tko", Self::Tko),
        ("try_again", Self::TryAgain),
        ("unknown", Self::Unknown),
    ];

    /// What leads to the next child where nothing is said.
    pub const DEFAULT: [Self; 10] = [
        Self::Busy,
        Self::Shutdown,
        Self::Tko,
        Self::TryAgain,
        Self::LocalError,
        Self::ConnectError,
        Self::ConnectTimeout,
        Self::Timeout,
        Self::RemoteError,
        Self::DeadlineExceeded,
    ];
}

/// `failover_errors`, by class of command; `None` is [`Failure::DEFAULT`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailoverErrors {
    /// For get-like commands.
    pub gets: Option<Vec<Failure>>,
    /// For update-like and arithmetic commands.
    pub updates: Option<Vec<Failure>>,
    /// For deletes.
    pub deletes: Option<Vec<Failure>>,
}

/// `failover_limit`: a bucket of tokens, filled by requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FailoverLimit {
    /// Tokens for each request to the first child, 0 to 1.
    pub rate: f64,
    /// Tokens at most.
    pub burst: f64,
}
