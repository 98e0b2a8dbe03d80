//! The time of a request by stages, as divided in Intel's *Configuration and Deployment Guide For
//! Memcached* (4.3.3).
//!
//! ```text
//!     client      |  begin .. send .. SND stamp |                    | RX stamp .. reply read
//!     network     |                             | ==>            ==> |
//!     server      |                             |   stack, command   |
//! ```
//!
//! Requests are sent one after the other on one connection, so each stamp belongs to one of them.
//! The client's kernel reports when a request left its stack and when the reply arrived there
//! (`SO_TIMESTAMPING`). Clocks of two hosts are not compared: the time between these two moments is
//! divided by the server's own times of each request (`mn times`), which start when its kernel
//! received the request; the rest is the network, both ways. For a server that reports less, the
//! network is estimated from a handshake, which no program answers.

mod parts;
mod socket;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::host::Host;
use parts::{Parts, ReportedTimes};
use socket::StampedSocket;

/// The schema named in the file.
pub const SCHEMA: &str = "holdall-bench-stages";

/// Increases when a field changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;

/// Handshakes for the estimate of the network.
const HANDSHAKES: usize = 200;

/// A server without a reply for this time has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server whose kernel has not stamped a request within this time stamps none.
const STAMPS_WITHIN: Duration = Duration::from_millis(500);

/// Requests before the counted ones.
const WARM_UP: u32 = 200;

/// A stored result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StagesResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Its start, in seconds since 1970.
    pub started: u64,
    /// The machine of the client.
    pub host: Host,
    /// The server.
    pub server: String,
    /// True if the server is on the client's host, by its address.
    pub is_loopback: bool,
    /// Counted requests.
    pub requests: u64,
    /// Requests left out: a stamp was missing, or a clock was set.
    pub left_out: u64,
    /// Median of a handshake, in microseconds: of those before the requests or of those after them,
    /// whichever took less.
    pub handshake: f64,
    /// Median of the server's own time of a get in the last minutes, in microseconds, if known.
    pub server_get: Option<f64>,
    /// In the order of a request.
    pub stages: Vec<Stage>,
    /// From the start of a request to the read reply.
    pub whole: Times,
}

/// A stage, or two of the guide's that cannot be separated from here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its number in the guide's list, such as `3, 7`.
    pub guide: String,
    /// True if each request was measured; false for a value derived from means.
    pub is_measured: bool,
    /// Its times.
    pub times: Times,
}

/// Times of a stage. Microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    /// Mean of all requests.
    pub mean: f64,
    /// Mean of the slowest hundredth of the requests, by their whole time.
    pub slowest: f64,
    /// Median; none for a derived value.
    pub p50: Option<f64>,
    /// 99th percentile; none for a derived value.
    pub p99: Option<f64>,
}

/// Sends `requests` gets of values of `value_bytes` to a server, and divides their time.
///
/// # Errors
///
/// When the server is unavailable, refuses the values, or the kernel gives no stamps.
pub fn measure(server: SocketAddr, requests: u32, value_bytes: usize) -> Result<StagesResult> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut socket = StampedSocket::open(server, PATIENCE).with_context(|| server.to_string())?;
    socket.fill(value_bytes).with_context(|| server.to_string())?;
    let before = handshake(server).with_context(|| server.to_string())?;
    for number in 0..WARM_UP {
        socket.get(number)?;
    }
    // The kernel starts to stamp received data some time after the request for stamps.
    let begin = Instant::now();
    while socket.get(0)?.is_none() && begin.elapsed() < PATIENCE {}
    let told = told(&mut socket)?;
    let mut all = Vec::with_capacity(requests as usize);
    let mut left_out = 0;
    for number in 0..requests {
        let moments = socket.get(number)?;
        let server = if told == ReportedTimes::Nothing { None } else { socket.times()? };
        let is_whole = match told {
            ReportedTimes::Nothing => true,
            ReportedTimes::Work => server.is_some(),
            ReportedTimes::WaitAndWork => server.is_some_and(|times| times.wait.is_some()),
        };
        let moments = moments.filter(|_| is_whole);
        match moments.and_then(|moments| Parts::of(&moments, server)) {
            Some(parts) => all.push(parts),
            None => left_out += 1,
        }
    }
    ensure!(!all.is_empty(), "the kernel gave no stamps for {server}");
    // Other activity on the hosts makes handshakes longer.
    let handshake = before.min(handshake(server).with_context(|| server.to_string())?);
    let server_get = socket.server_get().unwrap_or(None);
    let mut result = StagesResult {
        schema: SCHEMA.to_owned(),
        version: SCHEMA_VERSION,
        command: std::env::args().collect(),
        started: started.map_or(0, |time| time.as_secs()),
        host: Host::here(),
        server: server.to_string(),
        is_loopback: socket.is_on_this_host(),
        requests: all.len() as u64,
        left_out,
        handshake,
        server_get,
        stages: Vec::new(),
        whole: Times::default(),
    };
    result.divide(&mut all, told)?;
    Ok(result)
}

