//! The unanswered requests of one connection, in order. It uses no socket and no clock.
//!
//! ```text
//!     ask -> out (bytes to send) + questions (who wants which answer, oldest first)
//!     bytes received -> proto::answer -> the oldest question -> its ticket
//! ```
//!
//! Gets of the same turn are sent as one line, `get a b c`. The server answers the hits in order
//! and leaves the misses out, so after a value for `b` no value for `a` comes. The end of the line
//! answers `a`: it is a miss after `END`, and it has failed after an error, which a proxy sends in
//! place of `END` if one of its own servers fails.
//!
//! A server that uses packets ([`packets`]) gets the same questions by the same rules.
//!
//! # Laws
//!
//! 1. Every ticket is answered exactly once, by an answer or by a failure.
//! 2. An answer is accepted only if it fits the oldest question: its kind, and its key if it
//!    contains one. Anything else is [`Broken`], and the connection must be closed, because further
//!    answers cannot be assigned.
//! 3. Nothing is sent twice.

mod packets;
mod questions;

use std::collections::VecDeque;

use packets::Packets;
use proto::answer::{self, Answer, Parsed, Value};
use proto::reply::{CRLF, is_only_deleted};
use proto::text::Words;
use proto::{KeyBuf, base64};
pub(crate) use questions::is_plain_get;
use questions::{Place, Question, Questions};

use crate::dialect::{self, Dialect, ProbeAnswers};
use crate::reply::{Outcome, Reply, write_key_words};
use crate::request::Request;
use crate::sink::{PROBE, ReplyObserver, Ticket};
use crate::wire;
use proto::{Command, Failure};
use spans::OpenSpan;

/// Maximum number of keys in one get line. A server keeps the whole reply of a line in memory.
const LINE_KEYS_MAX: u32 = 64;

/// Maximum bytes of a value for which memory is not reserved first.
const SMALL_VALUE_BYTES: usize = 4096;

/// The server sent something that does not answer its question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Broken {
    /// An error after which the server may read the refused data block as commands.
    Cut,
    /// Bytes that are not a reply of the protocol, or a value longer than allowed.
    Garbage,
    /// An answer of a kind, or to a key, that was not requested.
    Mismatch,
    /// An answer without a question.
    Unsolicited,
}

/// The span of an outstanding question.
#[derive(Debug)]
struct Traced {
    span: OpenSpan,
    /// The answer to the preceding line, which announced its context, is still outstanding.
    awaits_mark: bool,
}

/// Requests in, bytes out; bytes in, replies out.
#[derive(Debug, Default)]
pub(crate) struct Pipeline {
    /// Bytes to send; those before `sent` have left.
    out: Vec<u8>,
    sent: usize,
    /// The number of keys on the get line at the end of `out`, which has no line end yet; 0: no
    /// such line.
    open_keys: u32,
    open_op: Option<Command>,
    questions: Questions,
    /// The questions of the oldest line before its latest value. Its end answers them.
    skipped: Questions,
    /// The last value of a line has come, but not its end. The time of that question.
    awaits_end: Option<u64>,
    /// The ends in `out` of requests with a value, if needed: see [`Self::mark_ends`].
    ends: Option<VecDeque<usize>>,
    /// Set if it uses packets.
    packets: Option<Packets>,
    /// Resends gets of a refused line, each on its own line.
    asks_apart: bool,
    /// The server's answers to the probe, while it is the oldest question.
    probing: Option<ProbeAnswers>,
    /// The server's observed dialect.
    seen: Option<Dialect>,
    /// Spans of traced questions, oldest first.
    traced: VecDeque<Traced>,
}

impl Pipeline {
    /// The number of questions without an answer.
    pub(crate) fn len(&self) -> usize {
        self.skipped.len() + self.questions.len()
    }

    /// A pipeline of lines over a connection.
    pub(crate) fn text() -> Self {
        Self { asks_apart: true, ..Self::default() }
    }

    /// A pipeline of packets of the binary protocol.
    pub(crate) fn binary() -> Self {
        Self { packets: Some(Packets::default()), ..Self::default() }
    }

    /// Returns true if no answer is outstanding.
    pub(crate) fn is_empty(&self) -> bool {
        self.oldest_us().is_none()
    }

    /// The time of the oldest question whose answer is not complete, in microseconds.
    pub(crate) fn oldest_us(&self) -> Option<u64> {
        let at_us = |questions: &Questions| questions.oldest().map(|asked| asked.at_us);
        at_us(&self.skipped).or(self.awaits_end).or_else(|| at_us(&self.questions))
    }

