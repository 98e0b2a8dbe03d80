//! The classic commands.

use std::os::fd::RawFd;

use access::Needs;
use engine::{
    Arithmetic, Cas, Condition, Counted, Delete, Deleted, Direction, Key, NewValue, Verdict,
};
use net::{Flow, Input, Output};
use options::COMPATIBLE_VERSION;
use proto::text::{self, Parsed, Request};
use proto::{Error, HOLD_OFF_SECS_MAX, KeyBuf, StoreMode, reply};

use super::admin;
use super::by_udp;
use super::context::Context;
use super::job::{Finished, Job};
use super::lookahead::FastPath;
use super::meta;
use super::pending_reply::{PendingReply, Replied};
use super::permit::{self, Permit};
use super::refusal;
use super::retrieve;
use super::state::{Retrieval, Session, State, Step};
use super::value_in::{self, Taken};
use super::value_out;
use crate::prefixes::Kind;

/// Serves the next line.
#[inline(always)]
pub(crate) fn serve(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
    key_buf: &mut KeyBuf,
) -> Step {
    let bytes = input.bytes();
    let is_judged = permit::is_judged(&cx.engine, session);
    // Requests seen ahead were not checked for permission.
    match cx.lookahead.fast_path(bytes).filter(|_| !is_judged) {
        Some(FastPath::Get { key, key_end, len }) => {
            return retrieve::lone_get(cx, session, key, key_end, len, input, output);
        }
        Some(FastPath::Set { key, store, head }) if !session.is_datagram() => {
            input.consume(head);
            let pending = PendingReply::of_request();
            return serve_store(cx, session, pending, key, &store, &bytes[..head], input, output);
        }
        _ => {}
    }
    let (request, consumed) = match text::parse(bytes, key_buf) {
        Parsed::Request { request, consumed } => (request, consumed),
        Parsed::Incomplete => return Step::Stop(Flow::NeedInput),
        Parsed::LineTooLong | Parsed::Http => return Step::Stop(Flow::Close),
        Parsed::Bad(_) if session.is_datagram() => return Step::Stop(Flow::CloseNow),
        Parsed::Bad(bad) => {
            let is_strict = cx.shared.is_strict;
            return answer_bad(session, &bad, is_strict, input, output);
        }
    };
    if let Request::Meta(meta) = &request
        && meta.options.value
        && value_out::waits_to_send(cx, session, meta.key, || Needs::of_meta(meta), output)
    {
        return Step::Stop(Flow::Wait);
    }
    input.consume(consumed);
    let mut pending = PendingReply::of_request();
    if is_judged {
        pending = match permit::judge_text(&cx.engine, session, pending, &request, output) {
            Permit::Denied(replied) => return replied.into(),
            Permit::Granted(pending) => pending,
        };
    }
    let (head, rest) = bytes.split_at(consumed);
    if session.is_datagram() && !by_udp::serves_text(&request) {
        input.consume(rest.len());
        return pending.line(output.buf(), by_udp::REFUSED).into();
    }
    serve_request(cx, session, pending, request, head, input, output)
}

/// Executes the request; `head` is the line.
#[inline(never)]
fn serve_request(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    request: Request<'_>,
    head: &[u8],
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let replied = match request {
        Request::Get(line) => {
            return retrieve::get_keys(cx, session, Retrieval { line, pending }, input, output);
        }
        Request::Meta(request) => {
            return meta::serve(cx, session, pending, &request, head, input, output);
        }
        Request::Store(store) => {
            let key = cx.lookahead.key(&cx.engine, store.key);
            return serve_store(cx, session, pending, key, &store, head, input, output);
        }
        Request::Quit => return Step::Stop(Flow::Close),
        Request::Admin(admin) => return admin::serve(cx, session, pending, &admin, output),
        Request::Arithmetic(request) => arithmetic(cx, pending, &request, output),
        Request::Delete { key, secs, noreply, .. } => {
            let answer = delete(cx, session, key, secs);
            pending.line_unless(noreply, output.buf(), answer)
        }
        Request::FlushPrefix { prefix, noreply } => {
            let answer = match cx.engine.flush_prefix(prefix) {
                Ok(()) => reply::OK,
                Err(engine::FlushPrefixError::NotAllowed) => reply::FLUSH_NOT_ALLOWED,
                Err(engine::FlushPrefixError::TooMany) => reply::OUT_OF_MEMORY,
            };
            pending.line_unless(noreply, output.buf(), answer)
        }
        Request::Touch { key, exptime, noreply } => {
            let key = cx.lookahead.key(&cx.engine, key);
            let deadline = cx.engine.touch_deadline(key.bytes, exptime);
            let touched = cx.engine.touch(key, deadline, Cas::Any);
            let answer = if touched.is_ok() { reply::TOUCHED } else { reply::NOT_FOUND };
            pending.line_unless(noreply, output.buf(), answer)
        }
        Request::FlushAll { exptime, noreply } => {
            let answer = match cx.engine.flush_all(exptime.unwrap_or(0)) {
                Ok(()) => reply::OK,
                Err(engine::FlushNotAllowed) => reply::FLUSH_NOT_ALLOWED,
            };
            pending.line_unless(noreply, output.buf(), answer)
        }
        Request::Version => {
            pending.write(|| reply::write_version(output.buf(), COMPATIBLE_VERSION))
        }
    };
    replied.into()
}

