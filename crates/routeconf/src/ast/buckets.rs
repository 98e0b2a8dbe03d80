//! `bucketize`: counts keys into buckets; mcrouter's weighted hashes choose a server by the
//! bucket's number.

use std::io::Write;

use hashing::furc_hash;

/// Maximum number of digits of a bucket's number.
const DIGITS_MAX: usize = 10;

/// The rule that maps keys to buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// `total_buckets`.
    pub total: u32,
    /// `total_buckets_by_prefix`: limits the number of buckets of keys with this prefix. The
    /// longest prefix wins.
    pub by_prefix: Vec<(String, u32)>,
    /// `salt`: appended to the key.
    pub salt: String,
    /// `bucketization_keyspace`: the owner of these buckets, for display.
    pub keyspace: String,
}

impl Buckets {
    /// The bucket of a key of which this part is hashed, below [`Buckets::total`]; as in mcrouter.
    #[must_use]
    pub fn of(&self, part: &[u8]) -> u32 {
        if self.salt.is_empty() {
            return self.salted(part);
        }
        self.salted(&[part, self.salt.as_bytes()].concat())
    }

    fn salted(&self, key: &[u8]) -> u32 {
        let own = self.by_prefix.iter().filter(|(prefix, _)| key.starts_with(prefix.as_bytes()));
        match own.max_by_key(|(prefix, _)| prefix.len()) {
            Some((prefix, buckets)) => {
                let group = format!("{prefix}{}", furc_hash(key, *buckets));
                furc_hash(group.as_bytes(), self.total)
            }
            None => furc_hash(key, self.total),
        }
    }

    /// Passes on the digits of the bucket's number, which are hashed instead of the key.
    pub(super) fn digits<R>(&self, part: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
        let mut digits = [0; DIGITS_MAX];
        let mut rest = &mut digits[..];
        // Ten digits suffice for any number.
        let _ = write!(rest, "{}", self.of(part));
        let len = DIGITS_MAX - rest.len();
        then(digits.get(..len).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers are those in mcrouter's own test of its McBucketRoute.
    #[test]
    fn bucket_numbers_match_mcrouter() {
        let by_prefix = [("asdf", 1), ("qwert", 20), ("zxcv", 25)]
            .map(|(name, count)| (name.to_owned(), count));
        let buckets = Buckets {
            total: 1_000_000,
            by_prefix: by_prefix.to_vec(),
            salt: String::new(),
            keyspace: String::new(),
        };
        for (key, bucket) in [
            ("getReq", 755_248),
            ("asdf:getReq", 304_678),
            ("asdf:getReq2", 304_678),
            ("asdfgetReqanything", 304_678),
        ] {
            assert_eq!(buckets.of(key.as_bytes()), bucket, "{key}");
        }
        let salted = Buckets { salt: "someSalt".to_owned(), ..buckets.clone() };
        assert_eq!(salted.of(b"getReq"), buckets.of(b"getReqsomeSalt"));
        buckets.digits(b"getReq", |digits| assert_eq!(digits, b"755248"));
    }
}
