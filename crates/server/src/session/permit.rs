//! Refuses requests that the user has no right to, and requests over a limit of their number.
//! [`access::Needs`] lists the needs of each.

use access::{Needs, Permission};
use engine::{Counter, RateReached};
use net::Output;
use proto::Error;
use proto::binary::{self, Command as Binary};
use proto::meta::Command as Meta;
use proto::text::Request;

use super::pending_reply::{PendingReply, Replied};
use super::state::{Session, State};

/// The permission for a request.
#[must_use]
pub(crate) enum Permit {
    /// It was refused, and has its reply.
    Denied(Replied),
    /// It is permitted, and has no reply yet.
    Granted(PendingReply),
}

/// `true` if requests of the session need a check at all.
#[inline]
pub(crate) fn is_judged(engine: &engine::Worker, session: &Session) -> bool {
    // Not `||`: together they are one branch.
    session.login.is_limited() | engine.has_namespaces()
}

/// Refuses a text request that the user has no right to, or that exceeds a limit.
pub(crate) fn judge_text(
    engine: &engine::Worker,
    session: &mut Session,
    pending: PendingReply,
    request: &Request<'_>,
    output: &mut Output<'_>,
) -> Permit {
    let is_delete = match request {
        Request::Delete { .. } | Request::FlushPrefix { .. } => true,
        Request::Meta(meta) => matches!(meta.command, Meta::Delete),
        _ => false,
    };
    let Err(error) = judge(engine, session, Needs::of_text(request), is_delete) else {
        return Permit::Granted(pending);
    };
    if request.data_bytes() > 0 {
        session.state = State::Swallowing(request.data_bytes());
    }
    Permit::Denied(pending.line_unless(request.noreply(), output.buf(), error.line()))
}

/// The refusal of a key of a retrieval line, if it is refused.
#[inline]
pub(crate) fn judge_key(
    engine: &engine::Worker,
    session: &Session,
    touches: bool,
    key: &[u8],
) -> Result<(), Error> {
    if !is_judged(engine, session) {
        return Ok(());
    }
    let permission = if touches { Permission::ReadWrite } else { Permission::Read };
    judge(engine, session, Needs::Key(permission, key), false)
}

/// Refuses a binary request that the user has no right to, or that exceeds a limit.
pub(crate) fn judge_binary(
    engine: &engine::Worker,
    session: &mut Session,
    pending: PendingReply,
    request: &binary::Request<'_>,
    output: &mut Output<'_>,
) -> Permit {
    let is_delete = matches!(request.command, Binary::Delete { .. });
    let needs = Needs::of_binary(&request.command);
    let Err(error) = judge(engine, session, needs, is_delete) else {
        return Permit::Granted(pending);
    };
    if let Binary::Store { value_len, .. } | Binary::Concat { value_len, .. } = request.command
        && value_len > 0
    {
        session.state = State::Swallowing(u64::from(value_len));
    }
    let is_rate = matches!(error, Error::RateOfNamespace | Error::RateOfUser);
    let status = if is_rate { binary::Status::Busy } else { binary::Status::AccessDenied };
    let write = || binary::reply::write_error(output.buf(), &request.header, status);
    Permit::Denied(pending.write(write))
}

/// Returns the refusal of a request with these needs, if it is refused, and counts it.
fn judge(
    engine: &engine::Worker,
    session: &Session,
    needs: Needs<'_>,
    is_delete: bool,
) -> Result<(), Error> {
    if session.login.lacks(needs) {
        engine.count(Counter::AccessDenied);
        return Err(Error::Permission);
    }
    let Needs::Key(_, key) = needs else { return Ok(()) };
    if !engine.has_namespaces() {
        return Ok(());
    }
    engine.admit(session.login.user(), key, is_delete).map_err(|reached| match reached {
        RateReached::Namespace => Error::RateOfNamespace,
        RateReached::User => Error::RateOfUser,
    })
}
