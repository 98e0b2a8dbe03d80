//! Logins by HTTP's Basic scheme, among the users of a file as in `serve -Y`.

use std::collections::VecDeque;
use std::path::Path;

use access::{Auth, FileError, Files, REFUSAL_DELAY};
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use scram::{Hash, Key, random};

/// Maximum number of remembered logins; the oldest is checked again.
const KNOWN_MAX: usize = 64;

/// Maximum number of bytes in a login's header.
const HEADER_BYTES_MAX: usize = 1024;

/// The users.
#[derive(Debug)]
pub(crate) struct Logins {
    auth: Auth,
    /// Accepted headers, under a key of this process: checking a password takes milliseconds, and a
    /// page sends many requests.
    known: Mutex<VecDeque<(Key, String)>>,
    key: [u8; 32],
    /// One password is checked at a time, whatever client guesses.
    turn: tokio::sync::Mutex<()>,
}

impl Logins {
    /// Reads the file of users. `warn` gets its faults that do not prevent its use.
    ///
    /// # Errors
    ///
    /// When it is unusable, or the system provides no random numbers.
    pub(crate) fn open(file: &Path, warn: impl Fn(access::Warning<'_>)) -> Result<Self> {
        let users = std::path::absolute(file).with_context(|| file.display().to_string())?;
        let files = Files { users, rights: None, sasl: false };
        let auth =
            Auth::open(files, warn).map_err(|error: FileError| anyhow::anyhow!("{error}"))?;
        let key = random().map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Self { auth, known: Mutex::default(), key, turn: tokio::sync::Mutex::default() })
    }

    /// The user whose name and password are in the header. A refusal takes a second.
    pub(crate) async fn user(&self, header: Option<&str>) -> Option<String> {
        let header = header.filter(|header| header.len() <= HEADER_BYTES_MAX)?;
        let mac = Hash::Sha256.mac(&self.key, header.as_bytes());
        let find = || {
            let known = self.known.lock();
            known.iter().find(|(known, _)| *known == mac).map(|(_, name)| name.clone())
        };
        if let Some(name) = find() {
            return Some(name);
        }
        let (name, password) = parts(header)?;
        let turn = self.turn.lock().await;
        let is_right = match find() {
            Some(_) => true,
            None => tokio::task::block_in_place(|| {
                self.auth.is_user(name.as_bytes(), password.as_bytes())
            }),
        };
        drop(turn);
        if !is_right {
            tokio::time::sleep(REFUSAL_DELAY).await;
            return None;
        }
        let mut known = self.known.lock();
        if known.len() == KNOWN_MAX {
            known.pop_front();
        }
        known.push_back((mac, name.clone()));
        Some(name)
    }
}

/// Name and password of `Basic BASE64`.
fn parts(header: &str) -> Option<(String, String)> {
    let (scheme, encoded) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = text.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn only_users_of_the_file_can_log_in() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("users");
        let line = access::users_line("ann", b"a:b c").unwrap();
        std::fs::write(&file, format!("{line}\nbob:plain\n")).unwrap();
        let logins = Logins::open(&file, |_| {}).unwrap();
        for _ in 0..2 {
            assert_eq!(logins.user(Some(&header("ann:a:b c"))).await.as_deref(), Some("ann"));
            assert_eq!(logins.user(Some(&header("bob:plain"))).await.as_deref(), Some("bob"));
        }
        assert_eq!(logins.known.lock().len(), 2, "each is remembered once");
        for wrong in ["ann:x", "carol:plain", "", "bob"] {
            assert_eq!(logins.user(Some(&header(wrong))).await, None, "{wrong}");
        }
        for wrong in [None, Some("Basic"), Some("Bearer x"), Some("Basic !")] {
            assert_eq!(logins.user(wrong).await, None);
        }
    }
}
