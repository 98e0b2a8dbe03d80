//! The generator for UDP: a closed loop over connected sockets, each with several outstanding
//! requests.
//!
//! One `sendmmsg` sends all of a socket's requests of a turn, and one `recvmmsg` reads its replies.
//! The cost per request is therefore low for one socket with many requests; for many sockets with
//! one request each it is that of the system calls. An id identifies each request. A request is
//! complete when its expected number of bytes has arrived, in any number of datagrams. One that is
//! not answered in time counts as lost and is sent again, as a client would do.

use std::array;
use std::io::{IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hdrhistogram::Histogram;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, recvmmsg};
use rustix::event::epoll;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};
use rustix::time::Timespec;

use crate::load::Sample;
use crate::workload::{Batches, Expect};

/// Maximum number of datagrams per system call.
const BATCH: usize = 32;

/// Maximum size of a reply's datagram in bytes.
const DATAGRAM_BYTES: usize = net::DATAGRAM_BYTES;

/// The time after which a reply counts as lost.
const PATIENCE: Duration = Duration::from_millis(200);

/// Requests that one socket can distinguish: half of an id is the request's place, the other half
/// its turn.
const DEPTH_MAX: usize = 256;

/// Sockets connected to one server.
#[derive(Debug)]
pub struct UdpLoad {
    clients: Vec<Client>,
    poller: OwnedFd,
    headers: MultiHeaders<()>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Client {
    socket: UdpSocket,
    asked: Vec<Asked>,
    /// Framed requests to send together, and the end of each.
    out: Vec<u8>,
    ends: Vec<usize>,
}

/// One outstanding request.
#[derive(Debug)]
struct Asked {
    sent_at: Instant,
    turn: u8,
    is_waiting: bool,
    missing: usize,
}

impl UdpLoad {
    /// Connects `sockets` sockets to `address`, with `depth` outstanding requests on each.
    ///
    /// # Errors
    ///
    /// When a socket cannot be created, or `depth` is over 256.
    pub fn connect(address: SocketAddr, sockets: usize, depth: usize) -> Result<Self> {
        ensure!((1..=DEPTH_MAX).contains(&depth), "1 to {DEPTH_MAX} requests of one socket");
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut clients = Vec::new();
        for index in 0..sockets {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.connect(address).with_context(|| format!("{address}"))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&poller, &socket, data, epoll::EventFlags::IN)?;
            let asked =
                || Asked { sent_at: Instant::now(), turn: 0, is_waiting: false, missing: 0 };
            let asked = (0..depth).map(|_| asked()).collect();
            clients.push(Client { socket, asked, out: Vec::new(), ends: Vec::new() });
        }
        let buffer = vec![0; BATCH * DATAGRAM_BYTES];
        Ok(Self { clients, poller, headers: MultiHeaders::preallocate(BATCH, None), buffer })
    }

    /// Sends requests for `duration` and waits for the last replies. Also returns the number of
    /// lost requests.
    ///
    /// # Errors
    ///
    /// When a socket fails, a reply is too long, or replies stop.
    pub fn run(
        &mut self,
        batches: &mut Batches,
        units: usize,
        duration: Duration,
    ) -> Result<(Sample, u64)> {
        let started = Instant::now();
        let end = started + duration;
        let mut sample = Sample {
            units: 0,
            elapsed: Duration::ZERO,
            latency: Histogram::new_with_bounds(100, 10_000_000_000, 3)?,
            refused: 0,
        };
        let (mut waiting, mut lost, mut now) = (0, 0, started);
        for client in &mut self.clients {
            waiting += client.asked.len();
            (0..client.asked.len()).try_for_each(|place| client.ask(place, batches, now))?;
            client.send()?;
        }
        let mut events = Vec::with_capacity(self.clients.len());
        while waiting > 0 {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            let timeout = Timespec::try_from(PATIENCE)?;
            match epoll::wait(&self.poller, spare, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            now = Instant::now();
            let is_over = now >= end;
            if events.is_empty() {
                for client in &mut self.clients {
                    lost += client.ask_again(batches, now)?;
                }
                ensure!(now < end + 10 * PATIENCE, "the server does not answer any more");
            }
            for event in &events {
                let client = &mut self.clients[usize::try_from(event.data.u64())?];
                let got = receive(&client.socket, &mut self.headers, &mut self.buffer)?;
                for (slot, len) in got.into_iter().enumerate().take_while(|(_, len)| *len > 0) {
                    let datagram = &self.buffer[slot * DATAGRAM_BYTES..][..len];
                    let Some(place) = client.answered(datagram)? else { continue };
                    let nanos = now.duration_since(client.asked[place].sent_at).as_nanos();
                    sample.latency.saturating_record(u64::try_from(nanos)?);
                    sample.units += units as u64;
                    if is_over {
                        waiting -= 1;
                    } else {
                        client.ask(place, batches, now)?;
                    }
                }
                client.send()?;
            }
        }
        sample.elapsed = now.duration_since(started);
        Ok((sample, lost))
    }
}

impl Client {
    /// Adds a request to the next send.
    fn ask(&mut self, place: usize, batches: &mut Batches, now: Instant) -> Result<()> {
        let asked = &mut self.asked[place];
        asked.turn = asked.turn.wrapping_add(1);
        let id = [u8::try_from(place)?, asked.turn];
        self.out.extend_from_slice(&[id[0], id[1], 0, 0, 0, 1, 0, 0]);
        let Expect::Bytes(bytes) = batches.next(&mut self.out) else {
            bail!("only gets are asked for by UDP");
        };
        (asked.sent_at, asked.missing, asked.is_waiting) = (now, bytes, true);
        self.ends.push(self.out.len());
        Ok(())
    }

