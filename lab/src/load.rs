//! The generator: a closed loop over many connections in one thread.
//!
//! Each connection sends a batch in one write, waits for all of its replies, records the time and
//! sends the next batch. The generator does not parse: a batch is complete when the expected number
//! of bytes (or, for sets, of lines) has arrived. A reply that is too short or too long ends the
//! run with an error, because then the server does not do the measured work.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::workload::{Batches, Expect, Workload};

/// The outcome of one run.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Answered requests, or keys of multigets.
    pub units: u64,
    /// From the first request to the last reply.
    pub elapsed: Duration,
    /// Time from sending a batch to its last reply, in nanoseconds.
    pub latency: Histogram<u32>,
    /// Batches of sets in which at least one was refused.
    pub refused: u64,
}

/// Connections to one server.
#[derive(Debug)]
pub struct Load {
    conns: Vec<Conn>,
    poller: OwnedFd,
    buffer: Vec<u8>,
    /// It asks for replies again and again, and never sleeps.
    polls: bool,
}

#[derive(Debug)]
struct Conn {
    stream: TcpStream,
    sent_at: Instant,
    expect: Expect,
    /// Received bytes of the batch's replies and, if they are counted, lines.
    bytes: usize,
    lines: usize,
    /// The part of the batch that the socket has not taken yet.
    unsent: Vec<u8>,
    is_waiting: bool,
    index: u64,
}

/// The run fails if a server is silent for this time.
const PATIENCE: Duration = Duration::from_secs(5);

/// Sets in flight while filling a server.
const FILL_DEPTH: u32 = 64;

/// Keys in one get while checking a server.
const CHECK_KEYS: usize = 100;

