//! The time of a request by its stages, as Intel's *Configuration and Deployment Guide For
//! Memcached* (4.3.3) parts it.
//!
//! ```text
//!     client      |  begin .. send .. SND stamp |                    | RX stamp .. reply read
//!     network     |                             | ==>            ==> |
//!     server      |                             |   stack, command   |
//! ```
//!
//! Requests go one after the other on one connection, so each stamp belongs to one of them. The
//! kernel of the client says when a request left its stack and when the reply came to it
//! (`SO_TIMESTAMPING`). Clocks of two hosts are not compared: what passes between these two moments
//! is parted by a handshake, which no program answers, and by the server's own time of a get.

mod socket;

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use socket::StampedSocket;

/// The schema that the file names.
pub const SCHEMA: &str = "holdall-bench-stages";

/// Rises when a field changes its meaning or goes.
pub const SCHEMA_VERSION: u32 = 1;

/// Handshakes by which the network is judged.
const HANDSHAKES: usize = 200;

/// A server that says nothing for so long has failed.
const PATIENCE: Duration = Duration::from_secs(5);

/// Requests before those that count.
const WARM_UP: u32 = 200;

/// One request in this number counts among the slowest.
const SLOWEST_ONE_IN: usize = 100;

/// A result as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StagesResult {
    /// [`SCHEMA`].
    pub schema: String,
    /// [`SCHEMA_VERSION`].
    pub version: u32,
    /// The command line, word by word.
    pub command: Vec<String>,
    /// Its beginning, in seconds since 1970.
    pub started: u64,
    /// The machine of the client.
    pub host: Host,
    /// The server.
    pub server: String,
    /// True if the server is on the client's host, by its address.
    pub is_loopback: bool,
    /// Requests that count.
    pub requests: u64,
    /// Requests left out: a stamp was missing, or a clock was set meanwhile.
    pub left_out: u64,
    /// Median of a handshake, in microseconds: of those before the requests and those after them,
    /// whichever took less.
    pub handshake: f64,
    /// Median of the server's own time of a get in the last minutes, in microseconds, if it tells.
    pub server_get: Option<f64>,
    /// In the order of a request.
    pub stages: Vec<Stage>,
    /// From the beginning of a request to the read reply.
    pub whole: Times,
}

/// A stage, or two of the guide's that cannot be told apart from here.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Its number in the guide's list, such as `3, 7`.
    pub guide: String,
    /// True if each request was measured; false for what was derived from means.
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
    /// Median; of what was derived, none.
    pub p50: Option<f64>,
    /// 99th percentile; of what was derived, none.
    pub p99: Option<f64>,
}

/// The moments of one request, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    /// The key is chosen.
    pub begin: u64,
    /// The request is given to the kernel.
    pub send: u64,
    /// The kernel gave it to the interface.
    pub sent: u64,
    /// The kernel received the reply's last segment.
    pub received: u64,
    /// The reply is read.
    pub end: u64,
}

/// Times of one request between its moments, in nanoseconds.
type Parts = [u64; 4];

impl Moments {
    /// None if they are not in their order: a clock was set.
    fn parts(&self) -> Option<Parts> {
        let Self { begin, send, sent, received, end } = *self;
        Some([
            send.checked_sub(begin)?,
            sent.checked_sub(send)?,
            received.checked_sub(sent)?,
            end.checked_sub(received)?,
        ])
    }
}

