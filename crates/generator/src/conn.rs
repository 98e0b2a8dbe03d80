//! One connection: its unsent requests and its outstanding replies.

use std::collections::VecDeque;
use std::io;

use anyhow::{Context, Result, bail, ensure};

use super::record::{Moment, Record};
use super::security::Security;
use super::spec::{Protocol, Target};
use super::transport::Transport;
use super::waiting::{Reply, Waiting};
use super::wire::{ExpectedHit, Op, Piece, Read, Wire};
use crate::number::fits;

/// A connection to one server.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) transport: Transport,
    /// The index of the server.
    pub(super) target: usize,
    /// Requests sent or being sent, in order.
    pub(super) waiting: VecDeque<Waiting>,
    /// Requests written so far.
    pub(super) asked: u64,
    /// Requests written before the last reconnect.
    asked_before: u64,
    /// True if the poller reports when the socket accepts more.
    pub(super) polls_for_room: bool,
    /// Keys of the requests in `waiting`, in order; only if values are compared.
    keys: VecDeque<u64>,
    out: Vec<u8>,
    out_at: usize,
    partial: Vec<u8>,
}

/// The longest accepted reply; a longer one is garbage.
const REPLY_BYTES_MAX: usize = 8 << 20;

impl Conn {
    pub(super) fn open(target: &Target, index: usize, security: &Security) -> Result<Self> {
        let transport = security.open(target, true)?;
        Ok(Self {
            transport,
            target: index,
            waiting: VecDeque::new(),
            asked: 0,
            asked_before: 0,
            polls_for_room: false,
            keys: VecDeque::new(),
            out: Vec::new(),
            out_at: 0,
            partial: Vec::new(),
        })
    }

    /// Writes a request after the unsent ones.
    #[inline]
    pub(super) fn ask(&mut self, wire: &Wire, op: Op, keys: &[u64], intended: u64, now: u64) {
        let from = self.out.len();
        let replies = match op {
            Op::Get => wire.get(keys, &mut self.out),
            Op::Set => {
                wire.set(keys[0], &mut self.out);
                1
            }
        };
        self.asked += 1;
        if wire.verify {
            self.keys.extend(keys);
        }
        let request = Waiting {
            op,
            count: 1,
            intended,
            sent: now,
            keys: fits(keys.len()),
            replies,
            sent_bytes: fits(self.out.len() - from),
            reply: Reply::default(),
        };
        match self.waiting.back_mut() {
            Some(last) if last.is_like(&request) => last.count += 1,
            _ => self.waiting.push_back(request),
        }
    }

    /// Requests written since the last reconnect.
    pub(super) fn requests_since_reconnect(&self) -> u64 {
        self.asked - self.asked_before
    }

    /// The number of requests without a reply.
    pub(super) fn in_flight(&self) -> usize {
        self.waiting.iter().map(|request| request.count as usize).sum()
    }

    /// Ends the connection, which has no outstanding replies, and opens a new one to the same
    /// server.
    pub(super) fn renew(&mut self, target: &Target, security: &Security) -> Result<()> {
        self.transport = security.open(target, false)?;
        self.partial.clear();
        (self.asked_before, self.polls_for_room) = (self.asked, false);
        Ok(())
    }

    /// Gives up a request whose datagram was lost if it is older than `patience` nanoseconds.
    pub(super) fn give_up(&mut self, now: u64, patience: u64) -> Option<Waiting> {
        let waiting = self.waiting.front().copied()?;
        if !self.transport.is_udp() || now.saturating_sub(waiting.sent) <= patience {
            return None;
        }
        self.transport.forget();
        self.waiting.clear();
        self.keys.clear();
        self.partial.clear();
        Some(waiting)
    }

    /// Writes as much as the socket accepts. True when nothing is left.
    ///
    /// # Errors
    ///
    /// When the connection is broken.
    pub(super) fn flush(&mut self) -> Result<bool> {
        while self.out_at < self.out.len() {
            match self.transport.write(&self.out[self.out_at..]) {
                Ok(taken) => self.out_at += taken,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("sending"),
            }
        }
        self.out.clear();
        self.out_at = 0;
        self.transport.is_flushed().context("sending")
    }

