//! Failover routes: the order of the children, and the failures that lead to the next.

use proto::Failure;

use super::hash::Hash;
use super::ids::RouteId;

/// `FailoverRoute`, and `FailoverWithExptimeRoute` and `SaltedFailoverRoute`, which are built from
/// it.
#[derive(Clone, Debug, PartialEq)]
pub struct Failover {
    /// The children; the first one is the primary.
    pub children: Vec<RouteId>,
    /// The order of the others.
    pub policy: FailoverPolicy,
    /// The replies that count as failures.
    pub errors: FailoverErrors,
    /// The limit on requests that go on to the others.
    pub limit: Option<FailoverLimit>,
    /// `failover_tag`: `:failover=1` follows the hash stop from the second try on. A name, or empty
    /// for `true`.
    pub tag: Option<String>,
    /// `enable_lease_pairing`: a lease-set goes to the child that answered its lease-get. The name
    /// distinguishes pairings.
    pub lease_pairing: Option<String>,
    /// `FailoverWithExptimeRoute`: maximum lifetime of the others' stores, in seconds.
    pub exptime: Option<u32>,
}

/// `failover_policy`.
#[derive(Clone, Debug, PartialEq)]
pub enum FailoverPolicy {
    /// `DeterministicOrderPolicy`: the hash with a changing salt chooses each next child.
    DeterministicOrder {
        /// Maximum number of children tried.
        max_tries: u32,
        /// Maximum number of tries with an error; the first counts.
        max_error_tries: u32,
        /// Errors that do not count towards it.
        exclude_errors: Vec<Failure>,
        /// `enable_failure_domains`: never the same failure domain twice.
        failure_domains: bool,
        /// `ignore_normal_reply_index`.
        ignore_normal_reply_index: bool,
        /// Ch3 or WeightedCh3 over all children.
        hash: Hash,
    },
    /// `InOrderPolicy`, the default.
    InOrder,
    /// `LeastFailuresPolicy`: the first, then those with the fewest recent failures.
    LeastFailures {
        /// Maximum number of children tried.
        max_tries: u32,
    },
    /// `RendezvousPolicy`: by descending rendezvous score of these tags.
    Rendezvous {
        /// Maximum number of children tried.
        max_tries: u32,
        /// One for each child except the first.
        tags: Vec<String>,
    },
}

/// The failures that lead to the next child if a configuration names none.
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
    /// Maximum number of tokens.
    pub burst: f64,
}
