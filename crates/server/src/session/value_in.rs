//! Receives values directly into an item's memory, except the first part of one that arrives in
//! parts.
//!
//! ```text
//!     the whole value is in the input: draft, copy, store: no state
//!     else: Receiving, which takes what has come, time after time (see `awaited`) -> store
//!           (a large one waits until there is room for it: see `large_values`)
//!     refused: answer -> Swallowing
//! ```
//!
//! While a value is awaited, the request's own bytes are kept, and parsed again when it is whole:
//! that is simpler than an owned form of every kind of request. `append` and `prepend` collect
//! their bytes first, since the resulting item depends on the one that exists at the end.

use engine::{NewValue, Stored, Verdict};
use net::{Flow, Input};
use store::{Draft, DraftError, item_bytes};

use super::awaited::{Body, LargeBody};
use super::collected::Collected;
use super::context::Context;
use super::job::{Finished, Job};
use super::large_values::SMALL_BYTES;
use super::pending_reply::{PendingReply, Replied};
use super::state::{Receiving, Session, State, Step};
use crate::prefixes::Kind;

/// The state of a storage request's value.
#[must_use]
pub(crate) enum Taken {
    /// It is incomplete; the session's state holds the pending reply.
    Coming,
    /// The request has ended with this result, and needs its reply.
    Finished(Finished, PendingReply),
}

/// Takes the value of `job`, whose request is `head` and already consumed. `receiving` takes the
/// rest as it arrives.
#[inline(always)]
pub(crate) fn take(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    job: &Job<'_>,
    head: &[u8],
    input: &mut Input<'_>,
) -> Taken {
    match input.bytes().get(..job.data_bytes()) {
        Some(data) => Taken::Finished(take_whole(&cx.engine, session, job, data, input), pending),
        None => take_later(cx, session, pending, job, head),
    }
}

#[inline(always)]
fn take_whole(
    engine: &engine::Worker,
    session: &mut Session,
    job: &Job<'_>,
    data: &[u8],
    input: &mut Input<'_>,
) -> Finished {
    let (value, end) = data.split_at(job.new.value_len);
    if job.is_concat() {
        if let Some(refusal) = refuses_concat(engine, job) {
            return refuse(engine, session, job, refusal);
        }
        input.consume(data.len());
        if job.is_text && end != b"\r\n" {
            return Finished::BadEnd;
        }
        return Finished::Judged(engine.concat(job.key, &job.new, &job.condition, value));
    }
    let mut draft = match engine.draft(job.key, &job.new) {
        Ok(draft) => draft,
        Err(refusal) => return refuse(engine, session, job, refusal),
    };
    if job.is_text && end != b"\r\n" {
        input.consume(data.len());
        return Finished::BadEnd;
    }
    if let Err(error) = draft.push(value) {
        let refusal = engine.refused(error);
        return refuse(engine, session, job, refusal);
    }
    input.consume(data.len());
    store(engine, job, draft)
}

/// Stores a whole value.
#[inline(always)]
pub(super) fn store(engine: &engine::Worker, job: &Job<'_>, draft: Draft) -> Finished {
    Finished::Judged(engine.store(job.key, &job.new, &job.condition, draft))
}

#[inline(never)]
fn take_later(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    job: &Job<'_>,
    head: &[u8],
) -> Taken {
    let body = match begin(&cx.engine, job) {
        Ok(body) => body,
        Err(refusal) => {
            return Taken::Finished(refuse(&cx.engine, session, job, refusal), pending);
        }
    };
    let waits_for_room = job.new.value_len > SMALL_BYTES;
    // A larger one has to find room for its first chunk before it takes one.
    let held = if waits_for_room { SMALL_BYTES } else { 0 };
    session.state = State::Receiving(Box::new(Receiving {
        pending,
        head: head.to_vec(),
        body,
        missing: job.new.value_len,
        is_text: job.is_text,
        waits_for_room,
        held,
        received: 0,
    }));
    if !waits_for_room {
        cx.large_values.with(|account| account.begin_receiving(session.id, None, held, cx.now));
    }
    Taken::Coming
}

