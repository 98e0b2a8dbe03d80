//! The users that may log in: the file of `-Y`, or of `MEMCACHED_SASL_PWDB`.
//!
//! A line is `user:password`, as in memcached; the password is everything after the first `:`. It
//! may be replaced by the output of `holdall passwd`. Empty lines and lines that start with `#` are
//! skipped.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::RandomState;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use scram::{Hash, KEY_BYTES, Key, NoRandomness, Verifier, VerifierError, random};

use crate::rights::{Rights, Table};
use crate::words::split;

/// Some editors begin a file with it. As part of the first name, nobody would see it.
pub(crate) const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Bytes of a new salt.
const SALT_BYTES: usize = 16;

/// Iterations of a new verifier: some milliseconds of work for each guess.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(16_384).unwrap();

/// The maximum number of passwords whose verifiers are made when the file is read.
const PREPARED_MAX: usize = 256;

/// Iterations for a plain password in a file without verifiers: RFC 7677's minimum. More would
/// protect nothing.
const ITERATIONS_LEAST: NonZeroU32 = NonZeroU32::new(4096).unwrap();

/// A user who may log in.
#[derive(Debug)]
pub struct User {
    pub(crate) name: Box<[u8]>,
    password: Password,
    /// Their rights; `None` means all.
    pub(crate) rights: Option<Arc<Rights>>,
}

#[derive(Debug)]
enum Password {
    /// Only known as a verifier, which is slow to check.
    Hashed(Verifier),
    /// Known.
    Known {
        text: Box<[u8]>,
        /// Of the text, under the file's own key, for comparisons with passwords.
        mac: Key,
        sha1: OnceLock<Verifier>,
        sha256: OnceLock<Verifier>,
    },
}

/// All users who may log in.
#[derive(Debug)]
pub(crate) struct Users {
    by_name: HashMap<Box<[u8]>, Arc<User>, RandomState>,
    /// The key under which passwords are compared and salts made up.
    key: [u8; KEY_BYTES],
    /// Stands in for the password of nonexistent users; no password matches it.
    no_password: Key,
    /// Stands in for nonexistent users, so that they cost as much time as others.
    decoy: Option<Verifier>,
}

/// The result of checking a password.
pub(crate) enum Check {
    /// Checked: the user, if it is theirs.
    Done(Option<Arc<User>>),
    /// It is slow: use [`Users::check_slowly`].
    Slow,
}

