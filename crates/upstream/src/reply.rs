//! The outcome of a request: a server's answer, or the reason why there is none.

use proto::answer::MetaCode;
use proto::text::Words;
use proto::{Command, CommandClass, Failure, base64};
use spans::{OpenSpan, Value};

/// The outcome of a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// delete found its item.
    Deleted,
    /// cas: the item has changed.
    Exists,
    /// There is no answer, or the server refused.
    Failed(Failure),
    /// A value.
    Found,
    /// lease-get: no fresh value, but the token, and perhaps a stale value.
    Lease,
    /// A reply to a meta command.
    Meta(MetaCode),
    /// The answer to `metaget`.
    MetaInfo,
    /// get: a miss. delete, touch, cas, incr: no such item.
    NotFound,
    /// The condition of add, replace, append, prepend, lease-set does not hold.
    NotStored,
    /// The answer to incr and decr.
    Number,
    /// `flush_all` is done.
    Ok,
    /// delete is done, but the server refused its hold-off, or the empty item that should remain.
    /// The reply's value is the server's text, which the client reads as an error.
    OnlyDeleted,
    /// lease-set: stored as a stale value.
    StaleStored,
    /// Stored.
    Stored,
    /// touch found its item.
    Touched,
    /// The answer to version.
    Version,
}

impl Outcome {
    /// Its rank in mcrouter's order. The worst of several replies has the highest number.
    #[inline]
    #[must_use]
    pub const fn severity(self) -> u8 {
        match self {
            Self::Deleted
            | Self::Found
            | Self::Number
            | Self::Ok
            | Self::StaleStored
            | Self::Stored
            | Self::Touched
            | Self::Version
            | Self::MetaInfo
            | Self::Exists
            | Self::Meta(
                MetaCode::Hd | MetaCode::Va | MetaCode::Me | MetaCode::Mn | MetaCode::Ex,
            ) => 1,
            Self::Lease => 2,
            Self::NotFound
            | Self::NotStored
            | Self::Meta(MetaCode::En | MetaCode::Nf | MetaCode::Ns) => 4,
            // The other servers' failures leave values behind; this does not.
            Self::OnlyDeleted => 5,
            Self::Failed(failure) => match failure {
                Failure::DeadlineExceeded => 7,
                Failure::RemoteError => 8,
                Failure::LocalError => 9,
                Failure::ClientError => 10,
                Failure::Busy
                | Failure::ConnectError
                | Failure::ConnectTimeout
                | Failure::Shutdown
                | Failure::Tko
                | Failure::Timeout
                | Failure::TryAgain => 6,
            },
        }
    }

    /// True for a miss of a get, or a delete that found nothing.
    #[inline]
    #[must_use]
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::NotFound | Self::Lease | Self::Meta(MetaCode::En | MetaCode::Nf))
    }

    /// True if a value was found.
    #[inline]
    #[must_use]
    pub const fn is_hit(self) -> bool {
        matches!(self, Self::Found | Self::Meta(MetaCode::Va | MetaCode::Hd))
    }

    /// Records in a span the outcome of its request, a command `op`.
    pub fn describe(self, op: Command, span: &mut OpenSpan) {
        let is_get = op.class() == CommandClass::Get;
        let outcome = match self {
            Self::Failed(failure) => {
                span.set("error.type", Value::Text(failure.name().to_owned()));
                span.fail(failure.sentence());
                return;
            }
            _ if is_get && self.is_hit() => "hit",
            _ if self.is_miss() => "miss",
            _ if self.severity() > 1 => "refused",
            _ => "done",
        };
        span.set("holdall.outcome", Value::Text(outcome.to_owned()));
    }

    /// The failure, if it is one.
    #[inline]
    #[must_use]
    pub const fn failure(self) -> Option<Failure> {
        match self {
            Self::Failed(failure) => Some(failure),
            _ => None,
        }
    }
}

/// A reply in a connection's buffer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reply<'a> {
    /// The outcome of the request.
    pub outcome: Outcome,
    /// The requested key, if the reply contains one.
    pub key: &'a [u8],
    /// Client flags of a value.
    pub flags: u32,
    /// The cas unique, the lease token, or the number.
    pub number: u64,
    /// The value; for a failure, the server's text (empty: [`Failure::sentence`] applies), as for
    /// [`Outcome::OnlyDeleted`].
    pub value: &'a [u8],
    /// Flag words of a meta reply; the information of `metaget`.
    pub words: &'a [u8],
    /// A refusal by this program: no server has received the request.
    pub is_own: bool,
}

