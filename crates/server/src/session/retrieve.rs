//! get, gets, gat, gats and the line of lease-get: key by key, each value as it is found.

use engine::Key;
use net::{Flow, Input, Output};
use proto::Error;
use proto::reply;
use proto::text::{GetLine, KeyToken};
use store::Item;

use super::Worker;
use super::scan::GET;
use super::state::{Session, State, Step};
use super::value_out::{LINE_END, Outgoing, outgoing};
use crate::admin::prefix::Kind;

/// Keys of one line that count as one request against the connection's share.
const KEYS_PER_REQUEST: usize = 64;

impl Worker {
    /// Answers the keys of `line`, which go on in the input, until the line or the input ends, the output is full, or
    /// there have been many.
    pub(crate) fn get_keys(
        &mut self,
        session: &mut Session,
        mut line: GetLine,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        let deadline = line.exptime.map(|exptime| self.engine.deadline(exptime));
        for _ in 0..KEYS_PER_REQUEST {
            let (bytes, before) = (input.bytes(), line);
            let seen = self.batch.next_key(&self.engine, bytes).filter(|_| line.take_key());
            let (key, consumed) = match seen {
                Some(seen) => seen,
                None => match line.next_key(bytes) {
                    KeyToken::Key { key, consumed } => (self.engine.key(key), consumed),
                    KeyToken::Incomplete { consumed } => {
                        input.consume(consumed);
                        session.state = State::Getting(line);
                        return Step::Stop(Flow::NeedInput);
                    }
                    KeyToken::End { consumed } => {
                        return end_line(session, reply::END, consumed, input, output);
                    }
                    KeyToken::Bad { error, consumed } => {
                        return end_line(session, error.line(), consumed, input, output);
                    }
                },
            };
            if self.waits_to_send(session, key.bytes, output) {
                session.state = State::Getting(before);
                return Step::Stop(Flow::Wait);
            }
            input.consume(consumed);
            if self.denies_key(session, line.exptime.is_some() || line.with_lease, key.bytes) {
                // As after a key that is too long: what was found stays, the rest of the line goes.
                line.refuse_rest(Error::Permission);
                continue;
            }
            let is_whole = if line.with_lease {
                self.lease_key(session, key, line, output)
            } else {
                self.get_key(session, &key, &line, deadline, output)
            };
            if !is_whole {
                return Step::Next;
            }
            if output.is_full() || output.buf().len() > session.reply_bytes_max {
                break;
            }
        }
        session.state = State::Getting(line);
        Step::Next
    }

    /// Answers a plain `get` of one key that was seen ahead.
    #[inline]
    pub(crate) fn lone_get(
        &mut self,
        session: &mut Session,
        key: Key<'_>,
        key_end: usize,
        len: usize,
        input: &mut Input<'_>,
        output: &mut Output<'_>,
    ) -> Step {
        if self.waits_to_send(session, key.bytes, output) {
            input.consume(GET.len());
            session.state = State::Getting(GetLine::after_key());
            return Step::Stop(Flow::Wait);
        }
        if self.get_key(session, &key, &GetLine::after_key(), None, output) {
            output.buf().extend_from_slice(reply::END);
            input.consume(len);
        } else {
            input.consume(key_end);
        }
        Step::Next
    }

    /// Answers one key. False when its value goes out by itself, and the line is kept for later.
    #[inline(always)]
    fn get_key(
        &mut self,
        session: &mut Session,
        key: &Key<'_>,
        line: &GetLine,
        deadline: Option<u32>,
        output: &mut Output<'_>,
    ) -> bool {
        let section = self.engine.section();
        let found = match deadline {
            None => self.engine.get(&section, key),
            Some(deadline) => self.engine.get_and_touch(&section, *key, deadline),
        };
        if self.reporter.is_busy() {
            self.reporter.fetched(session, key.bytes, found.as_ref());
        }
        if self.shared.prefixes.is_on() {
            self.shared.prefixes.count(key.bytes, Kind::Get { is_hit: found.is_ok() });
        }
        let Ok(item) = found else { return true };
        self.write_item(session, key, &item, line, output)
    }

    /// Writes a found item. False when its value goes out by itself, and the line is kept for later.
    #[inline(always)]
    pub(super) fn write_item(
        &self,
        session: &mut Session,
        key: &Key<'_>,
        item: &Item<'_>,
        line: &GetLine,
        output: &mut Output<'_>,
    ) -> bool {
        let cas = line.with_cas.then(|| self.engine.cas_of(item));
        match outgoing(item) {
            Outgoing::Inline(value) => {
                let buf = output.buf();
                buf.reserve(key.bytes.len() + value.len() + HEADER_ROOM);
                reply::write_value_header(buf, key.bytes, item.flags(), value.len(), cas);
                buf.extend_from_slice(value);
                buf.extend_from_slice(LINE_END);
                true
            }
            Outgoing::Pinned(pin) => {
                if !self.inflight.begin_send(pin.value_len()) {
                    output.buf().extend_from_slice(OUT_OF_MEMORY_SENDING);
                    return true;
                }
                let buf = output.buf();
                reply::write_value_header(buf, key.bytes, item.flags(), pin.value_len(), cas);
                Self::start_sending(session, pin, LINE_END, Some(*line));
                false
            }
        }
    }
}

/// The retrieval line is over.
fn end_line(
    session: &mut Session,
    answer: &[u8],
    consumed: usize,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    input.consume(consumed);
    output.buf().extend_from_slice(answer);
    session.state = State::Commands;
    Step::Next
}

/// Room for all of a VALUE line but its key: words, flags, length, cas unique, line ends.
const HEADER_ROOM: usize = 64;

/// A large value cannot be sent now: too many others are on their way.
pub(crate) const OUT_OF_MEMORY_SENDING: &[u8] =
    b"SERVER_ERROR out of memory writing get response\r\n";
