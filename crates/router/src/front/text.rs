//! Lines of text: classic and meta commands.

use net::{Flow, Input};
use proto::number::parse_u32;
use proto::text::{self, AdminCommand, BadRequest, GetLine, KeyToken, Parsed, Words};
use proto::{COMPATIBLE_VERSION, Error, KeyBuf, StoreMode, meta, reply};
use upstream::{Command, Failure, Outcome, Reply, Request};
use watch::hub::Events;

use super::slot::{Kind, Slot};
use super::store::{Block, Refused};
use super::{Front, Session, Step, compressed, format};

/// The prefix of keys that this program answers without a server.
pub(crate) const ADMIN_PREFIX: &[u8] = b"__mcrouter__.";

impl Front {
    /// Reads one command.
    #[inline(always)]
    pub(super) fn command(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        // Most are gets, of clients without a login.
        if session.client_login.is_none()
            && let Some((line, consumed)) = text::retrieval(input.bytes())
        {
            input.consume(consumed);
            return self.retrieve(session, line, input);
        }
        self.any_command(session, input)
    }

    #[inline(never)]
    fn any_command(&mut self, session: &mut Session, input: &mut Input<'_>) -> Step {
        let mut key_buf = KeyBuf::new();
        let bytes = input.bytes();
        let parsed = match GetLine::metaget(bytes) {
            Some((line, consumed)) => {
                Parsed::Request { request: text::Request::Get(line), consumed }
            }
            None => text::parse(bytes, &mut key_buf),
        };
        if session.client_login.is_some()
            && let Some(step) = self.guard_line(session, input, &parsed)
        {
            return step;
        }
        match parsed {
            Parsed::Incomplete => Step::Stop(Flow::NeedInput),
            Parsed::LineTooLong | Parsed::Http => {
                session.closes = true;
                Step::Next
            }
            Parsed::Bad(bad) => {
                let line = bytes.get(..bad.consumed).unwrap_or_default();
                if let Some(len) = compressed::length(line) {
                    return self.unpack(session, input, bad.consumed, len);
                }
                self.refuse(session, input, &bad);
                Step::Next
            }
            Parsed::Request { request, consumed } => {
                self.request(session, input, request, consumed)
            }
        }
    }

    fn refuse(&mut self, session: &mut Session, input: &mut Input<'_>, bad: &BadRequest) {
        let line = input.bytes().get(..bad.consumed).unwrap_or_default();
        let cluster = if bad.error == Error::Command { self.cluster(line) } else { None };
        input.consume(bad.consumed);
        session.swallow = bad.swallow;
        if !bad.silent {
            let answer = cluster.as_deref().unwrap_or_else(|| bad.error.line());
            self.queues.get(session.queue).push_ready(answer);
        }
    }

    fn request(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        request: text::Request<'_>,
        consumed: usize,
    ) -> Step {
        match request {
            text::Request::Get(line) => {
                input.consume(consumed);
                return self.retrieve(session, line, input);
            }
            text::Request::Store(store) => return self.store(session, input, consumed, &store),
            text::Request::Meta(meta) => return self.meta(session, input, consumed, &meta),
            _ => input.consume(consumed),
        }
        let queue = session.queue;
        match request {
            text::Request::Arithmetic(count) => {
                let op = if count.decrement { Command::Decr } else { Command::Incr };
                let request = Request { number: count.delta, ..Request::new(op, count.key) };
                self.ask(session, count.noreply, &request);
            }
            text::Request::Delete { key, noreply, secs, tells_kept } => {
                let exptime = if self.shared.options.delete_hold_off { i64::from(secs) } else { 0 };
                self.ask(
                    session,
                    noreply,
                    &Request { exptime, tells_kept, ..Request::new(Command::Delete, key) },
                );
            }
            text::Request::Touch { key, exptime, noreply } => {
                self.ask(
                    session,
                    noreply,
                    &Request { exptime, ..Request::new(Command::Touch, key) },
                );
            }
            text::Request::FlushAll { exptime, noreply } => {
                let exptime = exptime.unwrap_or(0);
                let request = Request { exptime, ..Request::new(Command::FlushAll, b"") };
                self.flush(queue, flush_slot(noreply), &request);
            }
            text::Request::FlushPrefix { prefix, noreply } => {
                let request = Request::new(Command::FlushAll, prefix);
                self.flush(queue, flush_slot(noreply), &request);
            }
            text::Request::Version => {
                let mut line = Vec::new();
                reply::write_version(&mut line, COMPATIBLE_VERSION);
                self.tell(queue, false, &line);
            }
            text::Request::Quit => session.closes = true,
            text::Request::Admin(admin) if admin.command == AdminCommand::Stats => {
                let answer = self.shared.stats(admin.words.line());
                self.tell(queue, false, &answer);
            }
            text::Request::Admin(admin) if admin.command == AdminCommand::Watch => {
                match Events::of(admin.words, Events::PROXY_REQUESTS) {
                    Some(events) => session.asks_to_watch = Some(events),
                    None => self.tell(queue, false, Error::Command.line()),
                }
            }
            text::Request::Admin(admin) if admin.command == AdminCommand::Verbosity => {
                let mut words = admin.words;
                let is_level = words.next().and_then(parse_u32).is_some();
                let answer = if is_level { reply::OK } else { Error::Format.line() };
                self.tell(queue, admin.noreply, answer);
            }
            _ => self.tell(queue, false, Error::Command.line()),
        }
        Step::Next
    }

