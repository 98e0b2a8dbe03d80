//! Values that arrive in pieces, and the end of their requests.
//!
//! While a value is awaited, the request's own bytes are kept, and parsed again when it is whole:
//! that is simpler than an owned form of every kind of request.
//!
//! The user may have lost the right to write in the meantime, so rights are checked again, too.

use access::Needs;
use engine::Stored;
use net::{Flow, Input, Output};
use proto::text::{self, Parsed, Request};
use proto::{KeyBuf, Wire, binary};
use store::DraftError;

use super::awaited::Body;
use super::binary::storage;
use super::context::Context;
use super::job::{END_BYTES, Finished, Job};
use super::large_values::Need;
use super::pending_reply::{PendingReply, Replied};
use super::permit;
use super::state::{Receiving, Session, State, Step};
use super::value_in;

/// Takes the received part of the awaited value; when it is whole, finishes its request.
pub(crate) fn go_on(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let State::Receiving(receiving) = &mut session.state else { return Step::Continue };
    if !cx.large_values.with(|account| account.go_on(session.id, output.conn_id())) {
        return Step::Stop(Flow::CloseNow);
    }
    if receiving.waits_for_room {
        let need = Need::Receive(receiving.held);
        let (values, now, until) = (&cx.large_values, cx.now, &mut session.waits_until);
        let waits =
            |conn| values.with(|account| account.must_wait(session.id, conn, need, now, until));
        if output.conn_id().is_some_and(waits) {
            return Step::Stop(Flow::Wait);
        }
        if !values.with(|account| account.make_room(need, now)) {
            return refuse_for_room(cx, session, output);
        }
        let (conn, held) = (output.conn_id(), receiving.held);
        values.with(|account| account.begin_receiving(session.id, conn, held, now));
        receiving.waits_for_room = false;
    }
    let bytes = input.bytes();
    let part = &bytes[..bytes.len().min(receiving.missing)];
    // This is not the store's memory, so nothing else bounds it.
    if matches!(receiving.body, Body::Appended(_)) && !has_room(cx, part.len()) {
        return refuse_for_room(cx, session, output);
    }
    if let Err(error) = receiving.body.push(part) {
        let refusal = cx.engine.refused(error);
        return break_off(cx, session, output, |engine, job| {
            value_in::refusal_of(engine, job, refusal)
        });
    }
    input.consume(part.len());
    receiving.missing -= part.len();
    receiving.received += part.len();
    receiving.held = receiving.held.max(receiving.body.held_bytes(receiving.received));
    if !part.is_empty() {
        let held = receiving.held;
        cx.large_values.with(|account| account.received(session.id, held, cx.now));
    }
    if receiving.missing > 0 {
        return Step::Stop(Flow::NeedInput);
    }
    let mut has_end = true;
    if receiving.is_text {
        let Some(is_end) = take_end(input) else { return Step::Stop(Flow::NeedInput) };
        has_end = is_end;
    }
    cx.large_values.with(|account| account.end(session.id));
    let State::Receiving(receiving) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let Receiving { pending, head, body, .. } = *receiving;
    let replied = finish(cx, session, pending, &head, output.buf(), |engine, job| {
        if !has_end {
            return Finished::BadEnd;
        }
        match body {
            Body::Appended(collected) => {
                let bytes = collected.bytes();
                Finished::Judged(engine.concat(job.key, &job.new, &job.condition, bytes))
            }
            Body::Small(collected) => value_in::store_collected(engine, job, collected.bytes()),
            Body::Large(body) => value_in::store(engine, job, body.into_draft()),
        }
    });
    match replied {
        Some(_) if !has_end && cx.shared.is_strict => Step::Stop(Flow::Close),
        replied => step_of(replied),
    }
}

/// Takes the two bytes after a data block; `true` if they end a line. `None`: not yet received.
fn take_end(input: &mut Input<'_>) -> Option<bool> {
    let is_end = input.bytes().first_chunk::<END_BYTES>()? == b"\r\n";
    input.consume(END_BYTES);
    Some(is_end)
}

