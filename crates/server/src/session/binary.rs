//! The binary commands.

use std::os::fd::RawFd;

use access::{Needs, Permission};
use engine::{
    Arithmetic, Cas, Condition, Counted, Delete, Deleted, Direction, Key, Miss, Mode, NewValue,
    Verdict, Vivify,
};
use net::{Flow, Input, Output};
use options::COMPATIBLE_VERSION;
use proto::StoreMode;
use proto::binary::reply;
use proto::binary::{self, Command, Header, Parsed, Request, Status, Then};
use store::Pin;

use super::admin;
use super::by_udp;
use super::context::Context;
use super::job::{Finished, Job};
use super::login;
use super::pending_reply::{PendingReply, Replied};
use super::permit::{self, Permit};
use super::state::{Session, State, Step, Then as AfterValue};
use super::value_in::{self, Taken};
use super::value_out::{self, Outgoing, outgoing};
use crate::admin::stats;
use crate::prefixes::Kind;

/// Serves the next packet.
pub(crate) fn serve(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let bytes = input.bytes();
    let (request, consumed) = match binary::parse(bytes) {
        Parsed::Request { request, consumed } => (request, consumed),
        Parsed::Incomplete => return Step::Stop(Flow::NeedInput),
        Parsed::BadMagic => return Step::Stop(Flow::Close),
        Parsed::Bad(bad) => {
            input.consume(bad.consumed);
            let pending = PendingReply::of_request();
            let write = || reply::write_last_error(output.buf(), &bad.header, bad.status);
            let replied = pending.write(write);
            return match bad.then {
                Then::Close => Step::Stop(Flow::Close),
                Then::Swallow(count) => {
                    session.state = State::Swallowing(u64::from(count));
                    replied.into()
                }
            };
        }
    };
    if let Command::Get { key, .. } = request.command
        && value_out::waits_to_send(cx, session, key, || Needs::of_binary(&request.command), output)
    {
        return Step::Stop(Flow::Wait);
    }
    input.consume(consumed);
    let mut pending = PendingReply::of_request();
    if permit::is_judged(&cx.engine, session) {
        pending = match permit::judge_binary(&cx.engine, session, pending, &request, output) {
            Permit::Denied(replied) => return replied.into(),
            Permit::Granted(pending) => pending,
        };
    }
    let (head, rest) = bytes.split_at(consumed);
    if session.is_datagram() && !by_udp::serves_binary(&request.command) {
        input.consume(rest.len());
        let (header, status) = (&request.header, Status::UnknownCommand);
        return pending.write(|| reply::write_error(output.buf(), header, status)).into();
    }
    if let Some((key, value_len)) = storage(&request.command) {
        let key = cx.lookahead.key(&cx.engine, key);
        let job = job(&cx.engine, session.peer.fd, key, &request, value_len);
        return match value_in::take(cx, session, pending, &job, head, input) {
            Taken::Coming => Step::Continue,
            Taken::Finished(finished, pending) => {
                answer_store(cx, pending, &request, &job, finished, output.buf()).into()
            }
        };
    }
    serve_command(cx, session, pending, &request, output)
}

fn serve_command(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    request: &Request<'_>,
    output: &mut Output<'_>,
) -> Step {
    let header = &request.header;
    let replied = match request.command {
        Command::Get { key, with_key, exptime } => {
            let key = cx.lookahead.key(&cx.engine, key);
            let pin = get(cx, session, request, key, with_key, exptime, output);
            if let Some(pin) = pin {
                value_out::start(session, pin, AfterValue::End(pending, b""));
                return Step::Continue;
            }
            pending.written()
        }
        Command::Delete { key } => {
            let key = cx.lookahead.key(&cx.engine, key);
            pending.write(|| delete(cx, request, key, output.buf()))
        }
        Command::Arithmetic { key, decrement, delta, initial, exptime } => {
            let key = cx.lookahead.key(&cx.engine, key);
            let vivify = exptime.map(|exptime| Vivify {
                initial,
                deadline: cx.engine.deadline(key.bytes, i64::from(exptime)),
                base64_key: false,
            });
            let how = Arithmetic {
                direction: Direction::of(decrement),
                delta,
                compare: Some(header.cas),
                cas: None,
                shows_cas: true,
                deadline: None,
                vivify,
            };
            pending.write(|| arithmetic(&cx.engine, request, key, &how, output.buf()))
        }
        Command::Touch { key, exptime } => {
            let key = cx.lookahead.key(&cx.engine, key);
            pending.write(|| touch(cx, session, header, key, exptime, output.buf()))
        }
        Command::Flush { exptime } => {
            let out = output.buf();
            match cx.engine.flush_all(exptime.map_or(0, i64::from)) {
                Ok(()) if request.quiet => pending.suppressed(),
                Ok(()) => pending.write(|| reply::write_done(out, header, 0)),
                Err(engine::FlushNotAllowed) => {
                    pending.write(|| reply::write_error(out, header, Status::AuthFailure))
                }
            }
        }
        Command::NoOp => pending.write(|| reply::write_done(output.buf(), header, 0)),
        Command::Version => pending.write(|| version(header, output.buf())),
        Command::Stat { key: b"bags" } => {
            return admin::list_bags(session, pending, Some(*header));
        }
        Command::Stat { key } => pending.write(|| stat(cx, header, key, output.buf())),
        Command::Quit => return quit(pending, request, output),
        Command::SaslList | Command::SaslAuth { .. } | Command::SaslStep { .. } => {
            return login::sasl(cx, session, pending, request, output);
        }
        // These were served before.
        Command::Store { .. } | Command::Concat { .. } => {
            return Step::Stop(Flow::CloseNow);
        }
    };
    replied.into()
}

