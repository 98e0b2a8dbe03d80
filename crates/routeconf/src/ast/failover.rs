//! Failover routes: which child is asked next, and after which failures.

use proto::Failure;

use super::hash::Hash;
use super::ids::RouteId;

/// `FailoverRoute`, and `FailoverWithExptimeRoute` and `SaltedFailoverRoute`, which are made of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failover {
    /// The first is asked first.
    pub children: Vec<RouteId>,
    /// In which order the others follow.
    pub policy: FailoverPolicy,
    /// The replies that count as failures.
    pub errors: FailoverErrors,
    /// The number of requests that may go on to the others.
    pub limit: Option<FailoverLimit>,
    /// `failover_tag`: `:failover=1` is put behind the hash stop from the second try on. A name, or
    /// empty for `true`.
    pub tag: Option<String>,
    /// `enable_lease_pairing`: a lease-set goes where its lease-get was answered. The name tells
    /// pairings apart.
    pub lease_pairing: Option<String>,
    /// `FailoverWithExptimeRoute`: what the others store lives at most so long, seconds.
    pub exptime: Option<u32>,
}

/// `failover_policy`.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverPolicy {
    /// `DeterministicOrderPolicy`: the hash with changing salt chooses each next one.
    DeterministicOrder {
        /// Children that are tried, at most.
        max_tries: u32,
        /// Tries that may end in an error, at most; the first counts.
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
        /// Children that are tried, at most.
        max_tries: u32,
    },
    /// `RendezvousPolicy`: by descending rendezvous score of these tags.
    Rendezvous {
        /// Children that are tried, at most.
        max_tries: u32,
        /// One for each child but the first.
        tags: Vec<String>,
    },
}

/// The failures that lead to the next child where a configuration names none.
pub const DEFAULT_FAILOVER_ERRORS: [Failure; 10] = [
    Failure::Busy,
    Failure::Shutdown,
    Failure::Tko,
    Failure::TryAgain,
    Failure::LocalError,
    Failure::ConnectError,
    Failure::ConnectTimeout,
    Failure::Timeout,
    Failure::RemoteError,
    Failure::DeadlineExceeded,
];

/// `failover_errors`, by class of command; `None` is [`DEFAULT_FAILOVER_ERRORS`].
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
