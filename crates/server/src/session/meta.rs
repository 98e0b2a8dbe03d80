//! The meta commands.

mod lease;

use std::os::fd::RawFd;

use access::Permission;
use engine::{
    Arithmetic, Cas, Condition, Counted, Counter, Delete, Deleted, Direction, Key, MetaGet,
    MetaHit, Miss, NewValue, Verdict, Vivify, ttl_of,
};
use net::{Input, Output};
use proto::meta::reply::{self, DebugFacts, ItemFacts, Status};
use proto::meta::{Command, Request};
use proto::{Error, StoreMode, number};
use store::{DraftError, Liveness, Pin};

use super::context::Context;
use super::job::{Finished, Job};
use super::pending_reply::{PendingReply, Replied};
use super::permit;
use super::refusal;
use super::state::{Session, Step, Then};
use super::times;
use super::trace;
use super::value_in::{self, Taken};
use super::value_out::{self, LINE_END, Outgoing, outgoing};
use crate::prefixes::Kind;

/// Serves one meta request, which took `head` of the input.
pub(crate) fn serve(
    cx: &mut Context,
    session: &mut Session,
    pending: PendingReply,
    request: &Request<'_>,
    head: &[u8],
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let replied = match request.command {
        Command::Get => {
            let key = cx.lookahead.key(&cx.engine, request.key);
            if let Some(pin) = get(cx, session, request, key, output) {
                value_out::start(session, pin, Then::End(pending, LINE_END));
                return Step::Continue;
            }
            pending.written()
        }
        Command::Set { mode, len } => {
            let key = cx.lookahead.key(&cx.engine, request.key);
            let job = job(&cx.engine, session.peer.fd, key, request, mode, len);
            match value_in::take(cx, session, pending, &job, head, input) {
                Taken::Coming => return Step::Continue,
                Taken::Finished(finished, pending) => {
                    let out = output.buf();
                    let replied = answer_store(cx, pending, request, &job, finished, out);
                    return value_in::step_after(cx, finished, replied);
                }
            }
        }
        Command::Delete => {
            let key = cx.lookahead.key(&cx.engine, request.key);
            pending.write(|| delete(cx, session, request, key, output.buf()))
        }
        Command::Arithmetic { decrement } => {
            let key = cx.lookahead.key(&cx.engine, request.key);
            pending.write(|| arithmetic(&cx.engine, request, key, decrement, output.buf()))
        }
        Command::Debug => {
            // memcached counts no other meta command.
            cx.engine.count(Counter::CmdMeta);
            pending.write(|| debug(&cx.engine, request, output.buf()))
        }
        Command::NoOp => {
            if times::ask(session, request.flags, output) {
                return pending.written().into();
            }
            trace::announce(cx, session, request.flags);
            pending.line(output.buf(), reply::noop(request.flags, trace::is_taken(cx)))
        }
    };
    replied.into()
}

/// `mg`: writes the whole reply, or only its header, and returns the value that follows.
fn get(
    cx: &mut Context,
    session: &Session,
    request: &Request<'_>,
    key: Key<'_>,
    output: &mut Output<'_>,
) -> Option<Pin> {
    let options = &request.options;
    let mut how = MetaGet {
        vivify_deadline: vivify_deadline(&cx.engine, request),
        recache_secs: options
            .recache_secs
            .map(|secs| u32::try_from(secs.max(0)).unwrap_or(u32::MAX)),
        deadline: touch_deadline(&cx.engine, request),
        recache_after_touch: precedes(request, b'T', b'R'),
        no_bump: options.no_update,
        // A client that cannot store the value leaves the win to those who can.
        no_claim: session.is_datagram() || session.login.forbids(Permission::Write, request.key),
        cas: options.new_cas,
        wants_cas: if options.wants_cas { Cas::Needed } else { Cas::Any },
        base64_key: options.base64,
    };
    if how.vivify_deadline.is_some() {
        let out = output.buf();
        let found = cx
            .engine
            .meta_get_or_create(key, &how, |hit| answer_hit(cx, session, request, hit, out));
        found.unwrap_or_else(|error| {
            output.buf().extend_from_slice(match error {
                DraftError::OverQuota => proto::reply::OVER_QUOTA,
                _ => Error::OutOfMemorySending.line(),
            });
            None
        })
    } else {
        let mut section = cx.engine.section();
        loop {
            let miss = match cx.engine.meta_get(&section, key, &how) {
                Ok(hit) => break answer_hit(cx, session, request, &hit, output.buf()),
                Err(Miss::NoCas) => {
                    drop(section);
                    how.wants_cas = cx.engine.give_cas(&key);
                    section = cx.engine.section();
                    continue;
                }
                Err(miss) => miss,
            };
            if options.lease.is_none() && !options.accept_stale {
                answer_miss(cx, session, request, miss, output.buf());
                break None;
            }
            let out = output.buf();
            if let Some(pin) = lease::miss(cx, &section, session, request, key, out) {
                break pin;
            }
        }
    }
}

