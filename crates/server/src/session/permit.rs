//! Requests that the user has no right to are refused. [`access::Needs`] has what each needs.

use access::{Needs, Permission};
use engine::Counter;
use net::Output;
use proto::Error;
use proto::binary::{self, Command as Binary};
use proto::meta::Command as Meta;
use proto::reply;
use proto::text::Request;

use super::pending_reply::{PendingReply, Replied};
use super::state::{Session, State};

/// Whether a request may be served.
#[must_use]
pub(crate) enum Permit {
    /// It was refused, and has its reply.
    Denied(Replied),
    /// It may, and is still to be answered.
    Granted(PendingReply),
}

/// Refuses a text request that the user has no right to.
pub(crate) fn denies_text(
    engine: &engine::Worker,
    session: &mut Session,
    pending: PendingReply,
    request: &Request<'_>,
    output: &mut Output<'_>,
) -> Permit {
    if !session.login.lacks(Needs::of_text(request)) {
        return Permit::Granted(pending);
    }
    let (data_bytes, noreply) = data_and_noreply(request);
    if data_bytes > 0 {
        session.state = State::Swallowing(data_bytes);
    }
    engine.count(Counter::AccessDenied);
    let line = Error::Permission.line();
    Permit::Denied(pending.line_unless(noreply, output.buf(), line))
}

/// Whether a key of a retrieval line is not the user's to see. Counted.
pub(crate) fn denies_key(
    engine: &engine::Worker,
    session: &Session,
    touches: bool,
    key: &[u8],
) -> bool {
    let permission = if touches { Permission::ReadWrite } else { Permission::Read };
    let is_denied = session.login.forbids(permission, key);
    if is_denied {
        engine.count(Counter::AccessDenied);
    }
    is_denied
}

/// Refuses a binary request that the user has no right to.
pub(crate) fn denies_binary(
    engine: &engine::Worker,
    session: &mut Session,
    pending: PendingReply,
    request: &binary::Request<'_>,
    output: &mut Output<'_>,
) -> Permit {
    if !session.login.lacks(Needs::of_binary(&request.command)) {
        return Permit::Granted(pending);
    }
    if let Binary::Store { value_len, .. } | Binary::Concat { value_len, .. } = request.command
        && value_len > 0
    {
        session.state = State::Swallowing(u64::from(value_len));
    }
    engine.count(Counter::AccessDenied);
    let status = binary::Status::AccessDenied;
    let write = || binary::reply::write_error(output.buf(), &request.header, status);
    Permit::Denied(pending.write(write))
}

/// The bytes of data behind a request, and whether it wants no answer.
fn data_and_noreply(request: &Request<'_>) -> (u64, bool) {
    let data_bytes = |len: u32| u64::from(len) + reply::CRLF.len() as u64;
    match *request {
        Request::Admin(ref admin) => (0, admin.noreply),
        Request::Arithmetic(text) => (0, text.noreply),
        Request::FlushAll { noreply, .. }
        | Request::FlushPrefix { noreply, .. }
        | Request::Delete { noreply, .. }
        | Request::Touch { noreply, .. } => (0, noreply),
        Request::Meta(ref meta) => match meta.command {
            Meta::Set { len, .. } => (data_bytes(len), false),
            _ => (0, false),
        },
        Request::Store(store) => (data_bytes(store.len), store.noreply),
        Request::Get(_) | Request::Quit | Request::Version => (0, false),
    }
}
