//! Stores for routes that may put a list or a mark in place of a value.
//!
//! A packet of the binary protocol arrives as `ms`, so that its reply has the cas unique. Such a
//! store, and an `ms` of a text client without other flags, equals a classic command: it reveals
//! nothing of the form of values, and keeps its meaning if its value is replaced.

use std::io::Write;

use proto::answer::MetaCode;
use proto::meta::Options;
use proto::text::Words;
use upstream::{Command, CommandClass, Failure, Outcome, OwnedReply, Request};

use super::{Answer, Route};
use crate::own_reply::own_reply;

/// The flags of such an `ms`: cas unique, client flags, expiry time, mode, opaque and key.
const LETTERS: &[u8] = b"CFMOTck";

/// Returns an `ms` with its classic command, client flags, expiry time and number, but with its
/// words; any other request as it is. Returns `None` for an `ms` with other flags.
pub(super) fn plain_form<'a>(request: &Request<'a>) -> Option<Request<'a>> {
    if request.op != Command::MetaSet {
        return Some(*request);
    }
    let is_plain = |word: &[u8]| word.first().is_some_and(|letter| LETTERS.contains(letter));
    if request.base64 || !Words::new(request.words).all(is_plain) {
        return None;
    }
    let (options, mode) = Options::parse(Words::new(request.words)).ok()?;
    let op = match mode.and_then(|mode| mode.first()).map_or(b'S', u8::to_ascii_uppercase) {
        b'A' => Command::Append,
        b'P' => Command::Prepend,
        b'S' | b'E' | b'R' if options.compare_cas.is_some() => Command::Cas,
        b'E' => Command::Add,
        b'R' => Command::Replace,
        b'S' => Command::Set,
        _ => return None,
    };
    Some(Request {
        op,
        flags: options.client_flags.unwrap_or(0),
        exptime: options.exptime.unwrap_or(0),
        number: options.compare_cas.unwrap_or(0),
        ..*request
    })
}

/// The store of `value` with these additional client flags in place of the value of `request`,
/// whose plain form is `plain`. `words` keeps the words of an `ms`.
pub(super) fn marked<'a>(
    request: &Request<'a>,
    plain: &Request<'_>,
    value: &'a [u8],
    mark: u32,
    words: &'a mut Vec<u8>,
) -> Request<'a> {
    let flags = plain.flags | mark;
    if request.op != Command::MetaSet {
        return Request { value, flags, ..*request };
    }
    // Writing into a vector does not fail.
    let _ = write!(words, "F{flags}");
    for word in Words::new(request.words).filter(|word| word.first() != Some(&b'F')) {
        words.push(b' ');
        words.extend_from_slice(word);
    }
    Request { value, words, ..*request }
}

/// The reply to `request` if a `set` that it needs failed with `reply`.
pub(super) fn failed(reply: OwnedReply, request: &Request<'_>) -> OwnedReply {
    if request.op == Command::MetaSet && reply.outcome.failure().is_none() {
        return own_reply(Outcome::Meta(MetaCode::Ns), request);
    }
    reply
}

/// Returns true if the request stores this client flag, with which a route marks its own items.
pub(super) fn stores_flag(request: &Request<'_>, flag: u32) -> bool {
    let flags = match request.op {
        Command::Append | Command::Prepend => 0,
        Command::MetaSet => match Options::parse(Words::new(request.words)) {
            Ok((_, Some([b'A' | b'P' | b'a' | b'p', ..]))) | Err(_) => 0,
            Ok((options, _)) => options.client_flags.unwrap_or(0),
        },
        op if op.class() == CommandClass::Update => request.flags,
        _ => 0,
    };
    flags & flag != 0
}

/// The reply to a store for which [`stores_flag`] is true.
pub(super) fn refused_flag(route: &dyn Route, flag: u32) -> Answer<'static> {
    let why = format!("{} reserves the client flag {flag}", route.name());
    Box::pin(async move { refused_change(why.as_bytes()) })
}

/// The reply to a change that the form of the present or the new value does not allow.
pub(super) fn refused_change(why: &[u8]) -> OwnedReply {
    OwnedReply { value: why.to_vec(), ..OwnedReply::from(Failure::ClientError) }
}