/// Separate, so that the code of a get stays in one piece with the loop.
#[inline(never)]
fn serve_store(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    key: Key<'_>,
    store: &text::Store<'_>,
    head: &[u8],
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let job = job(&cx.engine, session.peer.fd, key, store);
    match value_in::take(cx, session, pending, &job, head, input) {
        Taken::Coming => Step::Continue,
        Taken::Finished(finished, pending) => {
            let replied = answer_store(cx, pending, store, &job, finished, output.buf());
            value_in::step_after(cx, finished, replied)
        }
    }
}

pub(super) fn job<'k>(
    engine: &engine::Worker,
    fd: RawFd,
    key: Key<'k>,
    store: &text::Store<'_>,
) -> Job<'k> {
    let (compare, lease) = (store.cas, store.lease);
    let gives_back = lease.is_some() && store.exptime < 0;
    let condition = Condition { compare, lease, gives_back, ..Condition::of(store.mode) };
    Job {
        key,
        new: NewValue {
            flags: store.flags,
            deadline: engine.deadline(key.bytes, store.exptime),
            value_len: store.len as usize,
            base64_key: false,
            // A client that compares will request it again.
            has_cas: compare.is_some(),
        },
        condition,
        is_text: true,
        drops_old_if_too_large: store.mode == StoreMode::Set
            && compare.is_none()
            && lease.is_none(),
        fd,
    }
}

#[inline(always)]
pub(super) fn answer_store(
    cx: &Context,
    pending: PendingReply,
    store: &text::Store<'_>,
    job: &Job<'_>,
    finished: Finished,
    out: &mut Vec<u8>,
) -> Replied {
    value_in::note_stored(cx, job, finished);
    if store.noreply {
        return pending.suppressed();
    }
    let Finished::Judged(stored) = finished else {
        return pending.line(out, reply::BAD_DATA_CHUNK);
    };
    let answer = match stored.verdict {
        // Separate, so that its length is a compile-time constant.
        Verdict::Stored => return pending.line(out, reply::STORED),
        Verdict::Exists => reply::EXISTS,
        Verdict::NotFound if store.cas.is_some() => reply::NOT_FOUND,
        Verdict::NotFound | Verdict::NotStored => reply::NOT_STORED,
        Verdict::OutOfMemory => reply::OUT_OF_MEMORY_STORING,
        Verdict::OverQuota => reply::OVER_QUOTA,
        Verdict::TooLarge => reply::TOO_LARGE,
    };
    pending.line(out, answer)
}

fn arithmetic(
    cx: &mut Context,
    pending: PendingReply,
    request: &text::Arithmetic<'_>,
    output: &mut Output<'_>,
) -> Replied {
    let key = cx.lookahead.key(&cx.engine, request.key);
    let how = Arithmetic {
        direction: Direction::of(request.decrement),
        delta: request.delta,
        compare: None,
        cas: None,
        shows_cas: false,
        deadline: None,
        vivify: None,
    };
    let counted = cx.engine.arithmetic(key, &how);
    if request.noreply {
        return pending.suppressed();
    }
    let out = output.buf();
    match counted {
        Counted::Done { number, .. } => pending.write(|| reply::write_number(out, number)),
        Counted::NotFound => pending.line(out, reply::NOT_FOUND),
        Counted::NonNumeric => pending.line(out, reply::NON_NUMERIC),
        Counted::Exists => pending.line(out, reply::EXISTS),
        Counted::Refused(error) => pending.line(out, refusal::line(error)),
    }
}

/// Deletes, and returns the reply's line. `secs` are a hold-off only if the operator enables it:
/// memcached ignores the number.
fn delete(cx: &mut Context, session: &Session, key: &[u8], secs: u32) -> &'static [u8] {
    let hold_off_secs = if cx.shared.delete_holds_off { secs } else { 0 };
    if hold_off_secs > HOLD_OFF_SECS_MAX {
        return Error::Format.line();
    }
    let key = cx.lookahead.key(&cx.engine, key);
    let held = permit::hold_off(&cx.engine, session, key.bytes, hold_off_secs);
    let hold_off_secs = held.unwrap_or(0);
    let deleted = cx.engine.delete(key, &Delete { hold_off_secs, ..Delete::default() });
    if let Deleted::Done { class, value_len, .. } = deleted
        && cx.reporter.is_busy()
    {
        cx.reporter.deleted(key.bytes, "delete", class, value_len);
    }
    cx.shared.prefixes.count(key.bytes, Kind::Delete);
    match deleted {
        Deleted::Only(lacking) => refusal::only_deleted(lacking),
        _ if held.is_none() => reply::HOLD_OFF_OVER_RATE,
        Deleted::Done { .. } => reply::DELETED,
        Deleted::Exists | Deleted::NotFound => reply::NOT_FOUND,
    }
}

/// Answers a refused line, and ensures that its data is not read as commands: with `-o strict` also
/// if its length is unknown.
fn answer_bad(
    session: &mut Session,
    bad: &text::BadRequest,
    is_strict: bool,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    input.consume(bad.consumed);
    if bad.swallow > 0 {
        session.state = State::Swallowing(bad.swallow);
    }
    let pending = PendingReply::of_request();
    let replied = pending.line_unless(bad.silent, output.buf(), bad.error.line());
    if is_strict && bad.is_unframed { Step::Stop(Flow::Close) } else { replied.into() }
}
