//! get, gets, gat, gats and the line of lease-get: one key at a time, each value as it is found.

mod lease;

use engine::{Cas, Key, Miss};
use net::{Flow, Input, Output};
use proto::Error;
use proto::reply;
use proto::text::{GetLine, KeyToken};
use store::{Item, Pin};

use super::context::Context;
use super::pending_reply::PendingReply;
use super::permit;
use super::scan::GET;
use super::state::{Retrieval, Session, State, Step, Then};
use super::value_out::{self, Outgoing, outgoing};
use crate::prefixes::Kind;

/// Keys of one line that count as one request against the connection's share.
const KEYS_PER_REQUEST: usize = 64;

/// The contribution of one key to the reply of its line.
#[must_use]
pub(super) enum KeyReply {
    /// Everything is written; nothing for a miss.
    Written,
    /// The header is written; this value follows.
    Value(Pin),
    /// The value cannot be sent now, so the line ends with an error.
    Refused,
}

/// Continues with the keys of a retrieval line.
pub(crate) fn go_on(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let State::Getting(retrieval) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    get_keys(cx, session, retrieval, input, output)
}

/// Answers the keys of a line, which continue in the input, until the line or the input ends, the
/// output is full, or many were answered.
pub(crate) fn get_keys(
    cx: &mut Context,
    session: &mut Session,
    retrieval: Retrieval,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let Retrieval { mut line, pending } = retrieval;
    for _ in 0..KEYS_PER_REQUEST {
        let (bytes, before) = (input.bytes(), line);
        let seen = cx.lookahead.next_key(&cx.engine, bytes).filter(|_| line.take_key());
        let (key, consumed) = match seen {
            Some(seen) => seen,
            None => match line.next_key(bytes) {
                KeyToken::Key { key, consumed } => (cx.engine.key(key), consumed),
                KeyToken::Incomplete { consumed } => {
                    input.consume(consumed);
                    session.state = State::Getting(Retrieval { line, pending });
                    return Step::Stop(Flow::NeedInput);
                }
                KeyToken::End { consumed } => {
                    input.consume(consumed);
                    return pending.line(output.buf(), reply::END).into();
                }
                KeyToken::Bad { error, consumed } => {
                    input.consume(consumed);
                    return pending.line(output.buf(), error.line()).into();
                }
            },
        };
        let touches = line.exptime.is_some() || line.with_lease;
        let needs = || permit::needs_of_key(touches, key.bytes);
        if value_out::waits_to_send(cx, session, key.bytes, needs, output) {
            session.state = State::Getting(Retrieval { line: before, pending });
            return Step::Stop(Flow::Wait);
        }
        input.consume(consumed);
        if let Err(error) = permit::judge_key(&cx.engine, session, touches, key.bytes) {
            // As after a key that is too long: found values stay, and the rest is dropped.
            line.refuse_rest(error);
            continue;
        }
        let answered = if line.with_lease {
            lease::answer_key(cx, session, key, &line, output)
        } else {
            get_key(cx, session, &key, &line, output)
        };
        match answered {
            KeyReply::Written => {}
            KeyReply::Value(pin) => {
                value_out::start(session, pin, Then::Keys(Retrieval { line, pending }));
                return Step::Continue;
            }
            KeyReply::Refused => line.refuse_rest(Error::OutOfMemorySending),
        }
        if output.is_full() || output.buf().len() > session.reply_bytes_max {
            break;
        }
    }
    session.state = State::Getting(Retrieval { line, pending });
    Step::Continue
}

/// Answers a plain `get` of one key that was seen ahead.
#[inline]
pub(crate) fn lone_get(
    cx: &mut Context,
    session: &mut Session,
    key: Key<'_>,
    key_end: usize,
    len: usize,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let (mut line, pending) = (GetLine::after_key(), PendingReply::of_request());
    let needs = || permit::needs_of_key(false, key.bytes);
    if value_out::waits_to_send(cx, session, key.bytes, needs, output) {
        input.consume(GET.len());
        session.state = State::Getting(Retrieval { line, pending });
        return Step::Stop(Flow::Wait);
    }
    match get_key(cx, session, &key, &line, output) {
        KeyReply::Written => {
            input.consume(len);
            return pending.line(output.buf(), reply::END).into();
        }
        KeyReply::Value(pin) => {
            input.consume(key_end);
            value_out::start(session, pin, Then::Keys(Retrieval { line, pending }));
        }
        KeyReply::Refused => {
            input.consume(key_end);
            line.refuse_rest(Error::OutOfMemorySending);
            session.state = State::Getting(Retrieval { line, pending });
        }
    }
    Step::Continue
}

/// Answers one key.
#[inline(always)]
fn get_key(
    cx: &mut Context,
    session: &mut Session,
    key: &Key<'_>,
    line: &GetLine,
    output: &mut Output<'_>,
) -> KeyReply {
    if line.with_cas || line.exptime.is_some() {
        return get_with_cas_or_touch(cx, session, key, line, output);
    }
    let section = cx.engine.section();
    section.prefetch_value(cx.lookahead.soon());
    let found = cx.engine.get(&section, key);
    answer_found(cx, session, key, found, line, output)
}

/// Answers one key of gets, gat or gats.
fn get_with_cas_or_touch(
    cx: &mut Context,
    session: &mut Session,
    key: &Key<'_>,
    line: &GetLine,
    output: &mut Output<'_>,
) -> KeyReply {
    let mut wanted = if line.with_cas { Cas::Needed } else { Cas::Any };
    loop {
        let section = cx.engine.section();
        let found = match line.exptime {
            None => cx.engine.gets(&section, key, wanted),
            Some(exptime) => {
                let deadline = cx.engine.touch_deadline(key.bytes, exptime);
                cx.engine.get_and_touch(&section, *key, deadline, wanted)
            }
        };
        if !matches!(found, Err(Miss::NoCas)) {
            return answer_found(cx, session, key, found, line, output);
        }
        drop(section);
        wanted = cx.engine.give_cas(key);
    }
}

/// Writes the result, and informs watchers.
#[inline(always)]
fn answer_found(
    cx: &Context,
    session: &Session,
    key: &Key<'_>,
    found: Result<Item<'_>, Miss>,
    line: &GetLine,
    output: &mut Output<'_>,
) -> KeyReply {
    if cx.reporter.is_busy() {
        // A copy: a reference to the result would keep it in memory.
        let copy = found;
        cx.reporter.fetched(session, key.bytes, copy.as_ref());
    }
    cx.shared.prefixes.count(key.bytes, Kind::Get { is_hit: found.is_ok() });
    let Ok(item) = found else { return KeyReply::Written };
    write_item(cx, session.id, key, &item, line, output)
}

/// Writes a found item.
#[inline(always)]
pub(super) fn write_item(
    cx: &Context,
    id: u64,
    key: &Key<'_>,
    item: &Item<'_>,
    line: &GetLine,
    output: &mut Output<'_>,
) -> KeyReply {
    let cas = line.with_cas.then(|| cx.engine.asked_cas(item));
    match outgoing(item) {
        Outgoing::Inline(value) => {
            reply::write_value(output.buf(), key.bytes, item.flags(), value, cas);
            KeyReply::Written
        }
        Outgoing::Pinned(pin) => {
            if !value_out::begin(cx, id, &pin) {
                return KeyReply::Refused;
            }
            let buf = output.buf();
            reply::write_value_header(buf, key.bytes, item.flags(), pin.value_len(), cas);
            KeyReply::Value(pin)
        }
    }
}
