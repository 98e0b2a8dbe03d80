//! Settings for the use of one server: times, limits, protocol.

use std::time::Duration;

use crate::login::Login;
use crate::tls::Tls;

/// The protocol towards a server.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Protocol {
    /// Packets, and SASL for a login.
    Binary,
    /// Lines, classic and meta.
    #[default]
    Text,
}

/// Settings for the use of one server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The maximum time of an answer, from the request or from the opening of the connection for
    /// which it waited; then it is a timeout.
    pub timeout: Duration,
    /// The maximum time of a connection attempt; then it is a failure.
    pub connect_timeout: Duration,
    /// The number of retries of a connection that was not made in time, while its requests wait.
    pub connect_retries: u32,
    /// Failures knock it out; otherwise it always gets requests.
    pub knocks_out: bool,
    /// Consecutive timeouts that knock it out; 0: never.
    pub timeouts_until_tko: u32,
    /// The wait before the first probe of a knocked-out server.
    pub probe_initial: Duration,
    /// The maximum wait; each wait is half as long again as the previous one.
    pub probe_max: Duration,
    /// Maximum number of requests without an answer; further ones are [`crate::Failure::Busy`].
    pub pending_max: usize,
    /// Maximum unsent bytes; further requests are [`crate::Failure::Busy`].
    pub unsent_bytes_max: usize,
    /// The maximum length of a value from it, in bytes.
    pub value_bytes_max: u32,
    /// Sends gets by UDP, and considers one lost without an answer after this time.
    pub udp_gets: Option<Duration>,
    /// Connections are encrypted.
    pub tls: Option<Tls>,
    /// The name that the server's certificate must have. In the defaults for servers, empty means
    /// the name of each server's host.
    pub server_name: String,
    /// The login at the start of every connection.
    pub login: Option<Login>,
    /// The protocol of its connections.
    pub protocol: Protocol,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(1),
            connect_retries: 0,
            knocks_out: true,
            timeouts_until_tko: 3,
            probe_initial: Duration::from_millis(500),
            probe_max: Duration::from_secs(10),
            pending_max: 100_000,
            unsent_bytes_max: 64 << 20,
            value_bytes_max: 128 << 20,
            udp_gets: None,
            tls: None,
            server_name: String::new(),
            login: None,
            protocol: Protocol::Text,
        }
    }
}