    /// Sends the added requests.
    fn send(&mut self) -> Result<()> {
        let mut from = 0;
        for ends in self.ends.chunks(BATCH) {
            let mut start = from;
            let slices: [_; BATCH] = array::from_fn(|index| {
                let end = *ends.get(index).unwrap_or(&start);
                let slice = IoSlice::new(&self.out[start..end]);
                start = end;
                [slice]
            });
            from = start;
            let mut controls: [_; BATCH] = array::from_fn(|_| SendAncillaryBuffer::default());
            let mut index = 0;
            let mut headers = controls.each_mut().map(|control| {
                index += 1;
                MMsgHdr::new(&slices[index - 1], control)
            });
            // A request that a full socket does not take is lost, and sent again.
            sendmmsg(&self.socket, &mut headers[..ends.len()], SendFlags::DONTWAIT)?;
        }
        self.out.clear();
        self.ends.clear();
        Ok(())
    }

    /// Takes a datagram of a reply. Returns the place of the request that it completes.
    fn answered(&mut self, datagram: &[u8]) -> Result<Option<usize>> {
        let Some(([place, turn, ..], payload)) = datagram.split_first_chunk::<8>() else {
            bail!("a datagram without a frame");
        };
        let place = usize::from(*place);
        let asked = self.asked.get_mut(place).context("an id that was not used")?;
        if asked.turn != *turn || !asked.is_waiting {
            // The request had already been given up.
            return Ok(None);
        }
        ensure!(payload.len() <= asked.missing, "more bytes came than must");
        asked.missing -= payload.len();
        asked.is_waiting = asked.missing > 0;
        Ok((!asked.is_waiting).then_some(place))
    }

    /// Sends requests again that have waited too long. Returns their number.
    fn ask_again(&mut self, batches: &mut Batches, now: Instant) -> Result<u64> {
        let mut lost = 0;
        for place in 0..self.asked.len() {
            let asked = &self.asked[place];
            if asked.is_waiting && now.duration_since(asked.sent_at) >= PATIENCE {
                lost += 1;
                self.ask(place, batches, now)?;
            }
        }
        self.send()?;
        Ok(lost)
    }
}

/// The lengths of the received datagrams, by their places in `buffer`; zero where there is none.
fn receive(
    socket: &UdpSocket,
    headers: &mut MultiHeaders<()>,
    buffer: &mut [u8],
) -> Result<[usize; BATCH]> {
    let mut slots = buffer.chunks_exact_mut(DATAGRAM_BYTES);
    let mut slices: [_; BATCH] =
        array::from_fn(|_| [IoSliceMut::new(slots.next().unwrap_or_default())]);
    let mut lens = [0; BATCH];
    let flags = MsgFlags::MSG_DONTWAIT;
    match recvmmsg(socket.as_raw_fd(), headers, &mut slices, flags, None) {
        Ok(results) => results.zip(&mut lens).for_each(|(result, len)| *len = result.bytes),
        Err(Errno::EAGAIN) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(lens)
}
