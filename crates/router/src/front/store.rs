//! Requests with a data block. They are sent only when the whole block is here and ends correctly,
//! because a truncated request would put a shared connection out of step.

use net::{Flow, Input};
use proto::reply::CRLF;
use proto::text::Store;
use proto::{StoreMode, reply};
use upstream::{Command, Request};

use super::slot::{Kind, Slot};
use super::{Front, Session, Step};

/// The maximum length of a passed value, in bytes; servers often accept less.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 20;

/// Maximum bytes of a request that waits for its end in the connection's input.
const SMALL_BYTES: usize = 16 * 1024;

/// A request with an incomplete data block: its bytes so far.
#[derive(Debug)]
pub(crate) struct Receiving {
    bytes: Vec<u8>,
    total: usize,
}

impl Receiving {
    /// Makes room for received bytes, because an announced length may never arrive. Returns false
    /// without memory.
    fn reserve(&mut self, count: usize) -> bool {
        let (len, capacity) = (self.bytes.len(), self.bytes.capacity());
        let wanted = count.max(len).min(self.total - len);
        capacity - len >= count || self.bytes.try_reserve_exact(wanted).is_ok()
    }
}

/// The request of a storage command.
pub(crate) fn request<'a>(store: &Store<'a>, value: &'a [u8]) -> Request<'a> {
    let op = match store.mode {
        StoreMode::Add => Command::Add,
        StoreMode::Append => Command::Append,
        StoreMode::Prepend => Command::Prepend,
        StoreMode::Replace => Command::Replace,
        StoreMode::Set if store.cas.is_some() => Command::Cas,
        StoreMode::Set if store.lease.is_some() => Command::LeaseSet,
        StoreMode::Set => Command::Set,
    };
    Request {
        flags: store.flags,
        exptime: store.exptime,
        number: store.cas.or(store.lease).unwrap_or(0),
        value,
        ..Request::new(op, store.key)
    }
}

/// The state of a data block.
pub(super) enum Block<'i> {
    /// It is refused; the client gets an error.
    Refused(Refused),
    /// Some of it is outstanding.
    Wait,
    /// All of it.
    Whole(&'i [u8]),
}

/// The reason why a data block is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// It does not end correctly.
    BadEnd,
    /// It is longer than the limit.
    TooLarge,
}

impl Refused {
    /// The error line for text clients.
    pub(super) const fn line(self) -> &'static [u8] {
        match self {
            Self::BadEnd => reply::BAD_DATA_CHUNK,
            Self::TooLarge => reply::TOO_LARGE,
        }
    }
}

impl Front {
    /// The data block of `len` bytes, and `end`, after a head of `consumed`. It also prepares the
    /// next step.
    pub(super) fn block<'i>(
        &mut self,
        session: &mut Session,
        input: &mut Input<'i>,
        consumed: usize,
        len: u32,
        end: &[u8],
    ) -> Block<'i> {
        let len = usize::try_from(len).unwrap_or(usize::MAX).saturating_add(end.len());
        let bytes = input.bytes();
        if len > VALUE_BYTES_MAX {
            input.consume(consumed);
            session.swallow = len as u64;
            return Block::Refused(Refused::TooLarge);
        }
        let total = consumed + len;
        if let Some(block) = bytes.get(consumed..total) {
            input.consume(total);
            let Some(value) = block.strip_suffix(end) else {
                // The start of the next request is unknown.
                session.closes = true;
                return Block::Refused(Refused::BadEnd);
            };
            return Block::Whole(value);
        }
        if total <= SMALL_BYTES {
            return Block::Wait;
        }
        let bytes_here = bytes.to_vec();
        self.queues.get(session.queue).receiving_bytes = bytes_here.capacity();
        session.receiving = Some(Box::new(Receiving { bytes: bytes_here, total }));
        input.consume(bytes.len());
        Block::Wait
    }

    /// Takes the received part of a data block. When it is complete, the request is read from the
    /// start.
    pub(super) fn receive(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let Some(mut receiving) = session.receiving.take() else { return Step::Next };
        let missing = receiving.total - receiving.bytes.len();
        let taken = input.bytes().get(..missing).unwrap_or_else(|| input.bytes());
        if !receiving.reserve(taken.len()) {
            // The rest of it is not a request.
            session.closes = true;
            return Step::Stop(Flow::CloseNow);
        }
        receiving.bytes.extend_from_slice(taken);
        input.consume(taken.len());
        let queue = self.queues.get(session.queue);
        if receiving.bytes.len() < receiving.total {
            queue.receiving_bytes = receiving.bytes.capacity();
            session.receiving = Some(receiving);
            return Step::Stop(Flow::NeedInput);
        }
        queue.receiving_bytes = 0;
        let mut whole = Input::new(&receiving.bytes);
        self.read(session, &mut whole)
    }

    /// Deletes the key of a refused plain set, as servers do: the client must not read the old
    /// value. No client waits for the reply.
    pub(super) fn delete_refused(&mut self, session: &Session, key: &[u8]) {
        let base64 = key.iter().any(|byte| *byte <= b' ' || *byte == 0x7f);
        let Session { client, listener, .. } = *session;
        let op = if base64 { Command::MetaDelete } else { Command::Delete };
        let words: &[u8] = if base64 { b"b" } else { b"" };
        let delete = Request { words, base64, client, listener, ..Request::new(op, key) };
        let slot = Slot::new(op, Kind::Whole).mute(true);
        self.submit(session.queue, slot, &delete);
    }

    /// set and similar commands.
    pub(super) fn store(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        consumed: usize,
        store: &Store<'_>,
    ) -> Step {
        match self.block(session, input, consumed, store.len, CRLF) {
            Block::Whole(value) => {
                let Session { client, listener, .. } = *session;
                let request = Request { client, listener, ..request(store, value) };
                let slot = Slot::new(request.op, Kind::Whole).mute(store.noreply);
                self.submit(session.queue, slot, &request);
                Step::Next
            }
            Block::Refused(why) => {
                if why == Refused::TooLarge && request(store, b"").op == Command::Set {
                    self.delete_refused(session, store.key);
                }
                self.tell(session.queue, store.noreply, why.line());
                Step::Next
            }
            Block::Wait => Step::Stop(Flow::NeedInput),
        }
    }
}