/// True if this worker's connections may hold this many more bytes outside the store's memory.
fn has_room(cx: &Context, bytes: usize) -> bool {
    cx.large_values.with(|account| account.make_room(Need::Receive(bytes), cx.now))
}

/// Refuses a value because others hold too much. The old value stays, as the store took no part.
fn refuse_for_room(cx: &mut Context, session: &mut Session, output: &mut Output<'_>) -> Step {
    let refusal = cx.engine.refused(DraftError::OutOfMemory);
    break_off(cx, session, output, |_, _| Finished::Judged(Stored::refused(refusal)))
}

/// Handles a lack of memory for an incomplete value: `conclude` answers, the rest is dropped.
fn break_off(
    cx: &mut Context,
    session: &mut Session,
    output: &mut Output<'_>,
    conclude: impl FnOnce(&engine::Worker, &Job<'_>) -> Finished,
) -> Step {
    cx.large_values.with(|account| account.end(session.id));
    let State::Receiving(receiving) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let end_bytes = if receiving.is_text { END_BYTES } else { 0 };
    let Receiving { pending, head, body, missing, .. } = *receiving;
    // Other connections need its memory.
    drop(body);
    session.state = State::Swallowing((missing + end_bytes) as u64);
    let replied = finish(cx, session, pending, &head, output.buf(), conclude);
    step_of(replied)
}

/// Ends a storage request whose value was awaited: parses the request again from `head`, lets
/// `conclude` end it, and answers. Refuses it if the user may not write the key any more. `None` if
/// `head` is no storage request, which would be a fault of this server.
fn finish(
    cx: &mut Context,
    session: &Session,
    pending: PendingReply,
    head: &[u8],
    out: &mut Vec<u8>,
    conclude: impl FnOnce(&engine::Worker, &Job<'_>) -> Finished,
) -> Option<Replied> {
    let (mut key_buf, fd) = (KeyBuf::new(), session.peer.fd);
    match head.first().map(|first| Wire::of(*first)) {
        Some(Wire::Binary) => {
            if let binary::Parsed::Request { request, .. } = binary::parse(head)
                && let Some((key, value_len)) = storage(&request.command)
            {
                let needs = Needs::of_binary(&request.command);
                if permit::judge_rights(&cx.engine, session, needs).is_err() {
                    let denied = binary::Status::AccessDenied;
                    let write = || binary::reply::write_error(out, &request.header, denied);
                    return Some(pending.write(write));
                }
                let job =
                    super::binary::job(&cx.engine, fd, cx.engine.key(key), &request, value_len);
                let finished = conclude(&cx.engine, &job);
                return Some(super::binary::answer_store(
                    cx, pending, &request, &job, finished, out,
                ));
            }
        }
        Some(Wire::Text) | None => {
            let Parsed::Request { request, .. } = text::parse(head, &mut key_buf) else {
                return None;
            };
            let needs = Needs::of_text(&request);
            if let Err(error) = permit::judge_rights(&cx.engine, session, needs) {
                return Some(pending.line_unless(request.noreply(), out, error.line()));
            }
            match request {
                Request::Store(store) => {
                    let key = cx.engine.key(store.key);
                    let job = super::text::job(&cx.engine, fd, key, &store);
                    let finished = conclude(&cx.engine, &job);
                    let replied =
                        super::text::answer_store(cx, pending, &store, &job, finished, out);
                    return Some(replied);
                }
                Request::Meta(request) => {
                    if let proto::meta::Command::Set { mode, len } = request.command {
                        let key = cx.engine.key(request.key);
                        let job = super::meta::job(&cx.engine, fd, key, &request, mode, len);
                        let finished = conclude(&cx.engine, &job);
                        return Some(super::meta::answer_store(
                            cx, pending, &request, &job, finished, out,
                        ));
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// The step after a request whose value was awaited. `None`: its line could not be parsed a second
/// time, so the due reply is unknown.
fn step_of(replied: Option<Replied>) -> Step {
    replied.map_or(Step::Stop(Flow::CloseNow), Step::Replied)
}