/// Asks a server for `requests` gets of values of `value_bytes`, and says where their time went.
///
/// # Errors
///
/// When the server is away, refuses the values, or the kernel gives no stamps.
pub fn measure(server: SocketAddr, requests: u32, value_bytes: usize) -> Result<StagesResult> {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut socket = StampedSocket::open(server, PATIENCE).with_context(|| server.to_string())?;
    socket.fill(value_bytes).with_context(|| server.to_string())?;
    let before = handshake(server).with_context(|| server.to_string())?;
    for number in 0..WARM_UP {
        socket.get(number)?;
    }
    let mut all = Vec::with_capacity(requests as usize);
    let mut left_out = 0;
    for number in 0..requests {
        match socket.get(number)?.and_then(|moments| moments.parts()) {
            Some(parts) => all.push(parts),
            None => left_out += 1,
        }
    }
    ensure!(!all.is_empty(), "the kernel gave no stamps for {server}");
    // Whatever else the hosts do makes handshakes longer.
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
    result.divide(&mut all)?;
    Ok(result)
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
    /// When it is none, or of another version.
    pub fn read(json: &str) -> Result<Self> {
        let result: Self = serde_json::from_str(json)?;
        if result.version != SCHEMA_VERSION {
            bail!("this is version {}, and {SCHEMA_VERSION} is read", result.version);
        }
        Ok(result)
    }

    /// Makes stages of the parts of all requests.
    fn divide(&mut self, all: &mut [Parts]) -> Result<()> {
        all.sort_by_key(|parts| parts.iter().sum::<u64>());
        let count = all.len().div_ceil(SLOWEST_ONE_IN);
        let slowest = &all[all.len() - count..];
        let times = |pick: &dyn Fn(&Parts) -> u64| times(all, slowest, pick);
        self.whole = times(&|parts| parts.iter().sum())?;
        let [client, sending, away, receiving] = [0, 1, 2, 3].map(|at| times(&|parts| parts[at]));
        let (client, sending, away, receiving) = (client?, sending?, away?, receiving?);
        // The server has measured it; a handshake tells of the network only about.
        let command = self.server_get.map(|time| time.clamp(0.0, away.mean));
        let most = away.mean - command.unwrap_or(0.0);
        let network = network(self.handshake, &sending, &receiving, most);
        let rest = network + command.unwrap_or(0.0);
        let stacks = Times {
            mean: away.mean - rest,
            slowest: (away.slowest - rest).max(0.0),
            p50: None,
            p99: None,
        };
        let same = |mean: f64| Times { mean, slowest: mean, p50: None, p99: None };
        let stage = |guide: &str, name: &str, is_measured: bool, times: Times| Stage {
            name: name.to_owned(),
            guide: guide.to_owned(),
            is_measured,
            times,
        };
        self.stages = vec![
            stage("1", "client: key, request", true, client),
            stage("2", "client: stack, sending", true, sending),
            stage("3, 7", "network, there and back", false, same(network)),
        ];
        self.stages.extend(match command {
            Some(command) => vec![
                stage("4, 6", "server: stack, wake-up", false, stacks),
                stage("5", "server: command", false, same(command)),
            ],
            None => vec![stage("4, 5, 6", "server: stack, wake-up, command", false, stacks)],
        });
        self.stages.push(stage("8", "client: stack, receiving", true, receiving));
        Ok(())
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
        let _ = write!(text, "\n{}\n", self.caveats().join("\n"));
        text
    }

    /// The limits of the numbers.
    #[must_use]
    pub fn caveats(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "The network is a handshake ({:.1} us) without the client's stacks, at most what the \
             kernel measured; the server's stack is what is left.",
            self.handshake
        )];
        if self.server_get.is_none() {
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

/// The network both ways, in microseconds: a handshake less what the client's own stacks take of
/// it, and at most `most`.
fn network(handshake: f64, sending: &Times, receiving: &Times, most: f64) -> f64 {
    let stacks = sending.p50.unwrap_or(0.0) + receiving.p50.unwrap_or(0.0);
    (handshake - stacks).clamp(0.0, most.max(0.0))
}

#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a request")]
fn times(all: &[Parts], slowest: &[Parts], pick: &dyn Fn(&Parts) -> u64) -> Result<Times> {
    let mean = |some: &[Parts]| {
        some.iter().map(|parts| pick(parts) as f64).sum::<f64>() / some.len() as f64 / 1000.0
    };
    let mut histogram = Histogram::<u64>::new(3)?;
    for parts in all {
        histogram.record(pick(parts))?;
    }
    let at = |quantile| Some(histogram.value_at_quantile(quantile) as f64 / 1000.0);
    Ok(Times { mean: mean(all), slowest: mean(slowest), p50: at(0.5), p99: at(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(server_get: Option<f64>) -> StagesResult {
        StagesResult {
            schema: SCHEMA.to_owned(),
            version: SCHEMA_VERSION,
            command: Vec::new(),
            started: 0,
            host: Host::here(),
            server: "10.0.0.1:11211".to_owned(),
            is_loopback: false,
            requests: 100,
            left_out: 0,
            handshake: 30.0,
            server_get,
            stages: Vec::new(),
            whole: Times::default(),
        }
    }

    /// A hundred requests: 1 us, 4 us, 50 us and 6 us; of the slowest one, 500 us away.
    fn requests() -> Vec<Parts> {
        let mut all = vec![[1_000, 4_000, 50_000, 6_000]; 100];
        all[7][2] = 500_000;
        all
    }

    #[test]
    fn the_stages_of_a_request_are_its_whole_time() {
        for server_get in [Some(2.0), None, Some(1e9)] {
            let mut result = result(server_get);
            result.divide(&mut requests()).unwrap();
            let sum: f64 = result.stages.iter().map(|stage| stage.times.mean).sum();
            assert!((sum - result.whole.mean).abs() < 1e-6, "{sum} {}", result.whole.mean);
            let slowest: f64 = result.stages.iter().map(|stage| stage.times.slowest).sum();
            assert!((slowest - 511.0).abs() < 1e-6, "{slowest}");
            let count = if server_get.is_some() { 6 } else { 5 };
            assert_eq!(result.stages.len(), count);
            assert!(result.stages.iter().all(|stage| stage.times.mean >= 0.0));
        }
    }

    #[test]
    fn what_is_between_the_stamps_is_parted() {
        let mut result = result(Some(2.0));
        result.divide(&mut requests()).unwrap();
        let [_, _, network, stacks, command, _] = &result.stages[..] else { panic!() };
        // 30 us less 4 and 6.
        assert!((network.times.mean - 20.0).abs() < 0.1, "{network:?}");
        assert!((stacks.times.mean - 32.5).abs() < 0.1, "{stacks:?}");
        assert_eq!((command.times.mean, command.is_measured), (2.0, false));
        let shown = result.shown();
        assert!(shown.contains("3, 7     network, there and back             20.0"), "{shown}");
        assert!(shown.contains("derived") && !shown.contains("no wire"), "{shown}");
    }

    #[test]
    fn a_handshake_that_took_longer_than_a_request_is_no_negative_time() {
        let mut result = result(Some(2.0));
        result.handshake = 1e6;
        result.divide(&mut requests()).unwrap();
        assert!(result.stages.iter().all(|stage| stage.times.mean >= 0.0), "{result:?}");
        assert_eq!(result.stages[4].times.mean, 2.0, "what the server has measured stays");
    }

    #[test]
    fn moments_out_of_their_order_are_left_out() {
        let good = Moments { begin: 1, send: 2, sent: 3, received: 5, end: 9 };
        assert_eq!(good.parts(), Some([1, 1, 2, 4]));
        assert_eq!(Moments { sent: 1, ..good }.parts(), None);
    }

    #[test]
    fn a_kept_result_is_read_again() {
        let mut result = result(None);
        result.divide(&mut requests()).unwrap();
        let json = serde_json::to_string(&result).unwrap();
        assert_eq!(StagesResult::read(&json).unwrap().shown(), result.shown());
        assert!(StagesResult::read(&json.replace("\"version\":1", "\"version\":2")).is_err());
    }
}
