//! Spans of traced requests.
//!
//! A client or a proxy announces a trace by `mn traceparent <context>`, which applies to the next
//! command. If it is sampled, that command has a span from its parsing to its reply. A connection
//! without announcements costs two branches per request. [`times`] of commands are announced the
//! same way.

use net::Output;
use proto::text::{self, GetLine, KeyToken, Parsed, Request, Words};
use proto::{Command, KeyBuf, StoreMode, meta};
use spans::{Context as Trace, Kind, OpenSpan, Value, key_hash};

use super::announced::Announced;
use super::context::Context;
use super::state::{Session, Step};
use super::times;

/// True if the server accepts contexts from clients.
pub(super) fn is_taken(cx: &Context) -> bool {
    cx.shared.exports().is_some_and(|exports| exports.spans.is_some())
}

/// Takes a context that `mn` announces with these words, except from datagrams.
pub(super) fn announce(cx: &Context, session: &mut Session, words: Words<'_>) {
    if !is_taken(cx) || session.is_datagram() {
        return;
    }
    let context = meta::announced_context(words).and_then(Trace::parse);
    let context = context.filter(|context| context.is_sampled);
    session.trace = context.map(|context| Box::new(Announced::Waiting(context)));
}

/// Bytes of a line to wait for: more than a command and its first key.
const LINE_BYTES: usize = 1024;

/// A command starts in `input`: starts its span or its times. False while its line is too short to
/// identify it: a get would otherwise be served from its first word on.
#[cold]
pub(super) fn begin(
    cx: &mut Context,
    session: &mut Session,
    input: &[u8],
    output: &mut Output<'_>,
) -> bool {
    let Some(announced @ (Announced::Waiting(_) | Announced::Untimed)) = session.trace.as_deref()
    else {
        return true;
    };
    if input.len() < LINE_BYTES && !input.contains(&b'\n') {
        return false;
    }
    let mut key_buf = KeyBuf::new();
    let subject = subject(input, &mut key_buf);
    let begun = match announced {
        Announced::Waiting(parent) => {
            let spans = cx.shared.exports().and_then(|exports| exports.spans.as_ref());
            spans.zip(subject).map(|(spans, (command, key))| {
                let mut span = OpenSpan::begin(spans, Some(parent), Kind::Server, command.name());
                span.set("holdall.key.hash", key_hash(key));
                Announced::Running { span, reply_at: Some(output.buf().len()) }
            })
        }
        _ => subject.map(|_| times::begin(cx, input, output)),
    };
    session.trace = begun.map(Box::new);
    true
}

/// A step was taken: checks the reply, and ends the span or the times with it.
#[cold]
pub(super) fn step_taken(session: &mut Session, step: &Step, output: &mut Output<'_>) {
    let is_replied = matches!(step, Step::Replied(_));
    match session.trace.as_deref_mut() {
        Some(Announced::Running { span, reply_at }) => {
            if let Some(at) = *reply_at
                && let Some(reply) = output.buf().get(at..).filter(|reply| !reply.is_empty())
            {
                *reply_at = None;
                describe(span, reply);
            }
            if is_replied
                && let Some(announced) = session.trace.take()
                && let Announced::Running { span, .. } = *announced
            {
                span.end();
            }
        }
        Some(&mut Announced::Timing { wait, began, parsed }) if is_replied => {
            session.trace = times::end(wait, began, parsed, output).map(Box::new);
        }
        _ => {}
    }
}

/// Records the result of the command in a span, by the start of the reply.
fn describe(span: &mut OpenSpan, reply: &[u8]) {
    let word = reply.split(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    let outcome = match word {
        b"VALUE" | b"VA" => "hit",
        b"HD" if span.name() == Command::MetaGet.name() => "hit",
        b"END" | b"EN" | b"NF" | b"NOT_FOUND" | b"LVALUE" => "miss",
        b"NOT_STORED" | b"NS" | b"EXISTS" | b"EX" => "refused",
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => {
            let name = if word == b"CLIENT_ERROR" { "client_error" } else { "server_error" };
            span.set("error.type", Value::Text(name.to_owned()));
            return span.fail(name);
        }
        _ => "done",
    };
    span.set("holdall.outcome", Value::Text(outcome.to_owned()));
}

/// The command at the start of `input`, and its first key.
fn subject<'b>(input: &'b [u8], key_buf: &'b mut KeyBuf) -> Option<(Command, &'b [u8])> {
    let Parsed::Request { request, consumed } = text::parse(input, key_buf) else { return None };
    Some(match request {
        Request::Get(mut line) => {
            let KeyToken::Key { key, .. } = line.next_key(input.get(consumed..)?) else {
                return None;
            };
            (retrieval(&line), key)
        }
        Request::Meta(request) => {
            let command = match request.command {
                meta::Command::Arithmetic { .. } => Command::MetaArithmetic,
                meta::Command::Debug => Command::MetaDebug,
                meta::Command::Delete => Command::MetaDelete,
                meta::Command::Get => Command::MetaGet,
                meta::Command::NoOp => return None,
                meta::Command::Set { .. } => Command::MetaSet,
            };
            (command, request.key)
        }
        Request::Store(store) => (storage(&store), store.key),
        Request::Arithmetic(count) if count.decrement => (Command::Decr, count.key),
        Request::Arithmetic(count) => (Command::Incr, count.key),
        Request::Delete { key, .. } => (Command::Delete, key),
        Request::Touch { key, .. } => (Command::Touch, key),
        Request::Admin(_)
        | Request::FlushAll { .. }
        | Request::FlushPrefix { .. }
        | Request::Quit
        | Request::Version => return None,
    })
}

const fn retrieval(line: &GetLine) -> Command {
    match (line.exptime, line.with_cas) {
        _ if line.with_lease => Command::LeaseGet,
        (None, false) => Command::Get,
        (None, true) => Command::Gets,
        (Some(_), false) => Command::Gat,
        (Some(_), true) => Command::Gats,
    }
}

const fn storage(store: &text::Store<'_>) -> Command {
    match store.mode {
        _ if store.lease.is_some() => Command::LeaseSet,
        _ if store.cas.is_some() => Command::Cas,
        StoreMode::Add => Command::Add,
        StoreMode::Append => Command::Append,
        StoreMode::Prepend => Command::Prepend,
        StoreMode::Replace => Command::Replace,
        StoreMode::Set => Command::Set,
    }
}