    /// Bytes that the socket has not accepted yet.
    pub(crate) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Makes [`Self::outgoing`] end after each request with a value from now on. TLS sends it as
    /// separate records, since memcached (1.6.18) forgets bytes behind a value in a record until
    /// another record comes.
    pub(crate) fn mark_ends(&mut self) {
        self.ends.get_or_insert_default();
    }

    /// Makes room for a request with a large value. Returns false without memory.
    pub(crate) fn reserve(&mut self, request: &Request<'_>) -> bool {
        let len = request.value.len();
        len <= SMALL_VALUE_BYTES || self.out.try_reserve(len + SMALL_VALUE_BYTES).is_ok()
    }

    /// The questions without an answer.
    pub(crate) fn questions(&self) -> &Questions {
        &self.questions
    }

    /// Sends a request for a pool; the answer goes to `ticket`.
    #[inline(always)]
    pub(crate) fn ask(&mut self, request: &Request<'_>, ticket: Ticket, pool: u16, now_us: u64) {
        let is_get = is_plain_get(request.op);
        let joins = is_get && self.open_op == Some(request.op) && self.open_keys < LINE_KEYS_MAX;
        if self.packets.is_some() {
            return self.ask_packet(request, joins, ticket, pool, now_us);
        }
        if joins {
            self.open_keys += 1;
            self.out.push(b' ');
            short::append(&mut self.out, request.key);
            if let Some(last) = self.questions.newest_mut() {
                last.place = Place::Within;
            }
        } else {
            self.begin_line(request, is_get);
        }
        self.questions.push(request, ticket, pool, now_us, 0);
    }

    /// Writes a request, or starts a line of gets.
    #[inline(never)]
    fn begin_line(&mut self, request: &Request<'_>, is_get: bool) {
        self.end_line();
        if is_get {
            let word: &[u8] = if request.op == Command::Get { b"get " } else { b"gets " };
            wire::word_and_key(&mut self.out, word, request.key);
            (self.open_op, self.open_keys) = (Some(request.op), 1);
        } else {
            wire::write(&mut self.out, request);
            if let Some(ends) = self.ends.as_mut().filter(|_| request.op.has_value()) {
                ends.push_back(self.out.len());
            }
        }
    }

    /// Sends the request of `span` like [`Self::ask`]. A server that accepts contexts gets this one
    /// in a preceding line, which has a separate answer. No other question shares its line.
    #[cold]
    pub(crate) fn ask_traced(
        &mut self,
        span: OpenSpan,
        request: &Request<'_>,
        ticket: Ticket,
        pool: u16,
        at_us: u64,
    ) {
        self.end_line();
        let awaits_mark = self.packets.is_none() && self.seen == Some(Dialect::Tracing);
        if awaits_mark {
            wire::announce(&mut self.out, span.context());
        }
        self.ask(request, ticket, pool, at_us);
        self.end_line();
        if let Some(asked) = self.questions.newest_mut() {
            asked.place = Place::Traced;
        }
        self.traced.push_back(Traced { span, awaits_mark });
    }

    /// Returns true if the next answer is that to the line which announced the oldest question's
    /// context.
    #[cold]
    fn takes_mark(&mut self) -> bool {
        let oldest = self.traced.front_mut();
        oldest.is_some_and(|oldest| std::mem::take(&mut oldest.awaits_mark))
    }

    /// The server's observed dialect, once it has answered [`Self::probe`].
    pub(crate) fn seen(&self) -> Option<Dialect> {
        self.seen
    }

    /// Sends the probe, before any other request.
    pub(crate) fn probe(&mut self, at_us: u64) {
        debug_assert!(self.is_empty(), "an answer to another question is no answer to the probe");
        self.end_line();
        let start = self.out.len();
        self.out.extend_from_slice(dialect::PROBE);
        if let Some(ends) = &mut self.ends {
            ends.push_back(start + dialect::PROBE_BLOCK_END);
        }
        self.probing = Some(ProbeAnswers::default());
        self.questions.push(&Request::new(Command::Version, b""), PROBE, 0, at_us, 0);
    }

    /// Processes answers to the probe before the last.
    #[cold]
    fn take_heard(&mut self, answer: &Answer<'_>) -> Result<(), Broken> {
        let heard = self.probing.as_mut().is_some_and(|heard| heard.take(answer));
        if heard { Ok(()) } else { Err(Broken::Mismatch) }
    }