pub(crate) fn version(header: &Header, out: &mut Vec<u8>) {
    let version = COMPATIBLE_VERSION.as_bytes();
    reply::write_value(out, header, Status::Ok, 0, b"", version);
}

/// Writes the whole reply, or only its header, and returns the value that follows.
fn get(
    cx: &mut Context,
    session: &Session,
    request: &Request<'_>,
    key: Key<'_>,
    with_key: bool,
    exptime: Option<u32>,
    output: &mut Output<'_>,
) -> Option<Pin> {
    let header = &request.header;
    let deadline = exptime.map(|exptime| cx.engine.touch_deadline(key.bytes, i64::from(exptime)));
    // Every hit shows its cas unique.
    let mut wanted = Cas::Needed;
    let mut section = cx.engine.section();
    let found = loop {
        let found = match deadline {
            None => cx.engine.gets(&section, &key, wanted),
            Some(deadline) => cx.engine.get_and_touch(&section, key, deadline, wanted),
        };
        if !matches!(found, Err(Miss::NoCas)) {
            break found;
        }
        drop(section);
        wanted = cx.engine.give_cas(&key);
        section = cx.engine.section();
    };
    if cx.reporter.is_busy() {
        cx.reporter.fetched(session, key.bytes, found.as_ref());
    }
    cx.shared.prefixes.count(key.bytes, Kind::Get { is_hit: found.is_ok() });
    let echo = with_key.then_some(key.bytes);
    let Ok(item) = found else {
        reply::write_miss(output.buf(), header, echo);
        return None;
    };
    let cas = cx.engine.asked_cas(&item);
    // No item is larger than `-I`, which is at most one gigabyte.
    assert!(item.value_len() <= u32::MAX as usize, "a value exceeds 32 bits");
    #[allow(clippy::cast_possible_truncation, reason = "just checked")]
    let value_len = item.value_len() as u32;
    match outgoing(&item) {
        Outgoing::Inline(value) => {
            reply::write_hit(output.buf(), header, item.flags(), cas, echo, value_len);
            short::append(output.buf(), value);
            None
        }
        Outgoing::Pinned(pin) => {
            if !value_out::begin(cx, session.id, &pin) {
                reply::write_error(output.buf(), header, Status::OutOfMemory);
                return None;
            }
            reply::write_hit(output.buf(), header, item.flags(), cas, echo, value_len);
            Some(pin)
        }
    }
}

pub(crate) fn job<'k>(
    engine: &engine::Worker,
    fd: RawFd,
    key: Key<'k>,
    request: &Request<'_>,
    value_len: u32,
) -> Job<'k> {
    let (mode, flags, exptime) = match request.command {
        Command::Store { mode, flags, exptime, .. } => (mode, flags, exptime),
        Command::Concat { mode, .. } => (mode, 0, 0),
        _ => (StoreMode::Set, 0, 0),
    };
    let compare = Some(request.header.cas).filter(|cas| *cas != 0);
    // With a cas unique, set, add and replace are all the same command.
    let mode = match mode {
        Mode::Add | Mode::Replace if compare.is_some() => Mode::Set,
        mode => mode,
    };
    Job {
        key,
        new: NewValue {
            flags,
            deadline: engine.deadline(key.bytes, i64::from(exptime)),
            value_len: value_len as usize,
            base64_key: false,
            // The replies to stores and gets show it.
            has_cas: true,
        },
        condition: Condition { compare, ..Condition::of(mode) },
        is_text: false,
        drops_old_if_too_large: mode == Mode::Set,
        fd,
    }
}

