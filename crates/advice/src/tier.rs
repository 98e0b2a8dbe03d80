//! The members of a tier and the numbers used by rules.

use tools::{Reading, Role};

/// A member that answered.
#[derive(Clone, Debug)]
pub struct Member {
    /// `HOST:PORT` or `unix:PATH`.
    pub address: String,
    /// The answer before the last one, an interval earlier.
    pub before: Reading,
    /// The last answer.
    pub now: Reading,
}

/// A tier as its members describe it.
#[derive(Clone, Debug, Default)]
pub struct Tier {
    /// The members that answered.
    pub members: Vec<Member>,
    /// The others, each with the reason.
    pub away: Vec<(String, String)>,
}

impl Tier {
    pub(crate) fn of(&self, role: Role) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.now.role == role)
    }

    pub(crate) fn servers(&self) -> impl Iterator<Item = &Member> {
        self.of(Role::Server)
    }
}

impl Member {
    /// A statistic, 0 if the member does not report it.
    pub(crate) fn number(&self, name: &str) -> f64 {
        self.now.number(name).unwrap_or(0.0)
    }

    /// The growth of a count between the answers; 0 after a reset.
    pub(crate) fn grown(&self, name: &str) -> f64 {
        (self.number(name) - self.before.number(name).unwrap_or(0.0)).max(0.0)
    }

    /// The growth of a count, per second.
    pub(crate) fn rate(&self, name: &str) -> f64 {
        let seconds = self.now.at.duration_since(self.before.at).as_secs_f64();
        if seconds > 0.0 { self.grown(name) / seconds } else { 0.0 }
    }

    /// The part of `-m` used by items.
    pub(crate) fn fullness(&self) -> f64 {
        let limit = self.number("limit_maxbytes");
        // Free chunks and the table are a part of the limit that items cannot use.
        let taken = self.number("arena_bytes").max(self.number("bytes"));
        if limit > 0.0 { taken / limit } else { 0.0 }
    }

    /// The predicted hit ratio at a multiple of the current memory, if enough reads were sampled.
    pub(crate) fn hit_ratio_at(&self, memory: &str) -> Option<f64> {
        (self.number("mrc:sampled_reads") >= SAMPLED_READS_MIN)
            .then(|| self.now.number(&format!("mrc:{memory}:hit_ratio")))
            .flatten()
    }

    /// The share of gets that hit, since the start or the last reset.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let (hits, misses) = (self.number("get_hits"), self.number("get_misses"));
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }
}

/// Minimum number of sampled reads for a curve.
const SAMPLED_READS_MIN: f64 = 2000.0;

/// The median; 0 for none.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// Bytes in MB of 1024 KB, as in `-m`.
pub(crate) fn megabytes(bytes: f64) -> f64 {
    bytes / 1_048_576.0
}
