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

/// The tokens of a request, one for each limit of requests per second.
#[derive(Clone, Copy)]
enum Tokens {
    /// It is refused without them.
    Needed,
    /// It takes those that there are: without it, an old value would stay.
    Spare,
    /// [`hold_off`] takes them.
    Later,
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
    let tokens = match request {
        Request::FlushPrefix { .. } => Tokens::Spare,
        Request::Meta(meta) if meta.command == Meta::Delete && meta.options.under => Tokens::Spare,
        Request::Meta(meta) if meta.command == Meta::Delete => Tokens::Later,
        Request::Delete { .. } => Tokens::Later,
        _ => Tokens::Needed,
    };
    let Err(error) = judge(engine, session, Needs::of_text(request), tokens) else {
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
    judge(engine, session, needs_of_key(touches, key), Tokens::Needed)
}

/// The needs of a key of a retrieval line.
#[inline]
pub(crate) fn needs_of_key(touches: bool, key: &[u8]) -> Needs<'_> {
    let permission = if touches { Permission::ReadWrite } else { Permission::Read };
    Needs::Key(permission, key)
}

/// Takes the tokens of a delete, and returns the seconds of its hold-off. `None` if a limit of
/// requests refuses the hold-off; the delete is never refused.
pub(crate) fn hold_off(
    engine: &engine::Worker,
    session: &Session,
    key: &[u8],
    secs: u32,
) -> Option<u32> {
    if !engine.has_namespaces() {
        return Some(secs);
    }
    let reached = engine.admit(session.login.user(), key, secs == 0).err();
    if reached == Some(RateReached::User) {
        // The delete is executed, so its namespace counts it as any other.
        let _ = engine.admit(None, key, true);
    }
    reached.is_none().then_some(secs)
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
    let tokens = if is_delete { Tokens::Spare } else { Tokens::Needed };
    let needs = Needs::of_binary(&request.command);
    let Err(error) = judge(engine, session, needs, tokens) else {
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

/// Returns the refusal of a request that the user has no right to, and counts it. Takes no tokens.
pub(crate) fn judge_rights(
    engine: &engine::Worker,
    session: &Session,
    needs: Needs<'_>,
) -> Result<(), Error> {
    if session.login.lacks(needs) {
        engine.count(Counter::AccessDenied);
        return Err(Error::Permission);
    }
    Ok(())
}

/// Returns the refusal of a request with these needs, if it is refused, and counts it.
fn judge(
    engine: &engine::Worker,
    session: &Session,
    needs: Needs<'_>,
    tokens: Tokens,
) -> Result<(), Error> {
    judge_rights(engine, session, needs)?;
    let Needs::Key(_, key) = needs else { return Ok(()) };
    if !engine.has_namespaces() {
        return Ok(());
    }
    let takes_spare = match tokens {
        Tokens::Needed => false,
        Tokens::Spare => true,
        Tokens::Later => return Ok(()),
    };
    engine.admit(session.login.user(), key, takes_spare).map_err(|reached| match reached {
        RateReached::Namespace => Error::RateOfNamespace,
        RateReached::User => Error::RateOfUser,
    })
}
