//! Ketama: points of all servers on a circle of 2^32; a key belongs to the first point at or after
//! its hash.

use crate::digest::{KeyHash, md5_words};

/// Points of a server in libmemcached without weights.
const POINTS: u32 = 100;
/// Points of an average server with weights, four per digest.
const WEIGHTED_POINTS: f32 = 160.0;
const POINTS_PER_DIGEST: u32 = 4;

/// The circle of one pool, sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Continuum {
    /// Value and server. Of equal values the earlier server in the original's list comes first.
    points: Vec<(u32, u32)>,
}

impl Continuum {
    /// Without weights: 100 points per server, each the `hash` of `name-0`, `name-1`, ...
    ///
    /// libmemcached's `KETAMA` and `CONSISTENT`, with names from [`libmemcached_name`].
    pub(crate) fn unweighted(names: &[String], hash: KeyHash) -> Self {
        let mut points = Vec::with_capacity(names.len().saturating_mul(POINTS as usize));
        for (server, name) in (0..).zip(names) {
            for point in 0..POINTS {
                points.push((hash.hash(format!("{name}-{point}").as_bytes()), server));
            }
        }
        Self::sorted(points)
    }

    /// With weights: about 160 points for a server of average weight, four from each MD5 of
    /// `name-0`, `name-1`, ...
    ///
    /// libmemcached's `KETAMA_WEIGHTED`, and twemproxy's `ketama`. Servers are an index with a name
    /// and a weight.
    pub(crate) fn weighted(servers: &[(u32, &(String, u32))]) -> Self {
        let total: u64 = servers.iter().map(|(_, (_, weight))| u64::from(*weight)).sum();
        let mut points = Vec::new();
        for (order, (_, (name, weight))) in (0..).zip(servers) {
            for digest in 0..digests(*weight, total, servers.len()) {
                let values = md5_words(format!("{name}-{digest}").as_bytes());
                points.extend(values.map(|value| (value, order)));
            }
        }
        let mut circle = Self::sorted(points);
        for (_, server) in &mut circle.points {
            *server = servers.get(*server as usize).map_or(0, |(index, _)| *index);
        }
        circle
    }

    fn sorted(mut points: Vec<(u32, u32)>) -> Self {
        points.sort_unstable();
        Self { points }
    }

    /// The server of a hash; 0 if there are no points.
    pub(crate) fn server(&self, hash: u32) -> u32 {
        let at = self.points.partition_point(|(value, _)| *value < hash);
        self.points.get(at).or_else(|| self.points.first()).map_or(0, |(_, server)| *server)
    }

    /// `true` if it has no point: without servers, or if all weights are too small.
    pub(crate) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// The number of a server's digests. All in 32-bit floats, whose rounding decides at the edges.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the originals' arithmetic"
)]
fn digests(weight: u32, total: u64, servers: usize) -> u32 {
    let share = weight as f32 / total as f32;
    let per_digest = POINTS_PER_DIGEST as f32;
    (share * WEIGHTED_POINTS / per_digest * servers as f32 + 1e-10).floor() as u32
}

/// A server's name on libmemcached's circle: port 11211 is left out. twemproxy does the same for
/// servers without a configured name.
#[must_use]
pub fn libmemcached_name(host: &str, port: u16) -> String {
    if port == 11211 { host.to_owned() } else { format!("{host}:{port}") }
}

/// A server's name on the circle of libmemcached's `KETAMA_SPY`, which is spymemcached's for
/// addresses without a name.
pub(crate) fn spymemcached_name(host: &str, port: u16) -> String {
    format!("/{host}:{port}")
}