impl Users {
    /// Reads the file's text. Without `rights`, all users have all rights. Made-up salts depend on
    /// `key`: with the same key a name keeps its salt after a reload, like a real one.
    ///
    /// # Errors
    ///
    /// Returns the number of the faulty line, and its fault.
    pub(crate) fn parse(
        text: &[u8],
        rights: Option<&Table>,
        key: [u8; KEY_BYTES],
    ) -> Result<Self, UsersError> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let mut by_name = HashMap::default();
        let mut decoy = None;
        for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let user =
                user(line, &key, rights).map_err(|fault| UsersError::Line { number, fault })?;
            if let (Password::Hashed(verifier), None) = (&user.password, &decoy) {
                decoy = Some(verifier.clone());
            }
            match by_name.entry(user.name.clone()) {
                Entry::Vacant(place) => drop(place.insert(Arc::new(user))),
                Entry::Occupied(_) => {
                    return Err(UsersError::Line { number, fault: LineError::Twice });
                }
            }
        }
        if by_name.is_empty() {
            return Err(UsersError::NoUser);
        }
        Ok(Self { by_name, key, no_password: nothing(Hash::Sha256, &key), decoy })
    }

    /// Makes the verifiers of the file's plain passwords, for the first 256 of them. Otherwise a
    /// user's first login by SCRAM would take a millisecond more than that of a nonexistent user.
    pub(crate) fn prepare_scram(&self) {
        let known = self.by_name.iter().filter_map(|(name, user)| match &user.password {
            Password::Hashed(_) => None,
            Password::Known { .. } => Some(name),
        });
        for name in known.take(PREPARED_MAX) {
            for hash in [Hash::Sha1, Hash::Sha256] {
                self.verifier(name, hash);
            }
        }
    }

    /// True if a user has this name.
    pub(crate) fn has(&self, name: &[u8]) -> bool {
        self.by_name.contains_key(name)
    }

    /// The user, if their password is unchanged from `old`'s.
    pub(crate) fn renewed(&self, old: &User) -> Option<Arc<User>> {
        let found = self.by_name.get(&old.name)?;
        let is_same = match (&found.password, &old.password) {
            (Password::Hashed(one), Password::Hashed(other)) => {
                one.salt == other.salt && one.stored_key == other.stored_key
            }
            (Password::Known { text: one, .. }, Password::Known { text: other, .. }) => {
                one == other
            }
            _ => false,
        };
        is_same.then(|| Arc::clone(found))
    }

    /// Checks a password, unless that is slow.
    pub(crate) fn check(&self, name: &[u8], password: &[u8]) -> Check {
        let mac = Hash::Sha256.mac(&self.key, password);
        let found = self.by_name.get(name);
        let kept = found.map(|user| &user.password);
        // Compared for every name, since this also takes time.
        let is_equal = match kept {
            Some(Password::Known { mac: known, .. }) => *known == mac,
            Some(Password::Hashed(_)) | None => self.no_password == mac,
        };
        match kept {
            Some(Password::Known { .. }) if is_equal => Check::Done(found.cloned()),
            Some(Password::Hashed(_)) => Check::Slow,
            // As long as for a hashed password.
            Some(Password::Known { .. }) | None if self.decoy.is_some() => Check::Slow,
            Some(Password::Known { .. }) | None => Check::Done(None),
        }
    }

    /// Checks a password, in some milliseconds.
    pub(crate) fn check_slowly(&self, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let found = self.by_name.get(name);
        if let Some(Password::Hashed(verifier)) = found.map(|user| &user.password) {
            return found.filter(|_| verifier.is_of(password)).cloned();
        }
        // The same work for a known answer: a known password has already been compared.
        self.decoy.as_ref().map(|decoy| decoy.is_of(password));
        None
    }

    /// The SCRAM data of `name`; for a nonexistent user, or one whose verifier is for another hash,
    /// similar data that matches no password.
    pub(crate) fn verifier(&self, name: &[u8], hash: Hash) -> (Verifier, Option<Arc<User>>) {
        // Made up for every name, so that nonexistent users cost no more time than others.
        let made_up = self.made_up(name, hash);
        let found = self.by_name.get(name);
        match found.map(|user| &user.password) {
            Some(Password::Hashed(verifier)) if verifier.hash == hash => {
                (verifier.clone(), found.cloned())
            }
            Some(Password::Known { text, sha1, sha256, .. }) => {
                let kept = if hash == Hash::Sha1 { sha1 } else { sha256 };
                let verifier = kept.get_or_init(|| {
                    Verifier::derive(hash, made_up.iterations, &made_up.salt, text)
                });
                (verifier.clone(), found.cloned())
            }
            Some(Password::Hashed(_)) | None => (made_up, None),
        }
    }

    /// The same for the same name and hash, and as long as the file's salts, like a real one.
    fn salt(&self, name: &[u8], hash: Hash) -> Vec<u8> {
        let use_of: &[u8] = match hash {
            Hash::Sha1 => b"sha1 salt of ",
            Hash::Sha256 => b"sha256 salt of ",
        };
        let mac = Hash::Sha256.mac(&self.key, &[use_of, name].concat());
        let len = self.like(hash).map_or(SALT_BYTES, |verifier| verifier.salt.len());
        mac.bytes().iter().copied().cycle().take(len).collect()
    }

    /// The iterations of users without their own in the file: those of the others.
    fn iterations(&self, hash: Hash) -> NonZeroU32 {
        self.like(hash).map_or(ITERATIONS_LEAST, |verifier| verifier.iterations)
    }

    /// A verifier of the file for this hash.
    fn like(&self, hash: Hash) -> Option<&Verifier> {
        self.decoy.as_ref().filter(|verifier| verifier.hash == hash)
    }

    fn made_up(&self, name: &[u8], hash: Hash) -> Verifier {
        let nothing = nothing(hash, &self.key);
        let (salt, iterations) = (self.salt(name, hash).into(), self.iterations(hash));
        Verifier { hash, iterations, salt, stored_key: nothing, server_key: nothing }
    }
}

/// A key in place of one derived from a password.
fn nothing(hash: Hash, key: &[u8]) -> Key {
    hash.mac(key, b"no password")
}

