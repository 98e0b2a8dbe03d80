//! The permission that each request requires.
//!
//! A request that answers with the value, or with facts about the item, requires the right to read.
//! One that changes the item requires the right to write. One that does both requires both: incr,
//! decr and `ma`, gat and gats, `mg` when it creates the item or gives it a new lifetime, `ms` that
//! appends and asks for the size, and a lease, which is a promise to fill. A whole prefix may be
//! invalidated by a user who may write every key under it. The other commands require `admin`,
//! except those that show nothing of items and change nothing.
//!
//! A user with only the right to write learns whether the item exists, the cas unique of a stored
//! value, and whether an append makes the item too large, and nothing else of the earlier item.

use proto::StoreMode;
use proto::binary::Command as Binary;
use proto::meta::{self, Command as Meta, reply};
use proto::text::Request;

use crate::login::Login;
use crate::rights::Permission;

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'b> {
    /// The right to administer.
    Admin,
    /// A right to this key.
    Key(Permission, &'b [u8]),
    /// None, or its keys are judged one by one.
    Nothing,
}

impl Login {
    /// True if the user lacks this permission.
    #[must_use]
    pub fn lacks(&self, needs: Needs<'_>) -> bool {
        match needs {
            Needs::Admin => self.forbids_admin(),
            Needs::Key(permission, key) => self.forbids(permission, key),
            Needs::Nothing => false,
        }
    }
}

impl<'b> Needs<'b> {
    /// The needs of a text request.
    #[must_use]
    pub fn of_text(request: &Request<'b>) -> Self {
        match *request {
            Request::Admin(_) | Request::FlushAll { .. } => Self::Admin,
            Request::Arithmetic(text) => Self::Key(Permission::ReadWrite, text.key),
            Request::FlushPrefix { prefix, .. } => Self::Key(Permission::Write, prefix),
            Request::Delete { key, .. } | Request::Touch { key, .. } => {
                Self::Key(Permission::Write, key)
            }
            Request::Meta(ref meta) => Self::of_meta(meta),
            Request::Store(store) => Self::Key(Permission::Write, store.key),
            Request::Get(_) | Request::Quit | Request::Version => Self::Nothing,
        }
    }

    /// The needs of a meta request.
    #[must_use]
    pub fn of_meta(request: &meta::Request<'b>) -> Self {
        let options = &request.options;
        let changes = options.autoviv_exptime.is_some()
            || options.exptime.is_some()
            || options.new_cas.is_some()
            || options.lease.is_some();
        match request.command {
            Meta::Get if changes => Self::Key(Permission::ReadWrite, request.key),
            Meta::Get | Meta::Debug => Self::Key(Permission::Read, request.key),
            Meta::Set { mode: StoreMode::Append | StoreMode::Prepend, .. }
                if reply::returns_fact(request, b's') =>
            {
                Self::Key(Permission::ReadWrite, request.key)
            }
            Meta::Set { .. } | Meta::Delete => Self::Key(Permission::Write, request.key),
            Meta::Arithmetic { .. } => Self::Key(Permission::ReadWrite, request.key),
            Meta::NoOp => Self::Nothing,
        }
    }

    /// The needs of a binary request.
    #[must_use]
    pub fn of_binary(command: &Binary<'b>) -> Self {
        match *command {
            Binary::Store { key, .. } | Binary::Concat { key, .. } => {
                Self::Key(Permission::Write, key)
            }
            Binary::Get { key, exptime: None, .. } => Self::Key(Permission::Read, key),
            Binary::Get { key, .. } | Binary::Arithmetic { key, .. } => {
                Self::Key(Permission::ReadWrite, key)
            }
            Binary::Delete { key } | Binary::Touch { key, .. } => Self::Key(Permission::Write, key),
            Binary::Flush { .. } | Binary::Stat { .. } => Self::Admin,
            Binary::NoOp
            | Binary::Quit
            | Binary::Version
            | Binary::SaslList
            | Binary::SaslAuth { .. }
            | Binary::SaslStep { .. } => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::KeyBuf;
    use proto::meta::Command;
    use proto::meta::reply::{ItemFacts, Status, write_item};
    use proto::text::{self, Parsed};

    use super::*;

    /// The reply to a command that found this item.
    fn reply(request: &meta::Request<'_>, before: &ItemFacts) -> Vec<u8> {
        let appends = matches!(
            request.command,
            Command::Set { mode: StoreMode::Append | StoreMode::Prepend, .. }
        );
        let value_bytes = if appends { before.value_bytes } else { 1 };
        let mut out = Vec::new();
        write_item(&mut out, request, Status::Done, &ItemFacts { value_bytes, cas: 1, ..*before });
        out
    }

    #[test]
    fn write_permission_reveals_nothing_about_the_old_item() {
        let before = ItemFacts::default();
        let other = ItemFacts {
            flags: 5,
            hit_before: true,
            last_access_secs: 6,
            value_bytes: 7,
            ttl_secs: Some(8),
            ttl_secs_before: Some(9),
            ..before
        };
        let mut readers = 0;
        for command in
            ["mg k", "me k", "ms k 1", "ms k 1 MA", "ms k 1 MP", "ms k 1 MR", "md k", "ma k"]
        {
            for (letter, rest) in
                (b'a'..=b'z').flat_map(|letter| ["", "1", "x"].map(|r| (letter, r)))
            {
                let line = format!("{command} {}{rest}\r\n", char::from(letter));
                let mut key = KeyBuf::new();
                let parsed = text::parse(line.as_bytes(), &mut key);
                let Parsed::Request { request: Request::Meta(request), .. } = parsed else {
                    continue;
                };
                if reply(&request, &before) == reply(&request, &other) {
                    continue;
                }
                readers += 1;
                let needs = Needs::of_meta(&request);
                assert!(!matches!(needs, Needs::Key(Permission::Write, _)), "{line}: {needs:?}");
            }
        }
        assert!(readers > 0);
    }
}
