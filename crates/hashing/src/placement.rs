//! The mapping of keys to server indices for one pool, by any algorithm.

use crate::ch3::{POOL_SIZE_MAX, acceptance, furc_hash, joined, weighted_ch3};
use crate::continuum::{Continuum, libmemcached_name, spymemcached_name};
use crate::digest::KeyHash;
use crate::jump::jump;
use crate::key::shard_id;
use crate::rendezvous::{name_hash, rendezvous, weighted_rendezvous};

/// The reason why a pool cannot be placed as requested.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum PlacementError {
    /// No server.
    #[error("a pool needs a server")]
    Empty,
    /// More servers than the algorithm can name.
    #[error("a pool has at most {POOL_SIZE_MAX} servers")]
    TooMany,
    /// Ch3 weights are shares of the traffic that a server accepts.
    #[error("weight {0} is not within 0 and 1")]
    WeightRange(f64),
    /// Other weights must not be negative, infinite, or all zero.
    #[error("the weights leave no server to choose")]
    NoWeight,
}

/// The placement of keys in one pool. Made once, then shared.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    servers: u32,
    way: Way,
}

#[derive(Clone, Debug, PartialEq)]
enum Way {
    Ch3,
    ConstShard,
    Crc32,
    Jump { seed: u64 },
    Ketama { hash: KeyHash, continuum: Continuum },
    Modula { hash: KeyHash },
    Rendezvous(Box<[u64]>),
    Slots { hash: KeyHash, slots: Box<[u32]> },
    WeightedCh3(Box<[u32]>),
    WeightedRendezvous(Box<[(u64, f64)]>),
}

impl Placement {
    fn new(servers: usize, way: Way) -> Result<Self, PlacementError> {
        match u32::try_from(servers) {
            Ok(0) => Err(PlacementError::Empty),
            Ok(servers) if servers <= POOL_SIZE_MAX => Ok(Self { servers, way }),
            _ => Err(PlacementError::TooMany),
        }
    }

    /// mcrouter's default.
    ///
    /// # Errors
    ///
    /// No server, or more than [`POOL_SIZE_MAX`]; the same for all of these.
    pub fn ch3(servers: usize) -> Result<Self, PlacementError> {
        Self::new(servers, Way::Ch3)
    }

    /// mcrouter's `WeightedCh3`: each server with the share of its keys that it accepts, 0 to 1.
    ///
    /// # Errors
    ///
    /// A weight outside of 0 and 1; and as for [`Placement::ch3`].
    pub fn weighted_ch3(weights: &[f64]) -> Result<Self, PlacementError> {
        if let Some(weight) = weights.iter().find(|weight| !(0.0..=1.0).contains(*weight)) {
            return Err(PlacementError::WeightRange(*weight));
        }
        let acceptances = weights.iter().map(|weight| acceptance(*weight)).collect();
        Self::new(weights.len(), Way::WeightedCh3(acceptances))
    }

