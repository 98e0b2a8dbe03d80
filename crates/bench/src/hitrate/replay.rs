//! A replay against one server over one connection: gets are sent in groups, then the missed items
//! are stored.
//!
//! A key occurs once in a group of requests, so its next get finds the item stored by the last one.
//! Within a group, the stores come after all gets: up to [`GROUP`] requests may be reordered
//! compared with the trace.
//!
//! Relaxed is enough for `Progress`: a stop that is seen late costs a moment, and `answered` is for
//! display.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::trace::{Action, Request};
use super::{Counts, INTERRUPTED, Point, Workload};
use generator::Progress;
use generator::number::fits;
use generator::sizes::VALUE_BYTES_MAX;
use generator::spec::Protocol;
use generator::wire::{self, Op, Piece};

/// Maximum number of requests in a group.
pub const GROUP: usize = 64;

/// A server without a reply for this time counts as dead.
const PATIENCE: Duration = Duration::from_secs(10);

/// Replays `workload` against the server at `address`. After a failure, the point has the failure
/// and the counts until then.
#[must_use]
pub fn replay(
    address: SocketAddr,
    protocol: Protocol,
    memory_mb: u32,
    workload: &Workload,
    progress: &Progress,
) -> Point {
    let begun = Instant::now();
    let mut counts = Counts::default();
    let outcome = ServerConnection::connect(address, protocol)
        .and_then(|mut asker| all(&mut asker, workload, progress, &mut counts));
    Point {
        memory_mb,
        counts,
        seconds: begun.elapsed().as_secs_f64(),
        resident_bytes: None,
        failure: outcome.err().map(|error| format!("{error:#}")),
    }
}

fn all(
    asker: &mut ServerConnection,
    workload: &Workload,
    progress: &Progress,
    counts: &mut Counts,
) -> Result<()> {
    let mut group: Vec<Request> = Vec::with_capacity(GROUP);
    let mut at = 0;
    let mut flush = |group: &mut Vec<Request>, at: &mut u64, counts: &mut Counts| {
        let first = *at;
        *at += group.len() as u64;
        progress.answered.store(*at, Ordering::Relaxed);
        let uncounted = workload.warm_up.saturating_sub(first).min(group.len() as u64);
        let outcome = asker.group(group, fits(uncounted), counts);
        group.clear();
        ensure!(!progress.stop.load(Ordering::Relaxed), INTERRUPTED);
        outcome
    };
    for request in workload.requests()? {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                flush(&mut group, &mut at, counts)?;
                return Err(error);
            }
        };
        if group.len() == GROUP || group.iter().any(|other| other.id == request.id) {
            flush(&mut group, &mut at, counts)?;
        }
        group.push(request);
    }
    flush(&mut group, &mut at, counts)
}

/// A connection, with its received and unread bytes.
struct ServerConnection {
    stream: TcpStream,
    protocol: Protocol,
    out: Vec<u8>,
    input: Vec<u8>,
    at: usize,
    value: Vec<u8>,
}

impl ServerConnection {
    fn connect(address: SocketAddr, protocol: Protocol) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("{address}: no connection"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let value = vec![b'v'; VALUE_BYTES_MAX];
        Ok(Self { stream, protocol, out: Vec::new(), input: Vec::new(), at: 0, value })
    }

    /// Requests a group of distinct keys and stores the missed ones; the first `uncounted` are not
    /// counted.
    fn group(&mut self, group: &[Request], uncounted: usize, counts: &mut Counts) -> Result<()> {
        for request in group {
            match request.action {
                Action::Get => self.write_get(request),
                Action::Set => self.write_set(request),
                Action::Delete => self.write_delete(request),
            }
        }
        self.send()?;
        let mut missed = Vec::with_capacity(group.len());
        for (index, request) in group.iter().enumerate() {
            if !is_kept(request) {
                counts.gets += u64::from(index >= uncounted && request.action == Action::Get);
                continue;
            }
            match request.action {
                Action::Get => {
                    let is_hit = self.read_get()?;
                    if index >= uncounted {
                        counts.gets += 1;
                        counts.hits += u64::from(is_hit);
                    }
                    if !is_hit {
                        missed.push(*request);
                    }
                }
                Action::Set => counts.refused += u64::from(!self.read_stored()?),
                Action::Delete => self.read_deleted()?,
            }
        }
        for request in &missed {
            self.write_set(request);
        }
        self.send()?;
        for _ in &missed {
            counts.refused += u64::from(!self.read_stored()?);
        }
        Ok(())
    }

    fn write_get(&mut self, request: &Request) {
        self.write(request, b"get ", b"\r\n", b"GET");
    }