    /// Reads once and records the whole replies.
    ///
    /// # Errors
    ///
    /// When the server closes, or sends an invalid reply.
    pub(super) fn receive(
        &mut self,
        wire: &Wire,
        buffer: &mut [u8],
        record: &mut Record,
        moment: Moment,
    ) -> Result<()> {
        let len = match self.transport.read(buffer).context("receiving")? {
            Some(0) => bail!("the server closed a connection"),
            Some(len) => len,
            None => return Ok(()),
        };
        if self.partial.is_empty() {
            let taken = self.take(wire, &buffer[..len], record, moment)?;
            self.partial.extend_from_slice(&buffer[taken..len]);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.partial);
        bytes.extend_from_slice(&buffer[..len]);
        let taken = self.take(wire, &bytes, record, moment)?;
        bytes.drain(..taken);
        self.partial = bytes;
        Ok(())
    }

    fn take(
        &mut self,
        wire: &Wire,
        bytes: &[u8],
        record: &mut Record,
        moment: Moment,
    ) -> Result<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if let Some(hit) = &wire.expected_hit {
                at += self.take_hits(hit, &bytes[at..], record, moment);
                if at == bytes.len() {
                    break;
                }
            }
            let Some(request) = self.waiting.front_mut() else {
                bail!("the server sent more than was asked for: {}", shown(&bytes[at..]));
            };
            let (piece, consumed, counts) = match wire.read(request.op, &bytes[at..]) {
                Read::Piece(piece, consumed, counts) => (piece, consumed, counts),
                Read::More(total) => {
                    ensure!(total <= REPLY_BYTES_MAX, "a reply of {total} bytes is announced");
                    break;
                }
                Read::Garbage => bail!("no reply to what was asked: {}", shown(&bytes[at..])),
            };
            at += consumed;
            let mut reply = request.reply;
            reply.bytes += consumed as u64;
            match piece {
                Piece::Hit { .. } if request.op == Op::Set => {
                    bail!("a set was answered by a value")
                }
                Piece::Hit { key, value } => {
                    reply.hits += 1;
                    if wire.verify && !is_right(wire, &self.keys, request, key, value) {
                        record.wrong += 1;
                    }
                }
                Piece::Refused(_) => {
                    reply.is_refused = true;
                    // Redis refuses a request of many keys in one reply.
                    if wire.protocol == Protocol::Resp {
                        reply.replies = request.replies - 1;
                    }
                }
                Piece::Stored if request.op == Op::Get => bail!("a get was answered as a set"),
                Piece::Removed => bail!("a request was answered as a delete"),
                Piece::Miss | Piece::Stored | Piece::Frame => {}
            }
            reply.replies += u32::from(counts);
            request.reply = reply;
            if reply.replies == request.replies {
                record.keep(request, reply, 1, moment);
                self.finish(1);
            }
        }
        Ok(at)
    }

    /// Takes hits of the expected shape from the front. Requests that were due and sent together
    /// took the same time, so they are recorded together.
    #[inline]
    fn take_hits(
        &mut self,
        hit: &ExpectedHit,
        bytes: &[u8],
        record: &mut Record,
        moment: Moment,
    ) -> usize {
        let mut at = 0;
        while let Some(request) = self.waiting.front()
            && request.op == Op::Get
            && request.reply.bytes == 0
        {
            let mut hits = 0;
            while hits < request.count && hit.is_first_of(&bytes[at..]) {
                at += hit.total;
                hits += 1;
            }
            if hits == 0 {
                break;
            }
            let reply = Reply { hits: 1, bytes: hit.total as u64, ..Reply::default() };
            record.keep(request, reply, hits, moment);
            self.finish(hits);
        }
        at
    }

    /// Records that the first `count` of the front's requests have their replies.
    #[inline]
    fn finish(&mut self, count: u32) {
        let Some(request) = self.waiting.front_mut() else { return };
        if !self.keys.is_empty() {
            self.keys.drain(..(request.keys * count) as usize);
        }
        if request.count == count {
            self.waiting.pop_front();
        } else {
            request.count -= count;
            request.reply = Reply::default();
        }
    }
}

/// True if `value` is the stored value of a key of the request: the key in the reply, or the next
/// in order.
fn is_right(
    wire: &Wire,
    keys: &VecDeque<u64>,
    request: &Waiting,
    named: Option<&[u8]>,
    value: &[u8],
) -> bool {
    let asked = keys.iter().take(request.keys as usize);
    let key = match named {
        Some(named) => asked.copied().find(|key| {
            let mut name = Vec::with_capacity(named.len());
            wire.name(*key, &mut name);
            name == named
        }),
        // Replies without names come one per key, in key order.
        None => {
            let turn = if request.keys == 1 { 0 } else { request.reply.replies };
            asked.copied().nth(turn as usize)
        }
    };
    key.is_some_and(|key| wire.value(key) == value)
}

/// The start of the received bytes, printable.
fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(60)].escape_ascii().to_string()
}