    /// mcrouter's `Crc32`: the CRC-32 without its sign, modulo the pool.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn crc32(servers: usize) -> Result<Self, PlacementError> {
        Self::new(servers, Way::Crc32)
    }

    /// mcrouter's `ConstShard`: `x:7:y` lives on server 7; a key without a number below the pool
    /// size is placed by Ch3.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn const_shard(servers: usize) -> Result<Self, PlacementError> {
        Self::new(servers, Way::ConstShard)
    }

    /// mcrouter's `Rendezvous` over these tags.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn rendezvous<T: AsRef<[u8]>>(tags: &[T]) -> Result<Self, PlacementError> {
        let names = tags.iter().map(|tag| name_hash(tag.as_ref())).collect();
        Self::new(tags.len(), Way::Rendezvous(names))
    }

    /// mcrouter's `WeightedRendezvous`.
    ///
    /// # Errors
    ///
    /// Weights that are negative, infinite or all zero; and as for [`Placement::ch3`].
    pub fn weighted_rendezvous<T: AsRef<[u8]>>(
        servers: &[(T, f64)],
    ) -> Result<Self, PlacementError> {
        let wrong = |weight: f64| !weight.is_finite() || weight < 0.0;
        if servers.iter().any(|(_, weight)| wrong(*weight))
            || (!servers.is_empty() && servers.iter().all(|(_, weight)| *weight == 0.0))
        {
            return Err(PlacementError::NoWeight);
        }
        let names = servers.iter().map(|(tag, weight)| (name_hash(tag.as_ref()), *weight));
        Self::new(servers.len(), Way::WeightedRendezvous(names.collect()))
    }

    /// The default of memcached's proxy: XXH3, then jump hash.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn jump(servers: usize, seed: u64) -> Result<Self, PlacementError> {
        Self::new(servers, Way::Jump { seed })
    }

    /// The hash modulo the pool: libmemcached's and twemproxy's `modula`.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn modula(servers: usize, hash: KeyHash) -> Result<Self, PlacementError> {
        Self::new(servers, Way::Modula { hash })
    }

    /// twemproxy's `modula` over the names and weights of the servers: a server's weight is its
    /// number of entries.
    ///
    /// # Errors
    ///
    /// All weights zero, or a sum above [`POOL_SIZE_MAX`]; and as for [`Placement::ch3`].
    pub fn twemproxy_modula(
        servers: &[(String, u32)],
        hash: KeyHash,
    ) -> Result<Self, PlacementError> {
        let total: u64 = servers.iter().map(|(_, weight)| u64::from(*weight)).sum();
        if total > u64::from(POOL_SIZE_MAX) {
            return Err(PlacementError::TooMany);
        }
        if total == 0 && !servers.is_empty() {
            return Err(PlacementError::NoWeight);
        }
        let slots = twemproxy_order(servers).into_iter();
        let slots = slots.flat_map(|(server, (_, weight))| (0..*weight).map(move |_| server));
        Self::new(servers.len(), Way::Slots { hash, slots: slots.collect() })
    }

    /// twemproxy's `ketama` over the names and weights of the servers.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ketama_weighted`].
    pub fn twemproxy_ketama(
        servers: &[(String, u32)],
        hash: KeyHash,
    ) -> Result<Self, PlacementError> {
        Self::ketama_of(&twemproxy_order(servers), hash)
    }

    /// libmemcached's ketama without weights: `MEMCACHED_BEHAVIOR_KETAMA`, and its older
    /// `CONSISTENT`.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ch3`].
    pub fn ketama(servers: &[(&str, u16)], hash: KeyHash) -> Result<Self, PlacementError> {
        let names: Vec<_> =
            servers.iter().map(|(host, port)| libmemcached_name(host, *port)).collect();
        Self::new(names.len(), Way::Ketama { hash, continuum: Continuum::unweighted(&names, hash) })
    }

    /// libmemcached's `MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED`, with [`KeyHash::Md5`] unless the client
    /// chose another.
    ///
    /// # Errors
    ///
    /// Weights so small that no server has a point; and as for [`Placement::ch3`].
    pub fn ketama_weighted(
        servers: &[(&str, u16, u32)],
        hash: KeyHash,
    ) -> Result<Self, PlacementError> {
        Self::ketama_with_names(servers, hash, libmemcached_name)
    }

    /// libmemcached's weighted `KETAMA_SPY`, which is spymemcached's for servers given by address.
    /// No configuration of holdall selects it; it is for users of this crate.
    ///
    /// # Errors
    ///
    /// As for [`Placement::ketama_weighted`].
    pub fn ketama_spy(servers: &[(&str, u16, u32)], hash: KeyHash) -> Result<Self, PlacementError> {
        Self::ketama_with_names(servers, hash, spymemcached_name)
    }

    fn ketama_with_names(
        servers: &[(&str, u16, u32)],
        hash: KeyHash,
        name: fn(&str, u16) -> String,
    ) -> Result<Self, PlacementError> {
        let named = servers.iter().map(|(host, port, weight)| (name(host, *port), *weight));
        let named: Vec<_> = named.collect();
        Self::ketama_of(&(0..).zip(&named).collect::<Vec<_>>(), hash)
    }

    fn ketama_of(servers: &[(u32, &(String, u32))], hash: KeyHash) -> Result<Self, PlacementError> {
        let continuum = Continuum::weighted(servers);
        if continuum.is_empty() && !servers.is_empty() {
            return Err(PlacementError::NoWeight);
        }
        Self::new(servers.len(), Way::Ketama { hash, continuum })
    }

    /// The number of servers that it chooses among.
    #[must_use]
    pub fn servers(&self) -> u32 {
        self.servers
    }

    /// The index of the key's server, below [`Placement::servers`]. `key` is the part to hash: see
    /// [`crate::key`].
    #[must_use]
    pub fn pick(&self, key: &[u8]) -> u32 {
        if self.servers == 1 {
            return 0;
        }
        match &self.way {
            Way::Ch3 => furc_hash(key, self.servers),
            Way::ConstShard => match shard_id(key) {
                Some(id) if id < self.servers => id,
                _ => furc_hash(key, self.servers),
            },
            Way::Crc32 => (crc32fast::hash(key) & 0x7fff_ffff) % self.servers,
            Way::Jump { seed } => jump(key, *seed, self.servers),
            Way::Ketama { hash, continuum } => continuum.server(hash.hash(key)),
            Way::Modula { hash } => hash.hash(key) % self.servers,
            Way::Rendezvous(names) => rendezvous(key, names),
            Way::Slots { hash, slots } => {
                let slot = hash.hash(key) as usize % slots.len().max(1);
                slots.get(slot).copied().unwrap_or_default()
            }
            Way::WeightedCh3(acceptances) => weighted_ch3(key, acceptances),
            Way::WeightedRendezvous(servers) => weighted_rendezvous(key, servers),
        }
    }

    /// The index for `key` with mcrouter's `salt` appended.
    #[must_use]
    pub fn pick_salted(&self, key: &[u8], salt: &[u8]) -> u32 {
        if salt.is_empty() {
            return self.pick(key);
        }
        joined(key, salt, |key| self.pick(key))
    }
}