/// With `N`, the deadline of an item that is created: by `N`, or by a `T` that comes after it.
fn vivify_deadline(engine: &engine::Worker, request: &Request<'_>) -> Option<u32> {
    let options = &request.options;
    let mut exptime = options.autoviv_exptime?;
    let letters = request.flags.filter_map(|word| word.first());
    if letters.filter(|letter| matches!(letter, b'N' | b'T')).last() == Some(&b'T') {
        exptime = options.exptime.unwrap_or(exptime);
    }
    Some(engine.deadline(request.key, exptime))
}

/// With `T`, the deadline of an existing item.
fn touch_deadline(engine: &engine::Worker, request: &Request<'_>) -> Option<u32> {
    request.options.exptime.map(|exptime| engine.touch_deadline(request.key, exptime))
}

/// The value of `t` for an item that this request creates: flags act in their order, so an `N` or
/// `T` after it does not count.
fn shown_deadline_of_created(engine: &engine::Worker, request: &Request<'_>) -> u32 {
    let options = &request.options;
    let mut deadline = 0;
    for letter in request.flags.filter_map(|word| word.first()) {
        let exptime = match letter {
            b'N' => options.autoviv_exptime,
            b'T' => options.exptime,
            b't' => break,
            _ => None,
        };
        deadline = exptime.map_or(deadline, |exptime| engine.deadline(request.key, exptime));
    }
    deadline
}

pub(super) fn answer_miss(
    cx: &Context,
    session: &Session,
    request: &Request<'_>,
    miss: Miss,
    out: &mut Vec<u8>,
) {
    if cx.reporter.is_busy() {
        cx.reporter.fetched(session, request.key, Err(&miss));
    }
    cx.shared.prefixes.count(request.key, Kind::Get { is_hit: false });
    if !reply::is_silent(request, Status::Miss) {
        reply::write_status(out, request, Status::Miss);
    }
}

/// Answers with a found item. Writes the header and returns a value that has to be sent from its
/// place.
#[inline]
pub(super) fn answer_hit(
    cx: &Context,
    session: &Session,
    request: &Request<'_>,
    hit: &MetaHit<'_>,
    out: &mut Vec<u8>,
) -> Option<Pin> {
    let item = &hit.item;
    if cx.reporter.is_busy() {
        cx.reporter.fetched(session, request.key, Ok(item));
    }
    cx.shared.prefixes.count(request.key, Kind::Get { is_hit: true });
    let now_secs = cx.engine.now_secs();
    let (before, after) = if hit.is_created {
        let shown = shown_deadline_of_created(&cx.engine, request);
        (shown, shown)
    } else {
        (hit.deadline_before, hit.deadline)
    };
    let cas = cx.engine.cas_of_hit(hit, request.options.wants_cas);
    let value_bytes = item.value_len();
    let facts = ItemFacts {
        cas,
        flags: item.flags(),
        hit_before: hit.is_fetched,
        last_access_secs: u64::from(hit.idle_secs),
        value_bytes,
        ttl_secs_before: ttl_of(before, now_secs).map(u64::from),
        ttl_secs: ttl_of(after, now_secs).map(u64::from),
        key_is_base64: item.is_base64_key(),
        win_sent: hit.is_won,
        stale: hit.is_stale,
        won: hit.is_winner,
        lease: hit.lease,
    };
    // A client that has this version does not get the value again. 0 names no version.
    let has_version = request.options.compare_cas.is_some_and(|held| held != 0 && held == cas);
    if !request.options.value || has_version {
        if !reply::is_silent(request, Status::Done) {
            reply::write_item(out, request, Status::Done, &facts);
        }
        return None;
    }
    match outgoing(item) {
        Outgoing::Inline(value) => {
            reply::write_value_header(out, request, value_bytes, &facts);
            short::append(out, value);
            out.extend_from_slice(LINE_END);
            None
        }
        Outgoing::Pinned(pin) => {
            if !value_out::begin(cx, session.id, &pin) {
                out.extend_from_slice(Error::OutOfMemorySending.line());
                return None;
            }
            reply::write_value_header(out, request, value_bytes, &facts);
            Some(pin)
        }
    }
}

