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
    /// An answer that takes longer is a timeout.
    pub timeout: Duration,
    /// A connection that takes longer is a failure.
    pub connect_timeout: Duration,
    /// The number of times that a connection that was not made in time is tried again, while its
    /// requests wait.
    pub connect_retries: u32,
    /// Failures knock it out; otherwise it is asked whatever happens.
    pub knocks_out: bool,
    /// Timeouts in a row that knock it out; 0: never.
    pub timeouts_until_tko: u32,
    /// First time to wait before a server that was knocked out is asked whether it is back.
    pub probe_initial: Duration,
    /// The longest such time; each is half as long again as the one before.
    pub probe_max: Duration,
    /// Requests without an answer, at the most; more are [`crate::Failure::Busy`].
    pub pending_max: usize,
    /// Bytes that were not taken by the socket, at the most; more are [`crate::Failure::Busy`].
    pub unsent_bytes_max: usize,
    /// The longest value that is taken from it, in bytes.
    pub value_bytes_max: u32,
    /// Gets go by UDP, and one that has no answer after this time is lost.
    pub udp_gets: Option<Duration>,
    /// Connections are encrypted.
    pub tls: Option<Tls>,
    /// The name that the server's certificate must have. As a default for servers: empty for that
    /// of each one's host.
    pub server_name: String,
    /// The login with which every connection begins.
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