/// How much the server reports about each request. Its kernel, too, starts to stamp with a delay.
fn told(socket: &mut StampedSocket) -> Result<ReportedTimes> {
    if !socket.reports_times()? {
        return Ok(ReportedTimes::Nothing);
    }
    let begin = Instant::now();
    while begin.elapsed() < STAMPS_WITHIN {
        socket.get(0)?;
        if socket.times()?.is_some_and(|times| times.wait.is_some()) {
            return Ok(ReportedTimes::WaitAndWork);
        }
    }
    Ok(ReportedTimes::Work)
}

/// The median time of a handshake, in microseconds.
fn handshake(server: SocketAddr) -> io::Result<f64> {
    let mut times = Vec::with_capacity(HANDSHAKES);
    for _ in 0..HANDSHAKES {
        let begin = Instant::now();
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        drop(stream);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[HANDSHAKES / 2])
}

impl StagesResult {
    /// Reads a result file.
    ///
    /// # Errors
    ///
    /// When it is not a result, or of another version.
    pub fn read(json: &str) -> Result<Self> {
        let result: Self = serde_json::from_str(json)?;
        if result.version != SCHEMA_VERSION {
            bail!("this is version {}, and {SCHEMA_VERSION} is read", result.version);
        }
        Ok(result)
    }

    /// The result as a table.
    #[must_use]
    pub fn shown(&self) -> String {
        let mut text = format!(
            "{}: {} gets, one after the other; times in us\n\n",
            self.server, self.requests
        );
        let _ = writeln!(
            text,
            "guide    stage                              mean   share      p50      p99  slowest 1 %"
        );
        let number =
            |time: Option<f64>| time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1}"));
        let mut line = |guide: &str, name: &str, times: &Times, mark: &str| {
            let _ = writeln!(
                text,
                "{guide:<8} {name:<32} {:>7.1} {:>5.1} % {:>8} {:>8} {:>12.1}{mark}",
                times.mean,
                times.mean / self.whole.mean.max(f64::MIN_POSITIVE) * 100.0,
                number(times.p50),
                number(times.p99),
                times.slowest,
            );
        };
        for stage in &self.stages {
            let mark = if stage.is_measured { "" } else { "  derived" };
            line(&stage.guide, &stage.name, &stage.times, mark);
        }
        line("", "whole", &self.whole, "");
        let caveats = self.caveats();
        if !caveats.is_empty() {
            let _ = write!(text, "\n{}\n", caveats.join("\n"));
        }
        text
    }

    /// True if the server reported its times of each request.
    fn has_server_times(&self) -> bool {
        self.stages.iter().any(|stage| stage.guide == "6")
    }

    /// The limits of the numbers.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.stages.iter().any(|stage| stage.guide == "3, 7" && !stage.is_measured) {
            lines.push(format!(
                "The network is a handshake ({:.1} us) without the client's stacks, at most what \
                 the kernel measured; the server's stack is what is left.",
                self.handshake
            ));
        }
        if self.server_get.is_none() && !self.has_server_times() {
            lines.push("The server does not tell its own time of a get (stats latency).".into());
        }
        if self.is_loopback {
            lines.push(
                "Client and server share a host: there is no wire, the client's sending runs the \
                 server's receiving, and both compete for processors. Only another host shows \
                 stages 3 and 7."
                    .into(),
            );
        }
        if self.left_out > 0 {
            lines.push(format!("{} requests had no whole set of stamps.", self.left_out));
        }
        lines
    }
}