pub(crate) fn job<'k>(
    engine: &engine::Worker,
    fd: RawFd,
    key: Key<'k>,
    request: &Request<'_>,
    mode: StoreMode,
    len: u32,
) -> Job<'k> {
    let options = &request.options;
    let vivify = options.autoviv_exptime.map(|exptime| engine.deadline(key.bytes, exptime));
    Job {
        key,
        new: NewValue {
            flags: options.client_flags.unwrap_or(0),
            deadline: engine.deadline(key.bytes, options.exptime.unwrap_or(0)),
            value_len: len as usize,
            base64_key: options.base64,
            // A client that compares or chooses will request it again.
            has_cas: options.wants_cas
                || options.new_cas.is_some()
                || options.compare_cas.is_some(),
        },
        condition: Condition {
            mode,
            compare: options.compare_cas,
            invalidate: options.invalidate,
            cas: options.new_cas,
            vivify_deadline: vivify,
            lease: options.lease,
            gives_back: options.lease.is_some() && options.exptime.is_some_and(|secs| secs < 0),
        },
        is_text: true,
        drops_old_if_too_large: options.lease.is_none(),
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
    let Finished::Judged(stored) = finished else {
        return pending.line(out, proto::reply::BAD_DATA_CHUNK);
    };
    let status = match stored.verdict {
        Verdict::TooLarge => return pending.line(out, proto::reply::TOO_LARGE),
        Verdict::OutOfMemory => {
            return pending.line(out, proto::reply::OUT_OF_MEMORY_STORING);
        }
        Verdict::OverQuota => return pending.line(out, proto::reply::OVER_QUOTA),
        Verdict::Stored if reply::is_silent(request, Status::Done) => {
            return pending.suppressed();
        }
        Verdict::Stored => {
            let facts = ItemFacts {
                cas: stored.cas,
                value_bytes: stored.value_len,
                key_is_base64: request.options.base64,
                ..ItemFacts::default()
            };
            return pending.write(|| reply::write_item(out, request, Status::Done, &facts));
        }
        Verdict::Exists => Status::Exists,
        Verdict::NotFound => Status::NotFound,
        Verdict::NotStored => Status::NotStored,
    };
    pending.write(|| reply::write_status(out, request, status))
}

fn delete(
    cx: &mut Context,
    session: &Session,
    request: &Request<'_>,
    key: Key<'_>,
    out: &mut Vec<u8>,
) {
    let options = &request.options;
    if options.under {
        return flush_prefix(&cx.engine, request, out);
    }
    let hold_off_secs = options.hold_off_secs.unwrap_or(0);
    let held = permit::hold_off(&cx.engine, session, request.key, hold_off_secs);
    let how = Delete {
        compare: options.compare_cas,
        invalidate: options.invalidate,
        empty_flags: options.drop_value.then(|| options.client_flags.unwrap_or(0)),
        base64_key: options.base64,
        deadline: touch_deadline(&cx.engine, request),
        cas: options.new_cas,
        hold_off_secs: held.unwrap_or(0),
    };
    cx.shared.prefixes.count(key.bytes, Kind::Delete);
    let status = match cx.engine.delete(key, &how) {
        Deleted::Done { class, value_len, .. } => {
            if cx.reporter.is_busy() && options.drop_value {
                let deadline = how.deadline.unwrap_or_else(|| cx.engine.deadline(key.bytes, 0));
                let ttl_secs = ttl_of(deadline, cx.engine.now_secs());
                cx.reporter.emptied(session, key.bytes, class, ttl_secs);
            }
            // An invalidation deletes nothing.
            if cx.reporter.is_busy() && !options.invalidate {
                cx.reporter.deleted(key.bytes, "md", class, value_len);
            }
            Status::Done
        }
        Deleted::Exists => Status::Exists,
        Deleted::NotFound => Status::NotFound,
        Deleted::Only(lacking) => return out.extend_from_slice(refusal::only_deleted(lacking)),
    };
    if held.is_none() && status != Status::Exists {
        return out.extend_from_slice(proto::reply::HOLD_OFF_OVER_RATE);
    }
    if !reply::is_silent(request, status) {
        reply::write_status(out, request, status);
    }
}