impl<'a> Reply<'a> {
    /// A reply without further content.
    #[inline]
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, key: b"", flags: 0, number: 0, value: b"", words: b"", is_own: false }
    }

    /// A refusal by this program, with the reason. No server has received the request.
    #[inline]
    #[must_use]
    pub const fn refused(why: &'a str) -> Self {
        Self { is_own: true, ..Self::failed(Failure::ClientError, why.as_bytes()) }
    }

    /// A failure with a text.
    #[inline]
    #[must_use]
    pub const fn failed(failure: Failure, words: &'a [u8]) -> Self {
        Self { value: words, ..Self::of(Outcome::Failed(failure)) }
    }

    /// Appends the words of a meta reply `code` for a client that requested `key`, which replaces
    /// the key sent to the server: the word `k`, and the first word of `me`. With `is_base64`, or
    /// if the server says so, the key is written in base64, since only this form of a line holds
    /// any bytes.
    pub fn write_words(&self, out: &mut Vec<u8>, code: MetaCode, key: &[u8], is_base64: bool) {
        let is_encoded = is_base64 || Words::new(self.words).any(|word| word == b"b");
        let tells_key = Words::new(self.words).any(|word| word.first() == Some(&b'k'));
        for (place, word) in Words::new(self.words).enumerate() {
            match word.first() {
                Some(_) if code == MetaCode::Me && place == 0 => {
                    out.push(b' ');
                    write_key(out, key, is_base64);
                }
                Some(b'k') if code != MetaCode::Me => {
                    write_key_words(out, key, is_encoded);
                }
                // It follows the key now.
                Some(b'b') if tells_key && word.len() == 1 => {}
                _ => {
                    out.push(b' ');
                    out.extend_from_slice(word);
                }
            }
        }
    }

    /// A copy of everything that it borrows.
    #[must_use]
    pub fn to_owned(&self) -> OwnedReply {
        OwnedReply {
            outcome: self.outcome,
            key: self.key.to_vec(),
            flags: self.flags,
            number: self.number,
            value: self.value.to_vec(),
            words: self.words.to_vec(),
        }
    }
}

/// Appends the answer to `k`: ` k<key>`, or the key in base64 and ` b`.
pub fn write_key_words(out: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    out.extend_from_slice(b" k");
    write_key(out, key, is_base64);
    out.extend_from_slice(if is_base64 { b" b" } else { b"" });
}

/// Appends a key, plain or in base64.
fn write_key(out: &mut Vec<u8>, key: &[u8], is_base64: bool) {
    if is_base64 {
        base64::encode(key, out);
    } else {
        out.extend_from_slice(key);
    }
}

/// A [`Reply`] that borrows nothing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OwnedReply {
    /// See [`Reply`].
    pub outcome: Outcome,
    /// See [`Reply`].
    pub key: Vec<u8>,
    /// See [`Reply`].
    pub flags: u32,
    /// See [`Reply`].
    pub number: u64,
    /// See [`Reply`].
    pub value: Vec<u8>,
    /// See [`Reply`].
    pub words: Vec<u8>,
}

impl OwnedReply {
    /// A reply without further content.
    #[must_use]
    pub const fn of(outcome: Outcome) -> Self {
        Self { outcome, key: Vec::new(), flags: 0, number: 0, value: Vec::new(), words: Vec::new() }
    }

    /// The reply.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Reply<'_> {
        Reply {
            outcome: self.outcome,
            key: &self.key,
            flags: self.flags,
            number: self.number,
            value: &self.value,
            words: &self.words,
            is_own: false,
        }
    }
}

impl From<Failure> for OwnedReply {
    fn from(failure: Failure) -> Self {
        Self::of(Outcome::Failed(failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(code: MetaCode, told: &str, key: &str, is_base64: bool) -> String {
        let reply = Reply { words: told.as_bytes(), ..Reply::of(Outcome::Meta(code)) };
        let mut out = Vec::new();
        reply.write_words(&mut out, code, key.as_bytes(), is_base64);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_refused_hold_off_is_worse_than_a_miss_and_better_than_a_failure() {
        let rank = Outcome::OnlyDeleted.severity();
        assert!(rank > Outcome::NotFound.severity());
        for failure in Failure::ALL {
            assert!(rank < Outcome::Failed(failure).severity(), "{failure:?}");
        }
    }

    #[test]
    fn replies_contain_the_key_in_the_requested_form() {
        let told = |told, is_base64| words(MetaCode::Va, told, "/k\n", is_base64);
        assert_eq!(told(" f1 kinner O5 t-1", false), " f1 k/k\n O5 t-1");
        assert_eq!(told(" f1 kaw== b O5", true), " f1 kL2sK b O5");
        assert_eq!(told(" b f1 kaw== O5", true), " f1 kL2sK b O5");
        // An item stored without base64, and one stored with it.
        assert_eq!(told(" kinner c1", true), " kL2sK b c1");
        assert_eq!(told(" kaw== b c1", false), " kL2sK b c1");
        assert_eq!(told(" b c1", true), " b c1");
        assert_eq!(told("", true), "");
    }

    #[test]
    fn debug_replies_contain_the_requested_key() {
        let told = "key exp=-1 la=2 cas=3";
        assert_eq!(words(MetaCode::Me, told, "k", false), " k exp=-1 la=2 cas=3");
        assert_eq!(words(MetaCode::Me, told, "k\n", true), " awo= exp=-1 la=2 cas=3");
    }
}
