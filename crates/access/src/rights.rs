//! The rights of users on keys: `-o rights=FILE`.
//!
//! ```text
//!     # user     may         keys that begin with
//!     app        readwrite   app: session:
//!     report     read        *
//!     ops        admin
//!     *          read        public:
//! ```
//!
//! A line adds to the user's rights. As the user, `*` means every user without a line, and as a
//! prefix every key. No user has a right without a line that gives it.

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

/// The rights of one user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) admin: bool,
    read: Prefixes,
    write: Prefixes,
}

/// Prefixes of keys; the empty one matches every key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Prefixes(Vec<Box<[u8]>>);

/// A use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The answer reveals the item.
    Read,
    /// The item is changed, created or removed.
    Write,
    /// Both.
    ReadWrite,
}

impl Rights {
    /// True if this is permitted with `key`.
    #[inline]
    pub(crate) fn allow(&self, permission: Permission, key: &[u8]) -> bool {
        match permission {
            Permission::Read => self.read.cover(key),
            Permission::Write => self.write.cover(key),
            Permission::ReadWrite => self.read.cover(key) && self.write.cover(key),
        }
    }
}

impl Prefixes {
    #[inline]
    fn cover(&self, key: &[u8]) -> bool {
        self.0.iter().any(|prefix| key.starts_with(prefix))
    }

    fn add(&mut self, prefix: &str) {
        let prefix = if prefix == EVERYTHING { "" } else { prefix };
        self.0.push(prefix.as_bytes().into());
    }
}

/// The rights of all users.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    by_user: BTreeMap<Box<[u8]>, Arc<Rights>>,
    others: Arc<Rights>,
}

impl Table {
    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// Returns the number of the faulty line, and its fault.
    pub(crate) fn parse(text: &str) -> Result<Self, RightsError> {
        // A byte order mark, which some editors write.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rights: BTreeMap<Box<[u8]>, Rights> = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let mut words = files::without_comment(line).split_ascii_whitespace();
            let Some(user) = words.next() else { continue };
            let user = rights.entry(user.as_bytes().into()).or_default();
            apply(user, words).map_err(|fault| RightsError { line: number, fault })?;
        }
        let others = rights.remove(EVERYTHING.as_bytes()).unwrap_or_default();
        let by_user = rights.into_iter().map(|(user, rights)| (user, Arc::new(rights)));
        Ok(Self { by_user: by_user.collect(), others: Arc::new(others) })
    }

    /// The rights of `user`.
    pub(crate) fn of(&self, user: &[u8]) -> Arc<Rights> {
        Arc::clone(self.by_user.get(user).unwrap_or(&self.others))
    }

    /// The named users, except `*`.
    pub(crate) fn users(&self) -> impl Iterator<Item = &[u8]> {
        self.by_user.keys().map(|user| &**user)
    }
}

/// The faulty line, counted from 1, and its fault.
#[derive(Debug, Error)]
#[error("line {line}: {fault}")]
pub(crate) struct RightsError {
    line: usize,
    fault: LineFault,
}

#[derive(Debug, Error)]
enum LineFault {
    #[error("says nothing after the user")]
    NoRight,
    #[error("'{0}': admin is not limited to keys")]
    AdminOfKeys(String),
    #[error("'{0}' is not one of read, write, readwrite and admin")]
    UnknownRight(String),
    #[error("'{0}' of which keys? '*' is every key")]
    NoKeys(String),
}

/// Adds the rights of the words after the user.
fn apply<'t>(
    rights: &mut Rights,
    mut words: impl Iterator<Item = &'t str>,
) -> Result<(), LineFault> {
    let may = words.next().ok_or(LineFault::NoRight)?;
    let (reads, writes) = match may {
        "read" => (true, false),
        "write" => (false, true),
        "readwrite" => (true, true),
        "admin" => {
            rights.admin = true;
            return match words.next() {
                None => Ok(()),
                Some(word) => Err(LineFault::AdminOfKeys(word.to_owned())),
            };
        }
        other => return Err(LineFault::UnknownRight(other.to_owned())),
    };
    let mut any = false;
    for prefix in words {
        any = true;
        if reads {
            rights.read.add(prefix);
        }
        if writes {
            rights.write.add(prefix);
        }
    }
    if any { Ok(()) } else { Err(LineFault::NoKeys(may.to_owned())) }
}

/// Every key, or every other user.
const EVERYTHING: &str = "*";

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
# who\n\
app   readwrite app: session:\n\
app   read      shared:   # more for the same\n\
ops   admin\n\
\n\
*     read      public:\n";

    #[test]
    fn lines_grant_only_the_listed_rights() {
        let table = Table::parse(FILE).unwrap();
        let app = table.of(b"app");
        assert!(
            app.allow(Permission::ReadWrite, b"app:1") && app.allow(Permission::Write, b"session:")
        );
        assert!(
            app.allow(Permission::Read, b"shared:x") && !app.allow(Permission::Write, b"shared:x")
        );
        assert!(
            !app.allow(Permission::ReadWrite, b"shared:x") && !app.allow(Permission::Read, b"ap")
        );
        assert!(!app.allow(Permission::Read, b"public:x"), "'*' is for others");
        let ops = table.of(b"ops");
        assert!(ops.admin && !ops.allow(Permission::Read, b"public:x"));
        let guest = table.of(b"guest");
        assert!(!guest.admin && guest.allow(Permission::Read, b"public:x"));
        assert!(!guest.allow(Permission::Write, b"public:x"));
        assert!(Table::parse("a write *").unwrap().of(b"a").allow(Permission::Write, b""));
    }

    /// A key may contain it, so it must not split a prefix in two: the first part would allow more.
    #[test]
    fn a_unicode_space_is_part_of_a_prefix() {
        let table = Table::parse("app read team\u{a0}one:").unwrap();
        assert!(table.of(b"app").allow(Permission::Read, "team\u{a0}one:k".as_bytes()));
        assert!(!table.of(b"app").allow(Permission::Read, b"team-two:k"));
    }

    /// For the same reason.
    #[test]
    fn a_hash_sign_inside_a_word_is_part_of_it() {
        let table = Table::parse("a#b readwrite t#1: u|#|:#x # t").unwrap();
        let rights = table.of(b"a#b");
        assert!(rights.allow(Permission::ReadWrite, b"t#1:k"));
        assert!(rights.allow(Permission::ReadWrite, b"u|#|:#x"));
        for key in [&b"t#2:k"[..], b"total", b"u:", b"u|#|:k"] {
            assert!(!rights.allow(Permission::Read, key), "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_name() {
        let table = Table::parse("\u{feff}app read *\r\n").unwrap();
        assert!(table.of(b"app").allow(Permission::Read, b"x"));
        assert_eq!(table.users().collect::<Vec<_>>(), [b"app"]);
    }

    #[test]
    fn an_error_names_its_line() {
        for (text, want) in [
            ("app", "line 1: says nothing"),
            ("\nops admin x:", "line 2: 'x:'"),
            ("app rw *", "line 1: 'rw'"),
            ("a read *\nb write # nothing", "line 2: 'write' of which keys"),
        ] {
            let refusal = Table::parse(text).unwrap_err().to_string();
            assert!(refusal.starts_with(want), "{refusal}");
        }
    }
}