    /// The last command sent.
    pub(crate) fn last_op(&self) -> Option<Command> {
        self.questions.newest().map(|asked| asked.op)
    }

    /// Moves all questions to `other`, which sends them. Returns true if there are any.
    pub(crate) fn ask_again(&mut self, other: &mut Self, now_us: u64) -> bool {
        let has_any = !(self.skipped.is_empty() && self.questions.is_empty());
        for questions in [&mut self.skipped, &mut self.questions] {
            while let Some(asked) = questions.oldest() {
                let (op, ticket, pool) = (asked.op, asked.ticket, asked.pool);
                other.ask(&Request::new(op, questions.oldest_key()), ticket, pool, now_us);
                questions.pop();
            }
        }
        has_any
    }

    fn end_line(&mut self) {
        if self.open_op.take().is_some() {
            self.open_keys = 0;
            if self.packets.is_none() {
                self.out.extend_from_slice(CRLF);
            }
        }
    }

    /// The bytes to send now.
    pub(crate) fn outgoing(&mut self) -> &[u8] {
        self.end_line();
        let end = self.ends.as_ref().and_then(|ends| ends.front().copied());
        self.out.get(self.sent..end.unwrap_or(self.out.len())).unwrap_or_default()
    }

    /// Records that `count` bytes have left.
    pub(crate) fn has_sent(&mut self, count: usize) {
        self.sent += count;
        if let Some(ends) = &mut self.ends {
            let sent = self.sent;
            ends.pop_front_if(|end| *end <= sent);
        }
        if self.sent >= self.out.len() {
            self.sent = 0;
            // Memory of a large value is freed.
            if self.out.capacity() > OUT_KEPT { self.out = Vec::new() } else { self.out.clear() }
        }
    }

