//! `bucketize`: keys are counted into buckets, and mcrouter's weighted hashes choose a server by
//! the bucket's number.

use std::io::Write;

use hashing::furc_hash;

/// The digits of a bucket's number, at most.
const DIGITS_MAX: usize = 10;

/// The rule by which keys are counted into buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// `total_buckets`.
    pub total: u32,
    /// `total_buckets_by_prefix`: all keys that begin so are in as many buckets, at most. The
    /// longest prefix counts.
    pub by_prefix: Vec<(String, u32)>,
    /// `salt`: put behind the key.
    pub salt: String,
    /// `bucketization_keyspace`: whose buckets these are, for people.
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

    /// Tells the number of the key's bucket in digits, which is what is hashed in the key's place.
    pub(super) fn digits<R>(&self, part: &[u8], then: impl FnOnce(&[u8]) -> R) -> R {
        let mut digits = [0; DIGITS_MAX];
        let mut rest = &mut digits[..];
        // Ten digits are room for any.
        let _ = write!(rest, "{}", self.of(part));
        let len = DIGITS_MAX - rest.len();
        then(digits.get(..len).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are those that mcrouter's own test of its McBucketRoute expects.
    #[test]
    fn buckets_have_the_numbers_of_mcrouter() {
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
