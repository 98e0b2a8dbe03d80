//! Requests that the user has no right to are refused. [`access::Needs`] has what each needs.

use access::{Needs, Permission};
use engine::Counter;
use net::Output;
use proto::Error;
use proto::binary::{self, Command as Binary};
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
    if request.data_bytes() > 0 {
        session.state = State::Swallowing(request.data_bytes());
    }
    engine.count(Counter::AccessDenied);
    let line = Error::Permission.line();
    Permit::Denied(pending.line_unless(request.noreply(), output.buf(), line))
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
