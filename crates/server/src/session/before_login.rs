//! Requests of a connection on which nobody is logged in.

use memchr::memchr;
use net::{Flow, Input, Output};
use proto::binary::reply as binary_reply;
use proto::binary::{self, Command, Parsed, Status, Then};
use proto::text::Words;
use proto::{Wire, number, reply};

use super::binary::{quit, version};
use super::context::Context;
use super::login;
use super::pending_reply::PendingReply;
use super::state::{Asked, Session, Step};
use crate::auth::UNAUTHENTICATED_BYTES_MAX;

/// The longest line of a login, in bytes.
const LINE_BYTES_MAX: usize = 2048;

/// Serves a connection on which nobody is logged in.
pub(crate) fn serve(
    cx: &mut Context,
    session: &mut Session,
    wire: Wire,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let step = match wire {
        Wire::Text => serve_text(cx, session, input, output),
        Wire::Binary => serve_binary(cx, session, input, output),
    };
    match step {
        Step::Stop(Flow::NeedInput | Flow::Wait)
            if input.bytes().len() > UNAUTHENTICATED_BYTES_MAX =>
        {
            Step::Stop(Flow::Close)
        }
        step => step,
    }
}

/// A line before the login: `set <any> <any> <any> <bytes>`, with `user password` for its data,
/// is one.
fn serve_text(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let bytes = input.bytes();
    let Some(newline) = memchr(b'\n', bytes.get(..=LINE_BYTES_MAX).unwrap_or(bytes)) else {
        let is_long = bytes.len() > LINE_BYTES_MAX;
        return Step::Stop(if is_long { Flow::Close } else { Flow::NeedInput });
    };
    let (line, rest) = (&bytes[..newline], &bytes[newline + 1..]);
    let Some(len) = token_len(line.strip_suffix(b"\r").unwrap_or(line)) else {
        input.consume(newline + 1);
        return PendingReply::of_request().line(output.buf(), reply::UNAUTHENTICATED).into();
    };
    let data_len = len as usize + reply::CRLF.len();
    if newline + data_len >= UNAUTHENTICATED_BYTES_MAX {
        output.buf().extend_from_slice(reply::AUTH_TOKEN_TOO_LONG);
        return Step::Stop(Flow::Close);
    }
    let Some(data) = rest.get(..data_len) else { return Step::Stop(Flow::NeedInput) };
    input.consume(newline + 1 + data_len);
    let pending = PendingReply::of_request();
    let Some(token) = data.strip_suffix(reply::CRLF) else {
        return pending.line(output.buf(), reply::AUTH_BAD_END).into();
    };
    let mut words = Words::new(token);
    let (Some(name), Some(password)) = (words.next(), words.next()) else {
        return pending.line(output.buf(), reply::AUTH_BAD_TOKEN).into();
    };
    login::log_in(cx, session, pending, Asked::Text, name, password, output)
}

/// A packet before the login: some are harmless, SASL is what is waited for, and others end the
/// connection.
fn serve_binary(
    cx: &mut Context,
    session: &mut Session,
    input: &mut Input<'_>,
    output: &mut Output<'_>,
) -> Step {
    let (request, consumed) = match binary::parse(input.bytes()) {
        Parsed::Request { request, consumed } => (request, consumed),
        Parsed::Incomplete => return Step::Stop(Flow::NeedInput),
        Parsed::BadMagic => return Step::Stop(Flow::Close),
        Parsed::Bad(bad) => {
            let status = match bad.then {
                Then::Close => bad.status,
                Then::Swallow(_) => Status::AuthFailure,
            };
            binary_reply::write_error(output.buf(), &bad.header, status);
            return Step::Stop(Flow::Close);
        }
    };
    input.consume(consumed);
    let pending = PendingReply::of_request();
    match request.command {
        Command::SaslList | Command::SaslAuth { .. } | Command::SaslStep { .. } => {
            login::sasl(cx, session, pending, &request, output)
        }
        Command::Version => pending.write(|| version(&request.header, output.buf())).into(),
        Command::Quit => quit(pending, &request, output),
        _ => {
            binary_reply::write_error(output.buf(), &request.header, Status::AuthFailure);
            Step::Stop(Flow::Close)
        }
    }
}

/// The length that a line announces for a login token, if it is one.
fn token_len(line: &[u8]) -> Option<u32> {
    let mut words = Words::new(line);
    if words.next() != Some(b"set") {
        return None;
    }
    words.nth(3).and_then(number::parse_u32)
}
