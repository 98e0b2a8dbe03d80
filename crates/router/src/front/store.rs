//! Requests with a data block. Servers are asked only when the whole of it is here and ends as it should: a request that is
//! cut short would take the connection of everybody who shares it out of step.

use client::{Op, Request};
use net::{Flow, Input};
use proto::text::Store;
use proto::{StoreMode, reply};

use super::queue::{Kind, Slot};
use super::{Front, Session, Step};

/// The longest value that is passed on, in bytes; what a server takes is often less.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Bytes of values that one worker's clients may be sending at once.
const RECEIVING_BYTES_MAX: usize = 256 << 20;

/// A request of at most so many bytes waits for its end in the connection's input.
const SMALL_BYTES: usize = 16 * 1024;

/// A request whose data block is not whole yet: its bytes, as they come.
#[derive(Debug)]
pub(crate) struct Receiving {
    bytes: Vec<u8>,
    total: usize,
}

impl Receiving {
    /// Bytes that count against the limit.
    pub(crate) fn held(&self) -> usize {
        self.total
    }
}

/// The request of a storage command.
pub(crate) fn request<'a>(store: &Store<'a>, value: &'a [u8]) -> Request<'a> {
    let op = match store.mode {
        StoreMode::Add => Op::Add,
        StoreMode::Append => Op::Append,
        StoreMode::Prepend => Op::Prepend,
        StoreMode::Replace => Op::Replace,
        StoreMode::Set if store.cas.is_some() => Op::Cas,
        StoreMode::Set if store.lease.is_some() => Op::LeaseSet,
        StoreMode::Set => Op::Set,
    };
    Request {
        flags: store.flags,
        exptime: store.exptime,
        number: store.cas.or(store.lease).unwrap_or(0),
        value,
        ..Request::new(op, store.key)
    }
}

impl Front {
    /// The data block of `len` bytes behind a line of `consumed`, if it is whole. Otherwise what comes next is arranged.
    pub(super) fn block<'i>(
        &mut self,
        session: &mut Session,
        input: &mut Input<'i>,
        consumed: usize,
        len: u32,
        is_mute: bool,
    ) -> Result<&'i [u8], Step> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let bytes = input.bytes();
        let queue = self.queues.get(session.queue);
        let mut refuse = |line: &[u8]| {
            if !is_mute {
                queue.push_ready(line);
            }
        };
        if len > VALUE_BYTES_MAX {
            refuse(reply::TOO_LARGE);
            input.consume(consumed);
            session.swallow = len as u64 + 2;
            return Err(Step::Next);
        }
        let total = consumed + len + 2;
        if let Some(block) = bytes.get(consumed..total) {
            input.consume(total);
            let Some(value) = block.strip_suffix(b"\r\n") else {
                refuse(reply::BAD_DATA_CHUNK);
                // Where the next request begins is not known.
                session.closes = true;
                return Err(Step::Next);
            };
            return Ok(value);
        }
        if total <= SMALL_BYTES {
            return Err(Step::Stop(Flow::NeedInput));
        }
        if self.receiving_bytes + total > RECEIVING_BYTES_MAX {
            refuse(reply::OUT_OF_MEMORY_STORING);
            input.consume(consumed);
            session.swallow = len as u64 + 2;
            return Err(Step::Next);
        }
        self.receiving_bytes += total;
        session.receiving = Some(Box::new(Receiving { bytes: bytes.to_vec(), total }));
        input.consume(bytes.len());
        Err(Step::Stop(Flow::NeedInput))
    }

    /// Takes what has come of a data block; when it is whole, the request is read from the beginning.
    pub(super) fn receive(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let Some(mut receiving) = session.receiving.take() else { return Step::Next };
        let missing = receiving.total - receiving.bytes.len();
        let taken = input.bytes().get(..missing).unwrap_or_else(|| input.bytes());
        receiving.bytes.extend_from_slice(taken);
        input.consume(taken.len());
        if receiving.bytes.len() < receiving.total {
            session.receiving = Some(receiving);
            return Step::Stop(Flow::NeedInput);
        }
        self.receiving_bytes -= receiving.total;
        let mut whole = Input::new(&receiving.bytes);
        self.command(session, &mut whole)
    }

    /// set and its kin.
    pub(super) fn store(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        consumed: usize,
        store: &Store<'_>,
    ) -> Step {
        match self.block(session, input, consumed, store.len, store.noreply) {
            Ok(value) => {
                let request = Request { client: session.client, ..request(store, value) };
                let slot = Slot::new(request.op, Kind::Whole).mute(store.noreply);
                self.submit(session.queue, slot, &request);
                Step::Next
            }
            Err(step) => step,
        }
    }
}