pub(crate) fn answer_store(
    cx: &Context,
    pending: PendingReply,
    request: &Request<'_>,
    job: &Job<'_>,
    finished: Finished,
    out: &mut Vec<u8>,
) -> Replied {
    value_in::note_stored(cx, job, finished);
    let header = &request.header;
    // A binary value has no terminator that could be wrong.
    let Finished::Judged(stored) = finished else {
        return pending.write(|| reply::write_error(out, header, Status::InvalidArguments));
    };
    let status = match (stored.verdict, job.condition.mode) {
        (Verdict::Stored, _) if request.quiet => return pending.suppressed(),
        (Verdict::Stored, _) => {
            return pending.write(|| reply::write_done(out, header, stored.cas));
        }
        (Verdict::NotFound | Verdict::NotStored, Mode::Append | Mode::Prepend) => Status::NotStored,
        (Verdict::NotStored, Mode::Add) | (Verdict::Exists, _) => Status::Exists,
        (Verdict::NotFound | Verdict::NotStored, _) => Status::NotFound,
        (Verdict::OutOfMemory | Verdict::OverQuota, _) => Status::OutOfMemory,
        (Verdict::TooLarge, _) => Status::TooLarge,
    };
    pending.write(|| reply::write_error(out, header, status))
}

fn touch(
    cx: &Context,
    session: &Session,
    header: &Header,
    key: Key<'_>,
    exptime: u32,
    out: &mut Vec<u8>,
) {
    let deadline = cx.engine.touch_deadline(key.bytes, i64::from(exptime));
    let touched = cx.engine.touch(key, deadline, Cas::Needed);
    cx.shared.prefixes.count(key.bytes, Kind::Get { is_hit: touched.is_ok() });
    let may_read = !session.login.forbids(Permission::Read, key.bytes);
    match touched {
        Ok(found) if may_read => reply::write_touched(out, header, found.flags, found.cas),
        Ok(_) => reply::write_touched(out, header, 0, 0),
        Err(_) => reply::write_error(out, header, Status::NotFound),
    }
}

fn delete(cx: &mut Context, request: &Request<'_>, key: Key<'_>, out: &mut Vec<u8>) {
    let header = &request.header;
    let compare = Some(header.cas).filter(|cas| *cas != 0);
    cx.shared.prefixes.count(key.bytes, Kind::Delete);
    let status = match cx.engine.delete(key, &Delete { compare, ..Delete::default() }) {
        Deleted::Done { class, value_len, .. } => {
            if cx.reporter.is_busy() {
                cx.reporter.deleted(key.bytes, "delete", class, value_len);
            }
            if !request.quiet {
                reply::write_done(out, header, 0);
            }
            return;
        }
        Deleted::Exists => Status::Exists,
        Deleted::NotFound => Status::NotFound,
        Deleted::Only(_) => Status::OutOfMemory,
    };
    reply::write_error(out, header, status);
}

fn arithmetic(
    engine: &engine::Worker,
    request: &Request<'_>,
    key: Key<'_>,
    how: &Arithmetic,
    out: &mut Vec<u8>,
) {
    let header = &request.header;
    let status = match engine.arithmetic(key, how) {
        Counted::Done { number, cas, .. } => {
            if !request.quiet {
                reply::write_number(out, header, cas, number);
            }
            return;
        }
        Counted::Exists => Status::Exists,
        Counted::NonNumeric => Status::NonNumeric,
        Counted::NotFound => Status::NotFound,
        Counted::Refused(_) => Status::OutOfMemory,
    };
    reply::write_error(out, header, status);
}

/// `stat`: the content of `stats` in text, one packet each.
fn stat(cx: &mut Context, header: &Header, key: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    let mut sink = |name: &[u8], value: &[u8]| reply::write_stat(out, header, name, value);
    let context = cx.admin();
    let is_known =
        stats::binary_detail(&context, key, &mut sink) || stats::group(&context, key, &mut sink);
    if is_known {
        reply::write_stat(out, header, b"", b"");
    } else {
        out.truncate(before);
        reply::write_error(out, header, Status::NotFound);
    }
}

/// `quit` and `quitq`: the connection ends after the reply.
pub(crate) fn quit(pending: PendingReply, request: &Request<'_>, output: &mut Output<'_>) -> Step {
    let _: Replied = if request.quiet {
        pending.suppressed()
    } else {
        pending.write(|| reply::write_done(output.buf(), &request.header, 0))
    };
    Step::Stop(Flow::Close)
}

/// The key and the value's length of a binary storage request.
pub(crate) fn storage<'b>(command: &Command<'b>) -> Option<(&'b [u8], u32)> {
    match *command {
        Command::Store { key, value_len, .. } | Command::Concat { key, value_len, .. } => {
            Some((key, value_len))
        }
        _ => None,
    }
}
