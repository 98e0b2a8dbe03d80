//! Values that come in pieces: taken as they come, and the end of their requests.
//!
//! While a value is awaited, the request's own bytes are kept, and read again when it is whole:
//! that is simpler than an owned form of every kind of request.

use std::os::fd::RawFd;

use engine::Verdict;
use net::{Flow, Input, Output};
use proto::text::{self, Parsed, Request};
use proto::{KeyBuf, Wire, binary};
use store::DraftError;

use super::binary::storage;
use super::context::Context;
use super::job::{END_BYTES, Finished, Job};
use super::pending_reply::{PendingReply, Replied};
use super::state::{Body, Receiving, Session, State, Step};
use super::value_in;

/// Takes what has come of the awaited value; when it is whole, finishes its request.
pub(crate) fn go_on(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let State::Receiving(receiving) = &mut session.state else { return Step::Continue };
    let bytes = input.bytes();
    let part = &bytes[..bytes.len().min(receiving.missing)];
    let pushed = match &mut receiving.body {
        // Not the store's memory, so nothing else bounds it.
        Body::Bytes(_) if !cx.inflight.has_room(part.len()) => Err(DraftError::OutOfMemory),
        Body::Bytes(collected) => collected.push(part),
        Body::Draft(draft) => draft.push(part),
    };
    if let Err(error) = pushed {
        let refusal = cx.engine.refused(error);
        return break_off(cx, session, refusal, output);
    }
    input.consume(part.len());
    receiving.missing -= part.len();
    receiving.received += part.len();
    receiving.held = receiving.held.max(receiving.received);
    let (held, now_secs) = (receiving.held, cx.engine.now_secs());
    let is_alive = if part.is_empty() {
        !cx.inflight.is_cancelled(session.id)
    } else {
        cx.inflight.moved(session.id, held, now_secs)
    };
    if !is_alive {
        return Step::Stop(Flow::CloseNow);
    }
    if receiving.missing > 0 {
        return Step::Stop(Flow::NeedInput);
    }
    let mut has_end = true;
    if receiving.is_text {
        let Some(end) = input.bytes().first_chunk::<END_BYTES>() else {
            return Step::Stop(Flow::NeedInput);
        };
        has_end = end == b"\r\n";
        input.consume(END_BYTES);
    }
    cx.inflight.end(session.id);
    let State::Receiving(receiving) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let Receiving { pending, head, body, .. } = *receiving;
    let replied = finish(cx, pending, session.peer.fd, &head, output.buf(), |engine, job| {
        if !has_end {
            return Finished::BadEnd;
        }
        Finished::Judged(match body {
            Body::Bytes(collected) => {
                engine.concat(job.key, &job.new, &job.condition, collected.bytes())
            }
            Body::Draft(draft) => engine.store(job.key, &job.new, &job.condition, draft),
        })
    });
    step_of(replied)
}

/// Memory ran out in the middle of a value: answers, and drops the rest of it.
fn break_off(
    cx: &mut Context,
    session: &mut Session,
    refusal: Verdict,
    output: &mut Output<'_>,
) -> Step {
    cx.inflight.end(session.id);
    let State::Receiving(receiving) = std::mem::take(&mut session.state) else {
        return Step::Continue;
    };
    let end_bytes = if receiving.is_text { END_BYTES } else { 0 };
    let Receiving { pending, head, body, missing, .. } = *receiving;
    // Its memory is wanted by others.
    drop(body);
    session.state = State::Swallowing((missing + end_bytes) as u64);
    let replied = finish(cx, pending, session.peer.fd, &head, output.buf(), |engine, job| {
        value_in::refusal_of(engine, job, refusal)
    });
    step_of(replied)
}

/// Ends a storage request whose value was awaited: reads the request again from `head`, lets
/// `conclude` end it, and answers. `None` if `head` is no storage request, which would be a
/// fault of this server.
fn finish(
    cx: &mut Context,
    pending: PendingReply,
    fd: RawFd,
    head: &[u8],
    out: &mut Vec<u8>,
    conclude: impl FnOnce(&engine::Worker, &Job<'_>) -> Finished,
) -> Option<Replied> {
    let mut key_buf = KeyBuf::new();
    match head.first().map(|first| Wire::of(*first)) {
        Some(Wire::Binary) => {
            if let binary::Parsed::Request { request, .. } = binary::parse(head)
                && let Some((key, value_len)) = storage(&request.command)
            {
                let job =
                    super::binary::job(&cx.engine, fd, cx.engine.key(key), &request, value_len);
                let finished = conclude(&cx.engine, &job);
                return Some(super::binary::answer_store(
                    cx, pending, &request, &job, finished, out,
                ));
            }
        }
        Some(Wire::Text) | None => match text::parse(head, &mut key_buf) {
            Parsed::Request { request: Request::Store(store), .. } => {
                let job = super::text::job(&cx.engine, fd, cx.engine.key(store.key), &store);
                let finished = conclude(&cx.engine, &job);
                return Some(super::text::answer_store(cx, pending, &store, &job, finished, out));
            }
            Parsed::Request { request: Request::Meta(request), .. } => {
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
        },
    }
    None
}

/// The step after a request whose value was awaited. `None`: its line was not understood a second
/// time, so nobody knows which reply is due.
fn step_of(replied: Option<Replied>) -> Step {
    replied.map_or(Step::Stop(Flow::CloseNow), Step::Replied)
}