    /// Reads answers from `input` and passes them to `sink`. Returns the number of used bytes, and
    /// the total size of an incomplete reply (0: unknown).
    pub(crate) fn receive(
        &mut self,
        input: &[u8],
        value_bytes_max: u32,
        sink: &mut impl ReplyObserver,
    ) -> Result<(usize, usize), Broken> {
        if self.packets.is_some() {
            return self.receive_packets(input, value_bytes_max, sink);
        }
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            if rest.is_empty() {
                return Ok((used, 0));
            }
            match answer::parse(rest, value_bytes_max) {
                Parsed::Bad => return Err(Broken::Garbage),
                Parsed::Incomplete { total } => return Ok((used, total)),
                Parsed::Answer { answer, consumed } => {
                    self.take(&answer, sink)?;
                    used += consumed;
                }
            }
        }
    }

    /// Fails every question: those from before `late_us` with `late`, the others with `other`.
    pub(crate) fn fail(
        &mut self,
        late_us: u64,
        late: Failure,
        other: Failure,
        words: &[u8],
        sink: &mut impl ReplyObserver,
    ) -> u32 {
        let mut count_late = 0;
        while let Some(oldest) = self.skipped.oldest().or_else(|| self.questions.oldest()) {
            let is_late = oldest.at_us <= late_us;
            count_late += u32::from(is_late);
            let reply = Reply::failed(if is_late { late } else { other }, words);
            if !self.finish_skipped(&reply, sink) {
                self.finish(&reply, sink);
            }
        }
        let asks_apart = self.asks_apart;
        *self = if self.packets.is_some() { Self::binary() } else { Self::default() };
        self.asks_apart = asks_apart;
        count_late
    }

    #[inline]
    fn take(&mut self, answer: &Answer<'_>, sink: &mut impl ReplyObserver) -> Result<(), Broken> {
        if self.awaits_end.is_some() {
            return self.take_end(answer, sink);
        }
        let Some(oldest) = self.questions.oldest() else { return Err(Broken::Unsolicited) };
        let op = oldest.op;
        if oldest.place == Place::Traced && self.takes_mark() {
            return is_mark(answer);
        }
        let is_get = matches!(op, Command::Get | Command::Gets | Command::Gat | Command::Gats);
        match answer {
            Answer::Value(value) if is_get || op == Command::LeaseGet => {
                self.take_value(value, sink)
            }
            Answer::End if is_get || op == Command::LeaseGet => {
                self.answer_line(&Reply::of(Outcome::NotFound), sink);
                Ok(())
            }
            Answer::Error(_) | Answer::ClientError(_) | Answer::ServerError(_) => {
                self.take_error(op, answer, sink)
            }
            _ => self.take_other(op, answer, sink),
        }
    }

    /// Processes the end of a line whose last key has a value.
    fn take_end(
        &mut self,
        answer: &Answer<'_>,
        sink: &mut impl ReplyObserver,
    ) -> Result<(), Broken> {
        match (answer, self.skipped.oldest().map(|skipped| skipped.op)) {
            // Without skipped keys, an error belongs to no question.
            (Answer::End, _) | (Answer::ServerError(_), None) => {
                self.answer_line(&Reply::of(Outcome::NotFound), sink);
                Ok(())
            }
            (Answer::Error(_) | Answer::ClientError(_) | Answer::ServerError(_), Some(op)) => {
                self.take_error(op, answer, sink)
            }
            _ => Err(Broken::Mismatch),
        }
    }

    #[cold]
    fn take_error(
        &mut self,
        op: Command,
        answer: &Answer<'_>,
        sink: &mut impl ReplyObserver,
    ) -> Result<(), Broken> {
        let reply = match answer {
            _ if self.probing.is_some() => return self.take_heard(answer),
            Answer::ClientError(_) if self.asks_apart && self.shares_line() => {
                self.ask_separately();
                return Ok(());
            }
            Answer::ClientError(words) => Reply::failed(Failure::ClientError, words),
            // An unknown command says more about the server than about the request.
            Answer::Error(words) => Reply::failed(Failure::RemoteError, words),
            Answer::ServerError(words) if is_delete(op) && is_only_deleted(words) => {
                Reply { value: words, ..Reply::of(Outcome::OnlyDeleted) }
            }
            Answer::ServerError(words) => Reply::failed(failure_of(words), words),
            _ => return Err(Broken::Mismatch),
        };
        self.answer_line(&reply, sink);
        if dialect::stays_in_step(op, answer, self.seen) { Ok(()) } else { Err(Broken::Cut) }
    }

    /// Returns true if the oldest line has other keys than the oldest question's.
    fn shares_line(&self) -> bool {
        let is_within = |oldest: &Question| !oldest.ends_line();
        !self.skipped.is_empty() || self.questions.oldest().is_some_and(is_within)
    }

    /// Resends the unanswered keys of the oldest line, one key per line: a server refuses a line
    /// for one of its keys, which may be another client's (for example one that the proxy may not
    /// read). Gets change nothing.
    fn ask_separately(&mut self) {
        let mut ends_line = self.awaits_end.take().is_some();
        while !ends_line && let Some(asked) = self.questions.oldest() {
            ends_line = asked.ends_line();
            self.questions.move_oldest(&mut self.skipped);
        }
        let mut keys = std::mem::take(&mut self.skipped);
        while let Some(&Question { op, ticket, pool, at_us, .. }) = keys.oldest() {
            self.end_line();
            self.ask(&Request::new(op, keys.oldest_key()), ticket, pool, at_us);
            keys.pop();
        }
        self.end_line();
    }

    /// Processes the answers of one line.
    fn take_other(
        &mut self,
        op: Command,
        answer: &Answer<'_>,
        sink: &mut impl ReplyObserver,
    ) -> Result<(), Broken> {
        let plain = |outcome| Reply::of(outcome);
        let mut with_key = Vec::new();
        let reply = match (answer, op) {
            (Answer::Stored, op) if op.has_value() && !op.is_meta() => plain(Outcome::Stored),
            (Answer::NotStored, op) if op.has_value() && !op.is_meta() => plain(Outcome::NotStored),
            (Answer::Exists, Command::Cas) => plain(Outcome::Exists),
            (Answer::StaleStored, Command::LeaseSet) => plain(Outcome::StaleStored),
            (
                Answer::NotFound,
                Command::Cas
                | Command::Delete
                | Command::Incr
                | Command::Decr
                | Command::Touch
                | Command::MetaInfo
                | Command::LeaseSet,
            ) => plain(Outcome::NotFound),
            (Answer::Deleted, Command::Delete) => plain(Outcome::Deleted),
            // To a delete with a hold-off, which is an `md`.
            (Answer::Meta(meta), Command::Delete) if meta.flags.line().is_empty() => {
                match meta.code {
                    answer::MetaCode::Hd => plain(Outcome::Deleted),
                    answer::MetaCode::Nf => plain(Outcome::NotFound),
                    _ => return Err(Broken::Mismatch),
                }
            }
            (Answer::Touched, Command::Touch) => plain(Outcome::Touched),
            (Answer::Number(number), Command::Incr | Command::Decr) => {
                Reply { number: *number, ..plain(Outcome::Number) }
            }
            (Answer::Ok, Command::FlushAll) => plain(Outcome::Ok),
            (Answer::Meta(_), Command::Version) => return self.take_heard(answer),
            (Answer::Version(text), Command::Version) => {
                self.seen = self.probing.take().map(ProbeAnswers::dialect).or(self.seen);
                Reply { value: text, ..plain(Outcome::Version) }
            }
            (Answer::Meta(meta), op) if op.is_meta() => {
                let value = meta.value.unwrap_or_default();
                let is_me = op == Command::MetaDebug;
                // `me` answers ME or EN, and no other command answers ME; only mg and ma have
                // values.
                if is_me != (meta.code == answer::MetaCode::Me) && meta.code != answer::MetaCode::En
                    || meta.code == answer::MetaCode::Mn
                    || !self.is_of_oldest(is_me && meta.code == answer::MetaCode::Me, meta.flags)
                {
                    return Err(Broken::Mismatch);
                }
                let words = self.words_of_oldest(meta.flags, &mut with_key);
                Reply { value, words, ..plain(Outcome::Meta(meta.code)) }
            }
            (Answer::Lease { key, token, flags, value }, Command::LeaseGet) => {
                if *key != self.questions.oldest_key() {
                    return Err(Broken::Mismatch);
                }
                Reply { key, flags: *flags, number: *token, value, ..plain(Outcome::Lease) }
            }
            (Answer::MetaInfo { key, facts }, Command::MetaInfo) => {
                if *key != self.questions.oldest_key() {
                    return Err(Broken::Mismatch);
                }
                Reply { key, words: facts, ..plain(Outcome::MetaInfo) }
            }
            (Answer::End, Command::MetaInfo) => plain(Outcome::NotFound),
            _ => return Err(Broken::Mismatch),
        };
        let at_us = self.questions.oldest().map(|oldest| oldest.at_us);
        self.finish(&reply, sink).ok_or(Broken::Unsolicited)?;
        // mcrouter's lease-get and metaget end with a line END after a hit.
        let has_end = matches!(answer, Answer::Lease { .. } | Answer::MetaInfo { .. });
        self.awaits_end = at_us.filter(|_| has_end);
        Ok(())
    }

    /// Processes a value: a hit of the oldest question with this key on the oldest line. It skips
    /// those before it.
    #[inline]
    fn take_value(
        &mut self,
        found: &Value<'_>,
        sink: &mut impl ReplyObserver,
    ) -> Result<(), Broken> {
        // No question is skipped until it is known whose value this is.
        let Some(skipped) = self.questions.before(found.key) else {
            return Err(Broken::Mismatch);
        };
        let op = self.questions.oldest().map(|oldest| oldest.op);
        let wants_cas = matches!(op, Some(Command::Gets | Command::Gats));
        if wants_cas != found.cas.is_some() {
            return Err(Broken::Mismatch);
        }
        for _ in 0..skipped {
            self.questions.move_oldest(&mut self.skipped);
        }
        let reply = Reply {
            key: found.key,
            flags: found.flags,
            number: found.cas.unwrap_or(0),
            value: found.value,
            ..Reply::of(Outcome::Found)
        };
        let at_us = self.questions.oldest().map(|oldest| oldest.at_us);
        let ends_line = self.finish(&reply, sink).ok_or(Broken::Mismatch)?;
        self.awaits_end = at_us.filter(|_| ends_line);
        Ok(())
    }

    /// Gives this answer to all questions of the oldest line without one.
    fn answer_line(&mut self, reply: &Reply<'_>, sink: &mut impl ReplyObserver) {
        while self.finish_skipped(reply, sink) {}
        if self.awaits_end.take().is_some() {
            return;
        }
        while let Some(ends_line) = self.finish(reply, sink) {
            if ends_line {
                return;
            }
        }
    }

    /// Returns true if the key and the opaque in a meta reply, if present, are those of the oldest
    /// question.
    fn is_of_oldest(&self, begins_with_key: bool, mut told: Words<'_>) -> bool {
        let Some((_, key, words)) = self.questions.with_keys().next() else { return false };
        let mut asked = Words::new(words);
        if begins_with_key {
            return told.next().is_some_and(|word| is_key(word, key));
        }
        told.all(|word| match word {
            [b'k', told @ ..] => is_key(told, key),
            [b'O', ..] => asked.any(|mine| mine == word),
            _ => true,
        })
    }

    /// The words of a meta reply to the oldest question, with the key that the server was not asked
    /// for.
    fn words_of_oldest<'a>(&self, told: Words<'a>, with_key: &'a mut Vec<u8>) -> &'a [u8] {
        match self.questions.with_keys().next() {
            Some((question, key, asked)) if dialect::adds_key(question.op, key, asked) => {
                add_key(with_key, told, Words::new(asked), key);
                with_key
            }
            _ => told.line(),
        }
    }

    /// Answers the oldest skipped question. Returns false if there is none.
    fn finish_skipped(&mut self, reply: &Reply<'_>, sink: &mut impl ReplyObserver) -> bool {
        let Some(&Question { ticket, at_us, op, pool, .. }) = self.skipped.oldest() else {
            return false;
        };
        sink.on_reply(op, self.skipped.oldest_key(), pool, at_us, reply);
        self.skipped.pop();
        sink.answer(ticket, reply);
        true
    }

    /// Answers the oldest question. Returns whether its line ends with it; `None` if there is no
    /// question.
    #[inline]
    fn finish(&mut self, reply: &Reply<'_>, sink: &mut impl ReplyObserver) -> Option<bool> {
        let oldest = self.questions.oldest()?;
        let &Question { ticket, at_us, op, pool, place, .. } = oldest;
        let ends_line = oldest.ends_line();
        if place == Place::Traced {
            end_span(&mut self.traced, op, reply.outcome);
        }
        sink.on_reply(op, self.questions.oldest_key(), pool, at_us, reply);
        self.questions.pop();
        sink.answer(ticket, reply);
        Some(ends_line)
    }
}