    /// A flush, which goes to every server, if the operator allows it.
    fn flush(&mut self, queue: u32, slot: Slot, request: &Request<'_>) {
        if !self.shared.options.enable_flush_cmd {
            self.tell(queue, slot.is_mute, b"SERVER_ERROR Command disabled\r\n");
            return;
        }
        let ticket = self.queues.push(queue, slot, b"");
        self.core.submit_to_all(request, ticket);
    }

    /// The answer to Amazon's request for the servers, if it is enabled.
    #[cold]
    fn cluster(&self, line: &[u8]) -> Option<Vec<u8>> {
        if line.trim_ascii() != b"config get cluster" {
            return None;
        }
        let current = self.shared.current();
        let members = current.cluster.as_deref()?;
        Some(discovery::answer(current.generation, members))
    }

    /// A reply that needs no server.
    pub(super) fn tell(&mut self, queue: u32, is_mute: bool, bytes: &[u8]) {
        if !is_mute {
            self.queues.get(queue).push_ready(bytes);
        }
    }

    /// A command of one line with one reply.
    fn ask(&mut self, session: &Session, is_mute: bool, request: &Request<'_>) {
        let slot = Slot::new(request.op, Kind::Whole).mute(is_mute);
        let Session { client, listener, .. } = *session;
        self.submit(session.queue, slot, &Request { client, listener, ..*request });
    }

    /// A retrieval line. A complete line with one key, the most frequent kind, is one slot.
    #[inline]
    fn retrieve(&mut self, session: &mut Session, line: GetLine, input: &mut Input<'_>) -> Step {
        let bytes = input.bytes();
        if let KeyToken::Key { key, consumed } = { line }.next_key(bytes)
            && bytes.get(consumed..).is_some_and(|rest| rest.starts_with(reply::CRLF))
            && !key.starts_with(ADMIN_PREFIX)
        {
            input.consume(consumed + reply::CRLF.len());
            let (op, client, listener) = (retrieval(&line), session.client, session.listener);
            let exptime = line.exptime.unwrap_or(0);
            let request = Request { exptime, client, listener, ..Request::new(asked(op), key) };
            self.submit(session.queue, Slot::new(op, Kind::OnlyKey), &request);
            return Step::Next;
        }
        self.keys(session, line, input)
    }

    /// The keys of a retrieval line, as many as there is room for.
    pub(super) fn keys(
        &mut self,
        session: &mut Session,
        mut line: GetLine,
        input: &mut Input<'_>,
    ) -> Step {
        session.line = None;
        let op = retrieval(&line);
        loop {
            if self.queues.is_full(session.queue) || !self.queues.admits(session.queue) {
                session.line = Some(line);
                return Step::Next;
            }
            match line.next_key(input.bytes()) {
                KeyToken::Key { key, consumed } => {
                    input.consume(consumed);
                    if let Some(client) = &session.client_login
                        && client.forbids_key(&line, key)
                    {
                        self.count_denied();
                        // As after a key that is too long: earlier hits stay, the rest of the line
                        // is dropped.
                        line.refuse_rest(Error::Permission);
                        continue;
                    }
                    let slot = Slot::new(op, Kind::Key);
                    if key.starts_with(ADMIN_PREFIX) {
                        self.admin_key(session.queue, slot, key);
                        continue;
                    }
                    let (exptime, listener) = (line.exptime.unwrap_or(0), session.listener);
                    let client = session.client;
                    let asked = Request::new(asked(op), key);
                    let request = Request { exptime, client, listener, ..asked };
                    self.submit(session.queue, slot, &request);
                }
                KeyToken::End { consumed } => {
                    input.consume(consumed);
                    self.queues.get(session.queue).push_end();
                    return Step::Next;
                }
                KeyToken::Bad { error, consumed } => {
                    input.consume(consumed);
                    self.queues.get(session.queue).push_ready(error.line());
                    return Step::Next;
                }
                KeyToken::Incomplete { consumed } => {
                    input.consume(consumed);
                    session.line = Some(line);
                    return Step::Stop(Flow::NeedInput);
                }
            }
        }
    }