impl Load {
    /// Opens `connections` connections, distributed over the addresses in turn.
    ///
    /// # Errors
    ///
    /// When a connection is refused or the poller cannot be created.
    pub fn connect(addresses: &[SocketAddr], connections: usize) -> Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut conns = Vec::new();
        for (index, address) in addresses.iter().cycle().take(connections).enumerate() {
            let stream = TcpStream::connect(address).with_context(|| format!("{address}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poller, &stream, data, epoll::EventFlags::IN)?;
            conns.push(Conn {
                stream,
                sent_at: Instant::now(),
                expect: Expect::Bytes(0),
                bytes: 0,
                lines: 0,
                unsent: Vec::new(),
                is_waiting: false,
                index: index as u64,
            });
        }
        Ok(Self { conns, poller, buffer: vec![0; 256 * 1024], polls: false })
    }

    /// Asks for replies again and again instead of sleeping until they come. Where a server's write
    /// has to wake the generator on another processor, that costs the server processor time.
    #[must_use]
    pub fn polling(self, polls: bool) -> Self {
        Self { polls, ..self }
    }

    /// Sends batches on every connection for `duration` and waits for the last replies.
    ///
    /// # Errors
    ///
    /// When a connection breaks, the server is silent for five seconds, or a reply has the wrong
    /// length.
    pub fn run(
        &mut self,
        batches: &mut Batches,
        units: usize,
        duration: Duration,
    ) -> Result<Sample> {
        let mut sample = Sample {
            units: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new_with_bounds(100, 10_000_000_000, 3)?,
            refused: 0,
        };
        let started = Instant::now();
        let end = started + duration;
        let mut request = Vec::with_capacity(64 * 1024);
        let mut now = started;
        for conn in &mut self.conns {
            conn.send(batches, &mut request, &self.poller, now)?;
        }
        let mut waiting = self.conns.len();
        let mut events = Vec::with_capacity(self.conns.len());
        let sleep = if self.polls { Timespec::default() } else { Timespec::try_from(PATIENCE)? };
        while waiting > 0 {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.poller, spare, Some(&sleep)) {
                Ok(0) if self.polls && now.elapsed() < PATIENCE => continue,
                Ok(0) => bail!("no reply for five seconds: {} batches are incomplete", waiting),
                Err(Errno::INTR) | Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
            for event in &events {
                let (index, flags) = (usize::try_from(event.data.u64())?, event.flags);
                let conn = &mut self.conns[index];
                if flags.contains(epoll::EventFlags::OUT) {
                    conn.send_rest(&self.poller)?;
                }
                if !flags.contains(epoll::EventFlags::IN) || !conn.receive(&mut self.buffer)? {
                    continue;
                }
                now = Instant::now();
                let nanos = now.duration_since(conn.sent_at).as_nanos();
                sample.latency.saturating_record(u64::try_from(nanos)?);
                sample.units += units as u64;
                sample.refused += u64::from(conn.has_refusals());
                if now < end {
                    conn.send(batches, &mut request, &self.poller, now)?;
                } else {
                    conn.is_waiting = false;
                    waiting -= 1;
                }
            }
        }
        sample.elapsed = now.duration_since(started);
        Ok(sample)
    }
}

impl Conn {
    fn send(
        &mut self,
        batches: &mut Batches,
        request: &mut Vec<u8>,
        poller: &OwnedFd,
        now: Instant,
    ) -> Result<()> {
        request.clear();
        self.expect = batches.next(request);
        (self.bytes, self.lines, self.sent_at, self.is_waiting) = (0, 0, now, true);
        let taken = match self.stream.write(request) {
            Ok(taken) => taken,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        if taken < request.len() {
            self.unsent.extend_from_slice(&request[taken..]);
            self.poll_for(poller, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
        }
        Ok(())
    }

    fn send_rest(&mut self, poller: &OwnedFd) -> Result<()> {
        let taken = match self.stream.write(&self.unsent) {
            Ok(taken) => taken,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        self.unsent.drain(..taken);
        if self.unsent.is_empty() {
            self.poll_for(poller, epoll::EventFlags::IN)?;
        }
        Ok(())
    }

    fn poll_for(&self, poller: &OwnedFd, flags: epoll::EventFlags) -> Result<()> {
        let data = epoll::EventData::new_u64(self.index);
        Ok(epoll::modify(poller, &self.stream, data, flags)?)
    }

    /// Reads once. Returns true when the batch is complete.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let len = match self.stream.read(buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        ensure!(len > 0, "the server closed a connection");
        ensure!(self.is_waiting, "the server sent more than was asked for");
        self.bytes += len;
        match self.expect {
            Expect::Bytes(want) => {
                ensure!(self.bytes <= want, "{} bytes came where {want} must", self.bytes);
                let is_complete = self.bytes == want;
                ensure!(!is_complete || buffer[..len].ends_with(b"\n"), "a reply does not end");
                Ok(is_complete)
            }
            Expect::Stored(want) => {
                self.lines += memchr::memchr_iter(b'\n', &buffer[..len]).count();
                ensure!(self.lines <= want, "{} lines came where {want} must", self.lines);
                Ok(self.lines == want)
            }
        }
    }

    fn has_refusals(&self) -> bool {
        matches!(self.expect, Expect::Stored(want) if self.bytes != want * "STORED\r\n".len())
    }
}

/// Stores every key in `keys` once, over one connection. Returns the number of refused stores.
///
/// # Errors
///
/// When the connection breaks or the server is silent for five seconds.
pub fn fill(address: SocketAddr, batches: &Batches, keys: std::ops::Range<u32>) -> Result<u64> {
    let mut stream = blocking(address)?;
    let (mut request, mut buffer, mut refused) = (Vec::new(), vec![0; 16 * 1024], 0);
    let mut from = keys.start;
    while from < keys.end {
        let to = keys.end.min(from + FILL_DEPTH);
        request.clear();
        (from..to).for_each(|key| batches.set(key, &mut request));
        stream.write_all(&request).context("storing")?;
        let (mut lines, mut stored) = (0, 0);
        while lines < to - from {
            let len = stream.read(&mut buffer).context("storing")?;
            ensure!(len > 0, "the server closed the connection");
            lines += u32::try_from(memchr::memchr_iter(b'\n', &buffer[..len]).count())?;
            // `D` occurs in STORED and in none of memcached's refusals.
            stored += u32::try_from(memchr::memchr_iter(b'D', &buffer[..len]).count())?;
        }
        refused += u64::from((to - from).saturating_sub(stored));
        from = to;
    }
    Ok(refused)
}

/// Fetches every key in `0..keys` and compares the replies byte for byte.
///
/// # Errors
///
/// When a reply differs, for example because a key is missing.
pub fn check(address: SocketAddr, workload: Workload, keys: u32) -> Result<()> {
    let batches = Batches::new(workload, keys, 0);
    let mut stream = blocking(address)?;
    let (mut request, mut want, mut got) = (Vec::new(), Vec::new(), Vec::new());
    for from in (0..keys).step_by(CHECK_KEYS) {
        let to = keys.min(from + u32::try_from(CHECK_KEYS)?);
        request.clear();
        request.extend_from_slice(b"get");
        for key in from..to {
            request.push(b' ');
            batches.key(key, &mut request);
        }
        request.extend_from_slice(b"\r\n");
        want.clear();
        batches.found(from..to, &mut want);
        stream.write_all(&request)?;
        got.resize(want.len(), 0);
        stream.read_exact(&mut got).with_context(|| format!("keys {from} to {to}"))?;
        ensure!(got == want, "the reply for keys {from} to {to} differs");
    }
    Ok(())
}

/// A connection for filling and checking.
pub(crate) fn blocking(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).with_context(|| format!("{address}"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    Ok(stream)
}
