//! Hashes: the choice of a pool's server, or of one child of several, by the key.

use hashing::key::{before, before_hash_stop, inside_hash_tag, inside_tags};
use hashing::{KeyHash, Placement, PlacementError};

use super::buckets::Buckets;

/// A hash function with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Hash {
    /// The function.
    pub function: HashFunction,
    /// Appended to the key.
    pub salt: String,
    /// The hashed part of the key.
    pub key_part: KeyPart,
    /// If set, the number of the key's bucket is hashed instead of the key.
    pub buckets: Option<Box<Buckets>>,
}

/// The part of a key that is hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyPart {
    /// mcrouter: up to `|#|`.
    #[default]
    BeforeHashStop,
    /// memcached's proxy with `filter = "stop"`: up to this text.
    Before(Box<str>),
    /// twemproxy with `hash_tag`: between these two.
    HashTag([u8; 2]),
    /// memcached's proxy with `filter = "tags"`: between these two, even if that is empty.
    Tags([u8; 2]),
    /// Both without, and libmemcached: `filter = "none"`.
    Whole,
}

impl KeyPart {
    /// The hashed part of a key without its routing prefix.
    #[must_use]
    pub fn of<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        match self {
            Self::BeforeHashStop => before_hash_stop(key),
            Self::Before(stop) => before(key, stop.as_bytes()),
            Self::HashTag(tag) => inside_hash_tag(key, *tag),
            Self::Tags(tags) => inside_tags(key, *tags),
            Self::Whole => key,
        }
    }
}

/// mcrouter's hash functions by their names there, and those of libmemcached, memcached's proxy and
/// twemproxy.
#[derive(Clone, Debug, PartialEq)]
pub enum HashFunction {
    /// The default.
    Ch3,
    /// `ConstShard`.
    ConstShard,
    /// `Crc32`.
    Crc32,
    /// Not mcrouter's: XXH3 and jump hash, the default of memcached's proxy.
    Jump {
        /// `seed`; for a text, its XXH3.
        seed: u64,
    },
    /// Not mcrouter's: libmemcached's ketama over the addresses of a pool.
    Ketama {
        /// `key_hash`.
        hash: KeyHash,
        /// `KetamaWeighted`: 160 points for a server of average weight, not 100 for each. One
        /// weight for each server; without any, all are equal.
        weights: Option<Vec<u32>>,
    },
    /// Not mcrouter's: the hash modulo the pool.
    Modula {
        /// `key_hash`.
        hash: KeyHash,
    },
    /// `Rendezvous`.
    Rendezvous {
        /// One for each child.
        tags: Vec<String>,
    },
    /// twemproxy's `ketama`: names and weights.
    TwemproxyKetama {
        /// `hash`.
        hash: KeyHash,
        /// One for each server.
        servers: Vec<(String, u32)>,
    },
    /// twemproxy's `modula`: names and weights.
    TwemproxyModula {
        /// `hash`.
        hash: KeyHash,
        /// One for each server.
        servers: Vec<(String, u32)>,
    },
    /// `WeightedCh3`; one weight for each child.
    WeightedCh3 {
        /// 0 to 1.
        weights: Vec<f64>,
    },
    /// `WeightedCh3Rv`: a variable of the runtime-vars file sets the weights.
    WeightedCh3Rv {
        /// The name of the variable.
        variable: String,
        /// The weights without the variable, one for each child.
        without: Vec<f64>,
    },
    /// `WeightedRendezvous`; tag and weight of each child.
    WeightedRendezvous {
        /// Tag and weight.
        servers: Vec<(String, f64)>,
    },
}

impl HashFunction {
    /// Its name in configurations.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ch3 => "Ch3",
            Self::ConstShard => "ConstShard",
            Self::Crc32 => "Crc32",
            Self::Jump { .. } => "Jump",
            Self::Ketama { weights: None, .. } => "Ketama",
            Self::Ketama { weights: Some(_), .. } => "KetamaWeighted",
            Self::Modula { .. } => "Modula",
            Self::Rendezvous { .. } => "Rendezvous",
            Self::TwemproxyKetama { .. } => "twemproxy's ketama",
            Self::TwemproxyModula { .. } => "twemproxy's modula",
            Self::WeightedCh3 { .. } => "WeightedCh3",
            Self::WeightedCh3Rv { .. } => "WeightedCh3Rv",
            Self::WeightedRendezvous { .. } => "WeightedRendezvous",
        }
    }
}

impl Hash {
    /// Ch3 without salt: the default.
    #[must_use]
    pub fn ch3() -> Self {
        Self {
            function: HashFunction::Ch3,
            salt: String::new(),
            key_part: KeyPart::BeforeHashStop,
            buckets: None,
        }
    }

    /// The placement over `children`; `addresses` are their hosts and ports, which ketama needs.
    ///
    /// # Errors
    ///
    /// [`PlacementError`]; for children of a checked configuration only [`PlacementError::Empty`].
    pub fn placement(
        &self,
        children: usize,
        addresses: &[(&str, u16)],
    ) -> Result<Placement, PlacementError> {
        match &self.function {
            HashFunction::Ch3 => Placement::ch3(children),
            HashFunction::ConstShard => Placement::const_shard(children),
            HashFunction::Crc32 => Placement::crc32(children),
            HashFunction::Jump { seed } => Placement::jump(children, *seed),
            HashFunction::Ketama { hash, weights: Some(weights) } => {
                let weights = weights.iter().copied().chain(std::iter::repeat(1));
                let servers = addresses.iter().zip(weights);
                let servers: Vec<_> =
                    servers.map(|((host, port), weight)| (*host, *port, weight)).collect();
                Placement::ketama_weighted(&servers, *hash)
            }
            HashFunction::Ketama { hash, weights: None } => Placement::ketama(addresses, *hash),
            HashFunction::Modula { hash } => Placement::modula(children, *hash),
            HashFunction::Rendezvous { tags } => Placement::rendezvous(tags),
            HashFunction::TwemproxyKetama { hash, servers } => {
                Placement::twemproxy_ketama(servers, *hash)
            }
            HashFunction::TwemproxyModula { hash, servers } => {
                Placement::twemproxy_modula(servers, *hash)
            }
            HashFunction::WeightedCh3 { weights }
            | HashFunction::WeightedCh3Rv { without: weights, .. } => {
                Placement::weighted_ch3(weights)
            }
            HashFunction::WeightedRendezvous { servers } => Placement::weighted_rendezvous(servers),
        }
    }

    /// The child in a placement of [`Hash::placement`] for a key without routing prefix.
    #[must_use]
    pub fn pick(&self, placement: &Placement, key: &[u8]) -> u32 {
        self.pick_part(placement, self.key_part.of(key))
    }

    /// The child in such a placement for a key whose hashed part is `part`.
    #[inline]
    #[must_use]
    pub fn pick_part(&self, placement: &Placement, part: &[u8]) -> u32 {
        let pick = |part: &[u8]| placement.pick_salted(part, self.salt.as_bytes());
        match &self.buckets {
            None => pick(part),
            Some(buckets) => buckets.digits(part, pick),
        }
    }
}