    /// `get __mcrouter__.what`
    pub(super) fn admin_key(&mut self, queue: u32, slot: Slot, key: &[u8]) {
        let what = key.strip_prefix(ADMIN_PREFIX).unwrap_or_default();
        let answer = crate::admin::answer(&self.shared, &self.core, what);
        let answer = answer.map_err(|refused| refused.to_string());
        self.queues.get(queue).push_written(slot, |heap| {
            let reply = match &answer {
                Ok(text) => Reply { key, value: text.as_bytes(), ..Reply::of(Outcome::Found) },
                Err(why) => Reply::failed(Failure::ClientError, why.as_bytes()),
            };
            format::reply(heap, &slot, (0, 0), &reply)
        });
    }

    /// A meta command: passed on with its words, except `q`, which this program applies.
    fn meta(
        &mut self,
        session: &mut Session,
        input: &mut Input<'_>,
        consumed: usize,
        meta: &meta::Request<'_>,
    ) -> Step {
        let mut value: &[u8] = b"";
        let op = match meta.command {
            meta::Command::Arithmetic { .. } => Command::MetaArithmetic,
            meta::Command::Debug => Command::MetaDebug,
            meta::Command::Delete => Command::MetaDelete,
            meta::Command::Get => Command::MetaGet,
            meta::Command::NoOp => {
                input.consume(consumed);
                self.announce(session, meta.flags);
                let answer = if compressed::is_asked(meta.flags) {
                    compressed::TAKEN
                } else {
                    meta::reply::noop(meta.flags, self.tracer.takes_contexts())
                };
                self.tell(session.queue, false, answer);
                return Step::Next;
            }
            meta::Command::Set { len, .. } => {
                match self.block(session, input, consumed, len, reply::CRLF) {
                    Block::Whole(block) => value = block,
                    Block::Refused(why) => {
                        if why == Refused::TooLarge && is_plain(meta) {
                            self.delete_refused(session, meta.key);
                        }
                        self.tell(session.queue, false, why.line());
                        return Step::Next;
                    }
                    Block::Wait => return Step::Stop(Flow::NeedInput),
                }
                Command::MetaSet
            }
        };
        if op != Command::MetaSet {
            input.consume(consumed);
        }
        let is_quiet = meta.options.quiet;
        let is_delete = op == Command::MetaDelete;
        let tells_kept = is_delete && meta.options.tells_kept;
        let unkept = is_delete && meta.options.unkept;
        let has_hint = tells_kept || unkept;
        let mut words = std::mem::take(&mut self.words);
        if is_quiet || has_hint {
            without(if has_hint { b"qP" } else { b"q" }, meta.flags, &mut words);
        }
        let line =
            if is_quiet || has_hint { &words[..] } else { meta.flags.line().trim_ascii_start() };
        let base64 = meta.options.base64;
        let Session { client, listener, .. } = *session;
        let asked = Request::new(op, meta.key);
        let asked = Request { tells_kept, unkept, ..asked };
        let request = Request { value, words: line, base64, client, listener, ..asked };
        let slot = Slot::new(op, Kind::Whole).quiet(is_quiet);
        if is_delete && meta.options.under {
            self.flush(session.queue, slot, &request);
        } else {
            self.submit(session.queue, slot, &request);
        }
        self.words = words;
        Step::Next
    }
}

/// Returns true if the command is a set without a condition.
fn is_plain(meta: &meta::Request<'_>) -> bool {
    let is_set = matches!(meta.command, meta::Command::Set { mode: StoreMode::Set, .. });
    is_set && meta.options.compare_cas.is_none() && meta.options.lease.is_none()
}

/// The slot of a classic flush.
const fn flush_slot(is_mute: bool) -> Slot {
    Slot::new(Command::FlushAll, Kind::Whole).mute(is_mute)
}

/// The command for each key of a retrieval line.
#[inline]
const fn retrieval(line: &GetLine) -> Command {
    match (line.exptime, line.with_cas) {
        _ if line.with_lease => Command::LeaseGet,
        _ if line.with_info => Command::MetaInfo,
        (None, false) => Command::Get,
        (None, true) => Command::Gets,
        (Some(_), false) => Command::Gat,
        (Some(_), true) => Command::Gats,
    }
}

/// The command for servers: no open server knows `metaget`, but all that speak meta know `me`.
#[inline]
const fn asked(op: Command) -> Command {
    if matches!(op, Command::MetaInfo) { Command::MetaDebug } else { op }
}

/// The words without those with these letters, which this program applies.
fn without(letters: &[u8], flags: Words<'_>, words: &mut Vec<u8>) {
    words.clear();
    for word in flags.filter(|word| !word.first().is_some_and(|first| letters.contains(first))) {
        if !words.is_empty() {
            words.push(b' ');
        }
        words.extend_from_slice(word);
    }
}