/// `md` with `U`: deletes all keys with this prefix.
fn flush_prefix(engine: &engine::Worker, request: &Request<'_>, out: &mut Vec<u8>) {
    match engine.flush_prefix(request.key) {
        Ok(()) if reply::is_silent(request, Status::Done) => {}
        Ok(()) => reply::write_status(out, request, Status::Done),
        Err(engine::FlushPrefixError::NotAllowed) => {
            out.extend_from_slice(proto::reply::FLUSH_NOT_ALLOWED);
        }
        Err(engine::FlushPrefixError::TooMany) => {
            out.extend_from_slice(proto::reply::OUT_OF_MEMORY);
        }
    }
}

fn arithmetic(
    engine: &engine::Worker,
    request: &Request<'_>,
    key: Key<'_>,
    decrement: bool,
    out: &mut Vec<u8>,
) {
    let options = &request.options;
    let vivify = vivify_deadline(engine, request).map(|deadline| Vivify {
        initial: options.initial.unwrap_or(0),
        deadline,
        base64_key: options.base64,
    });
    let how = Arithmetic {
        direction: Direction::of(decrement),
        delta: options.delta.unwrap_or(1),
        compare: options.compare_cas,
        cas: options.new_cas,
        shows_cas: options.wants_cas,
        deadline: touch_deadline(engine, request),
        vivify,
    };
    let (number, cas, before, is_created) = match engine.arithmetic(key, &how) {
        Counted::Done { number, cas, deadline_before, is_created } => {
            (number, cas, deadline_before, is_created)
        }
        Counted::Exists => return reply::write_status(out, request, Status::Exists),
        Counted::NotFound => return reply::write_status(out, request, Status::NotFound),
        Counted::NonNumeric => return out.extend_from_slice(proto::reply::NON_NUMERIC),
        Counted::Refused(error) => return out.extend_from_slice(refusal::line(error)),
    };
    let now_secs = engine.now_secs();
    let (before, after) = if is_created {
        let shown = shown_deadline_of_created(engine, request);
        (shown, shown)
    } else {
        (before, how.deadline.unwrap_or(before))
    };
    let facts = ItemFacts {
        cas,
        ttl_secs_before: ttl_of(before, now_secs).map(u64::from),
        ttl_secs: ttl_of(after, now_secs).map(u64::from),
        key_is_base64: options.base64,
        ..ItemFacts::default()
    };
    if reply::is_silent(request, Status::Done) {
        return;
    }
    if options.value {
        let mut digits = Vec::with_capacity(20);
        number::write_u64(&mut digits, number);
        reply::write_value_header(out, request, digits.len(), &facts);
        out.extend_from_slice(&digits);
        out.extend_from_slice(LINE_END);
    } else {
        reply::write_item(out, request, Status::Done, &facts);
    }
}

/// `me`: looks up, and leaves no trace on a live item.
fn debug(engine: &engine::Worker, request: &Request<'_>, out: &mut Vec<u8>) {
    let key = engine.key(request.key);
    let section = engine.section();
    let found = section.find(key.hash, key.bytes);
    let Some(item) = found.filter(|item| item.liveness() == Liveness::Live) else {
        if found.is_some() {
            engine.unlink_dead(&section, key);
        }
        return reply::write_status(out, request, Status::Miss);
    };
    let facts = DebugFacts {
        ttl_secs: ttl_of(item.deadline(), engine.now_secs()).map(u64::from),
        last_access_secs: u64::from(item.idle_secs()),
        cas: engine.cas_of(&item),
        fetched: item.is_fetched(),
        class: u64::from(item.class()),
        item_bytes: item.total_bytes(),
        key_is_base64: item.is_base64_key(),
    };
    reply::write_debug(out, request, &facts);
}

/// True if the first flag of one letter precedes the first of the other.
fn precedes(request: &Request<'_>, one: u8, other: u8) -> bool {
    let mut letters = request.flags.filter_map(|word| word.first());
    letters.find(|letter| **letter == one || **letter == other) == Some(&one)
}
