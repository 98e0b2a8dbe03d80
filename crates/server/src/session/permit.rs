//! The permission that each request requires.
//!
//! A request that answers with the value, or with facts about the item, requires the right to read.
//! One that changes the item requires the right to write. One that does both requires both: incr,
//! decr and `ma`, gat and gats, `mg` when it creates the item or gives it a new lifetime, and a
//! lease, which is a promise to fill. A whole prefix may be invalidated by a user who may write
//! every key under it. The other commands require `admin`, except those that show nothing of items
//! and change nothing.

use engine::Counter;
use net::Output;
use proto::Error;
use proto::binary::{self, Command as Binary};
use proto::meta::{self, Command as Meta};
use proto::reply;
use proto::text::Request;

use super::pending_reply::{PendingReply, Replied};
use super::state::{Session, State};
use crate::auth::rights::Permission;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs<'b> {
    /// The right to administer.
    Admin,
    /// A right to this key.
    Key(Permission, &'b [u8]),
    /// Nothing, or its keys are judged one by one.
    Nothing,
}

/// Whether a request may be served.
#[must_use]
pub(crate) enum Permit {
    /// It was refused, and has its reply.
    Denied(Replied),
    /// It may, and is still to be answered.
    Granted(PendingReply),
}

impl Session {
    fn lacks(&self, needs: Needs<'_>) -> bool {
        match needs {
            Needs::Admin => self.login.forbids_admin(),
            Needs::Key(permission, key) => self.login.forbids(permission, key),
            Needs::Nothing => false,
        }
    }
}

/// Refuses a text request that the user has no right to.
pub(crate) fn denies_text(
    engine: &engine::Worker,
    session: &mut Session,
    pending: PendingReply,
    request: &Request<'_>,
    output: &mut Output<'_>,
) -> Permit {
    let (needs, data_bytes, noreply) = text_needs(request);
    if !session.lacks(needs) {
        return Permit::Granted(pending);
    }
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
    let (needs, value_bytes) = binary_needs(&request.command);
    if !session.lacks(needs) {
        return Permit::Granted(pending);
    }
    if value_bytes > 0 {
        session.state = State::Swallowing(u64::from(value_bytes));
    }
    engine.count(Counter::AccessDenied);
    let status = binary::Status::AccessDenied;
    let write = || binary::reply::write_error(output.buf(), &request.header, status);
    Permit::Denied(pending.write(write))
}

/// What a text request needs, the bytes of data behind it, and whether it wants no answer.
fn text_needs<'b>(request: &Request<'b>) -> (Needs<'b>, u64, bool) {
    let data_bytes = |len: u32| u64::from(len) + reply::CRLF.len() as u64;
    match *request {
        Request::Admin(ref admin) => (Needs::Admin, 0, admin.noreply),
        Request::FlushAll { noreply, .. } => (Needs::Admin, 0, noreply),
        Request::Arithmetic(text) => (Needs::Key(Permission::ReadWrite, text.key), 0, text.noreply),
        Request::FlushPrefix { prefix, noreply } => {
            (Needs::Key(Permission::Write, prefix), 0, noreply)
        }
        Request::Delete { key, noreply, .. } | Request::Touch { key, noreply, .. } => {
            (Needs::Key(Permission::Write, key), 0, noreply)
        }
        Request::Meta(ref meta) => match meta.command {
            Meta::Set { len, .. } => (meta_needs(meta), data_bytes(len), false),
            _ => (meta_needs(meta), 0, false),
        },
        Request::Store(store) => {
            (Needs::Key(Permission::Write, store.key), data_bytes(store.len), store.noreply)
        }
        Request::Get(_) | Request::Quit | Request::Version => (Needs::Nothing, 0, false),
    }
}

fn meta_needs<'b>(request: &meta::Request<'b>) -> Needs<'b> {
    let options = &request.options;
    let changes = options.autoviv_exptime.is_some()
        || options.exptime.is_some()
        || options.new_cas.is_some()
        || options.lease.is_some();
    match request.command {
        Meta::Get if changes => Needs::Key(Permission::ReadWrite, request.key),
        Meta::Get | Meta::Debug => Needs::Key(Permission::Read, request.key),
        Meta::Set { .. } | Meta::Delete => Needs::Key(Permission::Write, request.key),
        Meta::Arithmetic { .. } => Needs::Key(Permission::ReadWrite, request.key),
        Meta::NoOp => Needs::Nothing,
    }
}

/// What a binary request needs, and the bytes of value behind it.
fn binary_needs<'b>(command: &Binary<'b>) -> (Needs<'b>, u32) {
    match *command {
        Binary::Store { key, value_len, .. } | Binary::Concat { key, value_len, .. } => {
            (Needs::Key(Permission::Write, key), value_len)
        }
        Binary::Get { key, exptime: None, .. } => (Needs::Key(Permission::Read, key), 0),
        Binary::Get { key, .. } | Binary::Arithmetic { key, .. } => {
            (Needs::Key(Permission::ReadWrite, key), 0)
        }
        Binary::Delete { key } | Binary::Touch { key, .. } => {
            (Needs::Key(Permission::Write, key), 0)
        }
        Binary::Flush { .. } | Binary::Stat { .. } => (Needs::Admin, 0),
        Binary::NoOp
        | Binary::Quit
        | Binary::Version
        | Binary::SaslList
        | Binary::SaslAuth { .. }
        | Binary::SaslStep { .. } => (Needs::Nothing, 0),
    }
}