/// The servers with their indices, as twemproxy sorts them: short names first, those of one length
/// by their bytes.
fn twemproxy_order(servers: &[(String, u32)]) -> Vec<(u32, &(String, u32))> {
    let mut sorted: Vec<_> = (0..).zip(servers).collect();
    sorted.sort_by_key(|(_, (name, _))| (name.len(), name));
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_pools_are_refused() {
        assert_eq!(Placement::ch3(0), Err(PlacementError::Empty));
        assert_eq!(Placement::ch3(POOL_SIZE_MAX as usize + 1), Err(PlacementError::TooMany));
        assert_eq!(Placement::weighted_ch3(&[]), Err(PlacementError::Empty));
        for weight in [-0.1, 1.1, f64::INFINITY] {
            let refused = Placement::weighted_ch3(&[0.5, weight]);
            assert_eq!(refused, Err(PlacementError::WeightRange(weight)));
        }
        assert!(Placement::weighted_ch3(&[f64::NAN]).is_err());
        assert_eq!(Placement::weighted_rendezvous(&[("a", 0.0)]), Err(PlacementError::NoWeight));
        assert_eq!(Placement::weighted_rendezvous::<&str>(&[]), Err(PlacementError::Empty));
        let servers = |weight| [("a".to_owned(), weight), ("b".to_owned(), weight)];
        let hash = KeyHash::Md5;
        assert_eq!(Placement::twemproxy_modula(&servers(0), hash), Err(PlacementError::NoWeight));
        assert_eq!(
            Placement::twemproxy_modula(&servers(u32::MAX), hash),
            Err(PlacementError::TooMany)
        );
        assert_eq!(Placement::twemproxy_ketama(&servers(0), hash), Err(PlacementError::NoWeight));
    }

    #[test]
    fn a_salt_is_appended_to_keys_of_any_length() {
        let placement = Placement::ch3(1000).unwrap();
        for bytes in [1, 100, 319, 320, 321, 5000] {
            let key = vec![b'k'; bytes];
            let joined = [&key[..], b"salt"].concat();
            assert_eq!(placement.pick_salted(&key, b"salt"), placement.pick(&joined), "{bytes}");
        }
    }
}