/// The place for a value that arrives in parts. Content-independent refusals happen now.
fn begin(engine: &engine::Worker, job: &Job<'_>) -> Result<Body, Verdict> {
    let most = if job.is_concat() { usize::MAX } else { SMALL_BYTES };
    let collected = Collected::new(engine.shared().store(), most.min(job.new.value_len));
    if job.is_concat() {
        return refuses_concat(engine, job).map_or(Ok(Body::Appended(collected)), Err);
    }
    let NewValue { flags, value_len, .. } = job.new;
    let item_bytes = item_bytes(job.key.bytes.len(), flags, value_len) as u64;
    if value_len <= SMALL_BYTES && item_bytes <= engine.shared().store().item_bytes_max() {
        return Ok(Body::Small(collected));
    }
    let draft = engine.draft(job.key, &job.new)?;
    Ok(Body::Large(LargeBody::new(draft, collected)))
}

/// Stores a collected value, like one that came with its request.
pub(super) fn store_collected(engine: &engine::Worker, job: &Job<'_>, value: &[u8]) -> Finished {
    let draft = engine.draft(job.key, &job.new).and_then(|mut draft| {
        let pushed = draft.push(value).map_err(|error| engine.refused(error));
        pushed.map(|()| draft)
    });
    match draft {
        Ok(draft) => store(engine, job, draft),
        Err(refusal) => refusal_of(engine, job, refusal),
    }
}

/// Informs watchers and prefix counts of a stored value.
#[inline]
pub(crate) fn note_stored(cx: &Context, job: &Job<'_>, finished: Finished) {
    if cx.reporter.is_busy() {
        cx.reporter.stored(job, finished, cx.engine.now_secs());
    }
    if matches!(finished, Finished::Judged(_)) {
        cx.shared.prefixes.count(job.key.bytes, Kind::Set);
    }
}

/// The step after the reply to a value. With `-o strict` a value that did not end at its announced
/// length ends the connection, because its rest may follow.
pub(crate) fn step_after(cx: &Context, finished: Finished, replied: Replied) -> Step {
    match finished {
        Finished::BadEnd if cx.shared.is_strict => Step::Stop(Flow::Close),
        Finished::BadEnd | Finished::Judged(_) => replied.into(),
    }
}

/// Answers for a refused value, whose bytes are dropped as they arrive.
fn refuse(
    engine: &engine::Worker,
    session: &mut Session,
    job: &Job<'_>,
    refusal: Verdict,
) -> Finished {
    session.state = State::Swallowing(job.data_bytes() as u64);
    refusal_of(engine, job, refusal)
}

/// The refusal of a value. The old value stays (decision 100), except for a set whose value is too
/// large: no repetition could store that, and memcached also deletes the old one.
pub(super) fn refusal_of(engine: &engine::Worker, job: &Job<'_>, refusal: Verdict) -> Finished {
    if refusal == Verdict::TooLarge && job.drops_old_if_too_large {
        engine.drop_old(job.key);
    }
    Finished::Judged(Stored::refused(refusal))
}

/// Bytes to append are collected before they are judged; more than an item of the key may have are
/// not collected, whether there is one or not.
fn refuses_concat(engine: &engine::Worker, job: &Job<'_>) -> Option<Verdict> {
    // The present item's client flags count, which may be none.
    let least_bytes = item_bytes(job.key.bytes.len(), 0, job.new.value_len) as u64;
    (least_bytes > engine.shared().store().item_bytes_max())
        .then(|| engine.refused(DraftError::TooLarge))
}

/// Drops the received part of a refused value.
pub(crate) fn continue_swallowing(session: &mut Session, input: &mut Input<'_>) -> Step {
    let State::Swallowing(left) = &mut session.state else { return Step::Continue };
    let come = input.bytes().len();
    let now = usize::try_from(*left).map_or(come, |left| left.min(come));
    input.consume(now);
    *left -= now as u64;
    if *left > 0 {
        return Step::Stop(Flow::NeedInput);
    }
    session.state = State::Commands;
    Step::Continue
}