    fn write_delete(&mut self, request: &Request) {
        self.write(request, b"delete ", b"\r\n", b"DEL");
    }

    fn write_set(&mut self, request: &Request) {
        if !is_kept(request) {
            return;
        }
        let (length, secs) = (request.value_bytes as usize, request.lifetime_secs);
        let head = format!(" 0 {secs} {length}\r\n");
        self.write(request, b"set ", head.as_bytes(), b"SET");
        if self.protocol == Protocol::Resp {
            let _ = write!(self.out, "${length}\r\n");
        }
        self.out.extend_from_slice(&self.value[..length]);
        self.out.extend_from_slice(b"\r\n");
        if self.protocol == Protocol::Resp && secs > 0 {
            let secs = secs.to_string();
            let _ = write!(self.out, "$2\r\nEX\r\n${}\r\n{secs}\r\n", secs.len());
        }
    }

    /// Appends a request in the connection's protocol.
    fn write(&mut self, request: &Request, before: &[u8], after: &[u8], redis: &[u8]) {
        if !is_kept(request) {
            return;
        }
        let mut key = format!("{:016x}", request.id).into_bytes();
        key.resize(usize::from(request.key_bytes), b'x');
        if self.protocol == Protocol::Resp {
            let words = match (redis == b"SET", request.lifetime_secs > 0) {
                (false, _) => 2,
                (true, false) => 3,
                (true, true) => 5,
            };
            let name = String::from_utf8_lossy(redis);
            let _ = write!(self.out, "*{words}\r\n$3\r\n{name}\r\n${}\r\n", key.len());
            self.out.extend_from_slice(&key);
            self.out.extend_from_slice(b"\r\n");
        } else {
            for part in [before, &key, after] {
                self.out.extend_from_slice(part);
            }
        }
    }

    fn send(&mut self) -> Result<()> {
        let outcome = self.stream.write_all(&self.out).context("sending");
        self.out.clear();
        outcome
    }

    fn read_get(&mut self) -> Result<bool> {
        let mut is_hit = false;
        loop {
            let (heard, is_last) = self.read(Op::Get)?;
            match heard {
                Heard::Hit => is_hit = true,
                Heard::Miss => {}
                Heard::Stored | Heard::Removed => bail!("a get was answered as another request"),
                Heard::Refused(words) => bail!("a get was refused: {words}"),
            }
            if is_last {
                return Ok(is_hit);
            }
        }
    }

    fn read_stored(&mut self) -> Result<bool> {
        match self.read(Op::Set)?.0 {
            Heard::Stored => Ok(true),
            Heard::Refused(_) => Ok(false),
            Heard::Hit | Heard::Miss | Heard::Removed => {
                bail!("a set was answered as another request")
            }
        }
    }

    fn read_deleted(&mut self) -> Result<()> {
        match self.read(Op::Set)?.0 {
            Heard::Removed | Heard::Refused(_) => Ok(()),
            Heard::Hit | Heard::Miss | Heard::Stored => {
                bail!("a delete was answered as another request")
            }
        }
    }

    /// The next piece of a reply, and whether it is the last.
    fn read(&mut self, op: Op) -> Result<(Heard, bool)> {
        loop {
            let bytes = &self.input[self.at..];
            match wire::read(self.protocol, op, bytes) {
                wire::Read::Piece(piece, taken, is_last) => {
                    let heard = match piece {
                        Piece::Hit { .. } => Heard::Hit,
                        Piece::Miss | Piece::Frame => Heard::Miss,
                        Piece::Stored => Heard::Stored,
                        Piece::Removed => Heard::Removed,
                        Piece::Refused(words) => Heard::Refused(words.escape_ascii().to_string()),
                    };
                    self.at += taken;
                    return Ok((heard, is_last));
                }
                wire::Read::Garbage => {
                    let shown = bytes[..bytes.len().min(60)].escape_ascii();
                    bail!("no reply to what was asked: {shown}")
                }
                wire::Read::More(_) => {}
            }
            self.input.drain(..self.at);
            self.at = 0;
            let from = self.input.len();
            self.input.resize(from + 64 * 1024, 0);
            let read = self.stream.read(&mut self.input[from..]);
            self.input.truncate(from + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => bail!("the server closed the connection"),
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    bail!("no reply for {} seconds", PATIENCE.as_secs())
                }
                // A stopped and continued process is interrupted, too.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("receiving"),
            }
        }
    }
}

enum Heard {
    Hit,
    Miss,
    Stored,
    Removed,
    Refused(String),
}

/// Values larger than a server accepts are never requested: they are misses everywhere, as for the
/// bound.
#[must_use]
pub fn is_kept(request: &Request) -> bool {
    request.value_bytes as usize <= VALUE_BYTES_MAX
}