/// The fault of a file of users.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    /// A line is wrong; lines are counted from 1.
    #[error("line {number}: {fault}")]
    Line { number: usize, fault: LineError },
    #[error("names no user")]
    NoUser,
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// The fault of a line.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    #[error("the user stands twice")]
    Twice,
    #[error("is not user:password")]
    NoPassword,
    #[error("has a user name of no or of more than 255 bytes")]
    NameLength,
    #[error("has a user name with a space in it")]
    NameWithSpace,
    #[error("has an empty password")]
    EmptyPassword,
    #[error(transparent)]
    Verifier(#[from] VerifierError),
}

fn user(line: &[u8], key: &[u8], rights: Option<&Table>) -> Result<User, LineError> {
    let (name, password) = split(line, b':').ok_or(LineError::NoPassword)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(LineError::NameLength);
    }
    if name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(LineError::NameWithSpace);
    }
    let password = if Verifier::looks_like_verifier(password) {
        Password::Hashed(Verifier::parse(password)?)
    } else if password.is_empty() {
        return Err(LineError::EmptyPassword);
    } else {
        Password::Known {
            text: password.into(),
            mac: Hash::Sha256.mac(key, password),
            sha1: OnceLock::new(),
            sha256: OnceLock::new(),
        }
    };
    Ok(User { name: name.into(), password, rights: rights.map(|table| table.of(name)) })
}