/// Returns true if this may answer a line that announces a context: it has no content, or it is an
/// error, after which the connection is in step, since the line has no data block.
#[cold]
fn is_mark(answer: &Answer<'_>) -> Result<(), Broken> {
    match answer {
        Answer::Meta(meta) if meta.code == answer::MetaCode::Mn => Ok(()),
        Answer::ClientError(_) | Answer::Error(_) | Answer::ServerError(_) => Ok(()),
        _ => Err(Broken::Mismatch),
    }
}

/// Ends the span of the oldest traced question.
#[cold]
fn end_span(traced: &mut VecDeque<Traced>, op: Command, outcome: Outcome) {
    if let Some(Traced { mut span, .. }) = traced.pop_front() {
        outcome.describe(op, &mut span);
        span.end();
    }
}

/// Appends the words of a meta reply, and the key in base64, which the server was not asked for. It
/// has its place among the `asked` words.
#[cold]
fn add_key(out: &mut Vec<u8>, told: Words<'_>, asked: Words<'_>, key: &[u8]) {
    let mut told = told.filter(|word| *word != b"b").peekable();
    let push = |out: &mut Vec<u8>, word: &[u8]| {
        out.push(b' ');
        out.extend_from_slice(word);
    };
    let mut is_added = false;
    for word in asked {
        if word.first() == Some(&b'k') {
            if !std::mem::replace(&mut is_added, true) {
                write_key_words(out, key, true);
            }
        } else if let Some(fact) = told.next_if(|fact| fact.first() == word.first()) {
            push(out, fact);
        }
    }
    // Those that no flag asks for.
    told.for_each(|mark| push(out, mark));
}

/// True if the server's key is this one, plain or in base64, with which it may be stored.
fn is_key(told: &[u8], key: &[u8]) -> bool {
    let mut buffer = KeyBuf::default();
    told == key || base64::decode(told, &mut buffer).is_some_and(|told| told == key)
}

/// Capacity of the empty output buffer that is kept, in bytes.
const OUT_KEPT: usize = 64 * 1024;

const fn is_delete(op: Command) -> bool {
    matches!(op, Command::Delete | Command::MetaDelete)
}

/// The failure of an error line. mcrouter's numbers distinguish those of `SERVER_ERROR`.
fn failure_of(words: &[u8]) -> Failure {
    match words {
        [b'3', b'0', b'7', b' ', ..] => Failure::Busy,
        [b'3', b'0', b'2', b' ', ..] => Failure::TryAgain,
        [b'3', b'0', b'1', b' ', ..] => Failure::Shutdown,
        _ => Failure::RemoteError,
    }
}

#[cfg(test)]
mod tests;
