//! A client with a light load, one request at a time, that records the latency of each reply. Its
//! longest wait shows the effect of other clients on a server.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use hdrhistogram::Histogram;

use crate::load::blocking;

/// The requests of a bystander, which it sends in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A get that hits.
    Get,
    /// A set of a new key and a get of it.
    SetAndGet,
}

/// The outcome of a bystander's requests.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Latencies of the replies in nanoseconds.
    pub latency: Histogram<u32>,
    /// Sets that the server refused.
    pub refused: u64,
}

impl Seen {
    /// The latency in milliseconds at this quantile; 1 is the maximum.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "times are far below 2^52 ns")]
    pub fn ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1e6
    }
}

/// A running bystander.
#[derive(Debug)]
pub struct Bystander {
    /// Relaxed everywhere: it signals the end and orders nothing.
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Seen>>,
}

/// Bytes of each stored value.
const VALUE_BYTES: usize = 64;

impl Bystander {
    /// Connects and starts.
    ///
    /// # Errors
    ///
    /// When the server does not accept the connection.
    pub fn connect(address: SocketAddr, work: Work) -> Result<Self> {
        Ok(Self::on(blocking(address)?, work))
    }

    /// Starts on this connection.
    #[must_use]
    pub fn on(stream: TcpStream, work: Work) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&is_over);
        let thread = thread::spawn(move || ask(stream, work, &end));
        Self { is_over, thread }
    }

    /// Stops the bystander.
    ///
    /// # Errors
    ///
    /// When a reply was wrong, or did not come within five seconds.
    pub fn end(self) -> Result<Seen> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| anyhow!("the bystander's thread failed"))?
    }
}

/// Sends requests until the end.
fn ask(mut stream: TcpStream, work: Work, is_over: &AtomicBool) -> Result<Seen> {
    let mut seen =
        Seen { latency: Histogram::new_with_bounds(100, 60_000_000_000, 3)?, refused: 0 };
    let mut reply = Vec::new();
    let value = "v".repeat(VALUE_BYTES);
    let id = stream.local_addr()?.port();
    let mut number = 0_u64;
    while number == 0 || !is_over.load(Ordering::Relaxed) {
        if number == 0 || work == Work::SetAndGet {
            number += 1;
            let set = format!("set bystander:{id}:{number} 0 0 {VALUE_BYTES}\r\n{value}\r\n");
            timed(&mut stream, &set, b"\r\n", &mut reply, &mut seen)?;
            seen.refused += u64::from(reply != b"STORED\r\n");
        }
        let get = format!("get bystander:{id}:{number}\r\n");
        timed(&mut stream, &get, b"END\r\n", &mut reply, &mut seen)?;
    }
    Ok(seen)
}

/// Sends one request and reads its reply, which ends with `mark`.
fn timed(
    stream: &mut TcpStream,
    request: &str,
    mark: &[u8],
    reply: &mut Vec<u8>,
    seen: &mut Seen,
) -> Result<()> {
    let begun = Instant::now();
    stream.write_all(request.as_bytes())?;
    reply.clear();
    let mut some = [0; 512];
    while !reply.ends_with(mark) {
        let len = stream.read(&mut some).with_context(|| format!("no reply to {request:?}"))?;
        ensure!(len > 0, "the server closed a bystander's connection");
        reply.extend_from_slice(&some[..len]);
    }
    let nanos = u64::try_from(begun.elapsed().as_nanos())?;
    seen.latency.saturating_record(nanos);
    Ok(())
}

/// Runs two bystanders during `act` and for a moment after it. On a server with two workers that
/// has one other client, which runs `act`, the first bystander is at the other worker, and the
/// second at that client's worker.
///
/// # Errors
///
/// Those of `act`, and of [`Bystander::end`].
pub fn beside(address: SocketAddr, act: impl FnOnce() -> Result<()>) -> Result<[Seen; 2]> {
    /// For work that continues after the reply.
    const AFTER: Duration = Duration::from_millis(200);
    let other = Bystander::connect(address, Work::Get)?;
    let same = Bystander::connect(address, Work::Get)?;
    let result = act();
    thread::sleep(AFTER);
    let seen = [other.end()?, same.end()?];
    result?;
    Ok(seen)
}