/// The longest name of a user, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// No line can be made.
#[derive(Debug, thiserror::Error)]
pub enum UsersLineError {
    /// The name cannot appear in a line.
    #[error("a user's name is not empty and has no space, ':' or '#' in it")]
    Name,
    /// An empty password is useless.
    #[error("the password is empty")]
    EmptyPassword,
    /// The system gives no random numbers for the salt.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// A line for the users file: `user` with the verifier of `password`, under a new salt.
///
/// # Errors
///
/// Fails for an invalid name or password, or if the system gives no random numbers.
pub fn users_line(user: &str, password: &[u8]) -> Result<String, UsersLineError> {
    if user.is_empty() || user.contains([':', '#']) || user.contains(char::is_whitespace) {
        return Err(UsersLineError::Name);
    }
    if password.is_empty() {
        return Err(UsersLineError::EmptyPassword);
    }
    let salt: [u8; SALT_BYTES] = random()?;
    Ok(format!("{user}:{}", Verifier::derive(Hash::Sha256, ITERATIONS, &salt, password)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; KEY_BYTES] = [7; KEY_BYTES];

    fn parse(text: &[u8]) -> Result<Users, UsersError> {
        Users::parse(text, None, KEY)
    }

    fn is_let_in(users: &Users, name: &[u8], password: &[u8]) -> bool {
        match users.check(name, password) {
            Check::Done(user) => user.is_some(),
            Check::Slow => users.check_slowly(name, password).is_some(),
        }
    }

    #[test]
    fn plain_and_hashed_passwords_allow_a_login() {
        let hashed = users_line("hashed", b"secret").unwrap();
        let text = format!("# users\nplain:pass:word\r\n\n{hashed}\n");
        let users = parse(text.as_bytes()).unwrap();
        assert!(is_let_in(&users, b"plain", b"pass:word"));
        assert!(is_let_in(&users, b"hashed", b"secret"));
        for (name, password) in
            [("plain", "pass"), ("hashed", "Secret"), ("nobody", "secret"), ("", ""), ("plain", "")]
        {
            assert!(!is_let_in(&users, name.as_bytes(), password.as_bytes()), "{name} {password}");
        }
        assert!(matches!(users.check(b"nobody", b"x"), Check::Slow), "as long as for a real user");
    }

    #[test]
    fn a_byte_order_mark_is_not_part_of_the_first_name() {
        let users = parse(b"\xef\xbb\xbfann:pw\r\nbob:\xef\xbb\xbfpw\r\n").unwrap();
        assert!(is_let_in(&users, b"ann", b"pw"));
        assert!(is_let_in(&users, b"bob", b"\xef\xbb\xbfpw"), "only the first one is a mark");
        let users = parse(b"\xef\xbb\xbf# users\nann:pw\n").unwrap();
        assert!(is_let_in(&users, b"ann", b"pw"));
    }

    #[test]
    fn two_lines_for_one_password_differ() {
        let line = || users_line("me", b"secret").unwrap();
        assert_ne!(line(), line());
        assert!(line().starts_with("me:SCRAM-SHA-256$16384:"));
    }

    #[test]
    fn an_error_names_its_line_but_not_the_password() {
        for (text, want) in [
            ("a:b\nsecret", "line 2: is not"),
            (":b", "line 1: has a user name"),
            ("a b:c", "line 1: has a user name"),
            ("a:", "line 1: has an empty"),
            ("a:b\na:c", "line 2: the user stands twice"),
            ("a:SCRAM-SHA-256$4096:x", "line 1: lacks"),
            ("\n# none\n", "names no user"),
        ] {
            let refusal = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(refusal.starts_with(want), "{text:?}: {refusal}");
        }
    }

    #[test]
    fn a_changed_password_revokes_existing_logins() {
        let old = parse(b"a:1\nb:2\nc:3\n").unwrap();
        let new = parse(b"a:1\nb:x\n").unwrap();
        let renewed = |name: &[u8]| new.renewed(old.by_name.get(name).unwrap()).is_some();
        assert_eq!((renewed(b"a"), renewed(b"b"), renewed(b"c")), (true, false, false));
    }

    /// Two queries for a nonexistent user must look like those for an existing one, also after a
    /// reload.
    #[test]
    fn a_fake_verifier_is_stable_across_reloads() {
        let users = parse(b"a:1\n").unwrap();
        let reread = parse(b"a:1\nb:2\n").unwrap();
        let (one, user) = users.verifier(b"nobody", Hash::Sha256);
        let (again, _) = reread.verifier(b"nobody", Hash::Sha256);
        let (real, _) = users.verifier(b"a", Hash::Sha256);
        assert!(user.is_none() && one.salt == again.salt);
        assert_eq!(real.salt, reread.verifier(b"a", Hash::Sha256).0.salt);
        assert_eq!((one.salt.len(), one.iterations), (real.salt.len(), real.iterations));
        assert!(!one.is_of(b"") && real.is_of(b"1"));
    }

    /// For every user and hash: the same iterations, a salt of the same length, and no salt common
    /// to two hashes.
    #[test]
    fn verifiers_do_not_reveal_the_kind_of_user() {
        let hashed = users_line("hashed", b"secret").unwrap();
        let users = parse(format!("plain:pass\n{hashed}\n").as_bytes()).unwrap();
        for hash in [Hash::Sha1, Hash::Sha256] {
            let shape = |name: &[u8]| {
                let verifier = users.verifier(name, hash).0;
                (verifier.iterations, verifier.salt.len())
            };
            assert_eq!(shape(b"plain"), shape(b"hashed"), "{hash:?}");
            assert_eq!(shape(b"nobody"), shape(b"hashed"), "{hash:?}");
        }
        for name in [b"plain", b"hashed".as_slice(), b"nobody"] {
            let salt = |hash| users.verifier(name, hash).0.salt;
            assert_ne!(salt(Hash::Sha1), salt(Hash::Sha256), "{}", name.escape_ascii());
        }
        assert!(users.verifier(b"plain", Hash::Sha256).0.is_of(b"pass"));
    }

    /// The time of a refusal reveals nothing: with verifiers each wrong password costs work.
    #[test]
    fn a_wrong_password_costs_as_much_as_an_unknown_user() {
        let hashed = users_line("hashed", b"secret").unwrap();
        let users = parse(format!("plain:pass\n{hashed}\n").as_bytes()).unwrap();
        for name in [b"plain".as_slice(), b"hashed", b"nobody"] {
            assert!(matches!(users.check(name, b"wrong"), Check::Slow), "{}", name.escape_ascii());
            assert!(users.check_slowly(name, b"wrong").is_none());
        }
    }

    #[test]
    fn verifiers_of_plain_passwords_can_be_precomputed() {
        let users = parse(b"a:1\nb:2\n").unwrap();
        users.prepare_scram();
        let is_made = |user: &Arc<User>| match &user.password {
            Password::Known { sha1, sha256, .. } => sha1.get().is_some() && sha256.get().is_some(),
            Password::Hashed(_) => false,
        };
        assert!(users.by_name.values().all(is_made));
    }
}
