//! Several generator hosts as one: a coordinator sends each agent its load, starts them together,
//! and adds up their results. Histograms are sent whole, so the sum equals the result of one
//! generator.
//!
//! ```text
//!     coordinator            agent           one JSON object a line, each answered by one
//!        prepare {spec} ->
//!                       <- ready {host}
//!        fill           ->                   the first agent alone: stores every key
//!                       <- filled
//!        connect        ->
//!                       <- connected         all agents are connected before one begins
//!        go             ->                   to all, as close in time as the network allows
//!        (stop)         ->                   fill or the run ends early
//!                       <- done {outcome}
//! ```
//!
//! An agent obeys every client that reaches it, within the bounds of a command line, and reads only
//! files that its own command line names. It belongs on a trusted network, and listens on loopback
//! by default.

mod coordinator;
mod serve;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::host::Host;
use generator::Outcome;
use generator::spec::Spec;

pub use coordinator::{Gathered, run};
pub use serve::serve;

/// Increases when a message changes its meaning.
const VERSION: u32 = 2;

/// The longest message: an outcome has two histograms, and one for each second.
const MESSAGE_BYTES_MAX: u64 = 256 << 20;

/// The messages of a coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CoordinatorMessage {
    Prepare { version: u32, spec: Box<Spec> },
    Fill,
    Connect,
    Go,
    Stop,
}

/// The messages of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentMessage {
    Ready { host: Host },
    Filled,
    Connected,
    Done { outcome: Box<Outcome> },
    Failed { why: String },
}

/// One agent's part of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentResult {
    /// Its listening address.
    pub address: String,
    /// Its machine.
    pub host: Host,
    /// Requests that it answered in the measurement.
    pub requests: u64,
    /// Share of its time that its busiest thread was on a processor.
    pub busiest_thread: f64,
}

/// A connection of messages.
#[derive(Debug)]
struct Line {
    reader: BufReader<TcpStream>,
}

impl Line {
    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { reader: BufReader::new(stream) })
    }

    fn say(&self, message: &impl Serialize) -> Result<()> {
        let mut bytes = serde_json::to_vec(message)?;
        bytes.push(b'\n');
        self.reader.get_ref().write_all(&bytes).context("sending")
    }

    /// The next message; `None` if the other side closed the connection.
    fn hear<T: DeserializeOwned>(&mut self) -> Result<Option<T>> {
        let mut line = Vec::new();
        self.reader.by_ref().take(MESSAGE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        ensure!(line.ends_with(b"\n"), "a message was cut short");
        match serde_json::from_slice(&line) {
            Ok(message) => Ok(Some(message)),
            Err(error) => {
                let shown = line[..line.len().min(60)].escape_ascii();
                bail!("this is no message of ours: {shown}: {error}")
            }
        }
    }
}
