//! The failures of requests.
//!
//! This is the only list of failures: configurations name them, connections produce them, and
//! routes and statistics match on them.

use std::fmt;

/// The reason why a request has no answer, with mcrouter's names of results.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Failure {
    /// Too many requests are outstanding.
    Busy,
    /// The server reports a wrong request (`CLIENT_ERROR`).
    ClientError,
    /// The connection was refused or is impossible.
    ConnectError,
    /// The connection was not made in time.
    ConnectTimeout,
    /// The request's time is over.
    DeadlineExceeded,
    /// A local failure; no server received the request.
    LocalError,
    /// The server failed (`SERVER_ERROR`, `ERROR`), sent an invalid reply, or disconnected before
    /// it answered.
    RemoteError,
    /// The server or this program is shutting down.
    Shutdown,
    /// The server is known to be down, and received no request (total knockout).
    Tko,
    /// No answer in time.
    Timeout,
    /// The server asks for a retry.
    TryAgain,
}

impl Failure {
    /// All failures.
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

    /// The failure that `name` means, one of [`Self::name`].
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.name() == name)
    }

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

    /// The sentence for the client, if the server gave none.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Busy => "307 busy",
            Self::ClientError => "malformed request",
            Self::ConnectError => "Connection error",
            Self::ConnectTimeout => "Connection timeout",
            Self::DeadlineExceeded => "request deadline exceeded",
            Self::LocalError => "local error",
            Self::RemoteError => "remote error",
            Self::Shutdown => "301 shutdown",
            Self::Tko => "Server unavailable. Reason: tko",
            Self::Timeout => "Reply timeout",
            Self::TryAgain => "302 try again",
        }
    }

    /// True if another server gets the request, unless the configuration says otherwise (mcrouter's
    /// default set).
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of its replies without a message, and those that it gives as messages.
    #[test]
    fn sentences_match_mcrouter() {
        let sentences = Failure::ALL.map(Failure::sentence);
        let mcrouters = [
            "307 busy",
            "malformed request",
            "Connection error",
            "Connection timeout",
            "request deadline exceeded",
            "local error",
            "remote error",
            "301 shutdown",
            "Server unavailable. Reason: tko",
            "Reply timeout",
            "302 try again",
        ];
        assert_eq!(sentences, mcrouters);
    }

    #[test]
    fn only_client_errors_do_not_fail_over() {
        let stay: Vec<_> = Failure::ALL.into_iter().filter(|one| !one.fails_over()).collect();
        assert_eq!(stay, [Failure::ClientError]);
    }

    #[test]
    fn a_failure_displays_its_sentence() {
        assert_eq!(Failure::Tko.to_string(), "Server unavailable. Reason: tko");
    }

    #[test]
    fn a_failure_is_found_by_its_name() {
        for failure in Failure::ALL {
            assert_eq!(Failure::by_name(failure.name()), Some(failure));
        }
        assert_eq!(Failure::by_name("found"), None);
    }
}
