//! The canary's row or message, and the keys that represent one beat of it in every cluster.

use bytes::Bytes;

/// The prefix of the canary's messages in PostgreSQL's log.
pub const MESSAGE_PREFIX: &str = "holdall-canary";

/// The columns of the canary's table.
pub const COLUMNS: [&str; 2] = ["beat", "name"];

/// The change that the invalidator writes and follows through the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryRule {
    /// The table with the canary's row, `schema.name`; none for messages in PostgreSQL's log.
    pub table: Option<String>,
    /// The name of this invalidator's row, which no other invalidator has.
    pub name: String,
    /// The prefixes of the keys; each is also the prefix of its own keys.
    pub prefixes: Vec<String>,
    /// Keys per prefix, distributed over a cluster's servers.
    pub keys: u32,
}

impl CanaryRule {
    /// The keys of a beat. The part before the hash stop is the same for each beat, so a key is
    /// always on the same server, unless the pool hashes whole keys.
    pub fn keys(&self, beat: u64) -> impl Iterator<Item = Bytes> {
        let numbered = |prefix| (0..self.keys).map(move |number| (prefix, number));
        let key =
            move |(prefix, number)| Bytes::from(format!("{prefix}{}:{number}|#|{beat}", self.name));
        self.prefixes.iter().flat_map(numbered).map(key)
    }

    /// The message that carries a beat.
    #[must_use]
    pub fn message(&self, beat: u64) -> String {
        format!("{} {beat}", self.name)
    }

    /// The beat of a message, if it is a canary's.
    #[must_use]
    pub fn beat_of(&self, prefix: &str, content: &[u8]) -> Option<u64> {
        if prefix != MESSAGE_PREFIX || self.table.is_some() {
            return None;
        }
        let (name, beat) = std::str::from_utf8(content).ok()?.split_once(' ')?;
        if name == self.name { beat.parse().ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beat_has_its_own_keys_and_message() {
        let prefixes = vec!["a:".to_owned(), "b:".to_owned()];
        let rule = CanaryRule { table: None, name: "n".to_owned(), prefixes, keys: 2 };
        let keys: Vec<Bytes> = rule.keys(7).collect();
        assert_eq!(keys, ["a:n:0|#|7", "a:n:1|#|7", "b:n:0|#|7", "b:n:1|#|7"]);
        assert_eq!(rule.beat_of(MESSAGE_PREFIX, rule.message(7).as_bytes()), Some(7));
        for (prefix, content) in
            [("mc", "n 7"), (MESSAGE_PREFIX, "m 7"), (MESSAGE_PREFIX, "n x"), (MESSAGE_PREFIX, "n")]
        {
            assert_eq!(rule.beat_of(prefix, content.as_bytes()), None, "{prefix} {content}");
        }
    }
}
