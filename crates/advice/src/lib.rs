//! Derives recommended changes from the statistics of a tier: `holdall plan advise`.
//!
//! ```text
//!     Tier (two readings of every member) -> rules, one a file -> Advice, the most urgent first
//! ```
//!
//! A rule sees the whole tier and gives at most one advice per member. It needs sufficient numbers:
//! a server that has just started, or takes no samples, gets no advice on memory.
#![forbid(unsafe_code)]

mod connections;
mod expiry;
mod health;
mod hot_keys;
mod load;
mod memory;
mod prefixes;
mod tier;

use serde::{Serialize, Serializer};

pub use tier::{Member, Tier};

/// The urgency of an advice.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Rank {
    /// Requests fail, or hits are lost that are cheap to gain.
    Now,
    /// Money or hits to gain.
    Worth,
    /// Information.
    Note,
}

impl Rank {
    /// The word for people and for JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::Worth => "worth it",
            Self::Note => "note",
        }
    }
}

impl Serialize for Rank {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

/// One thing to change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The urgency.
    pub rank: Rank,
    /// The rule's name: a few words with hyphens, for programs.
    pub rule: &'static str,
    /// The addresses of the members that it is about.
    pub members: Vec<String>,
    /// The state and the remedy, in a sentence.
    pub finding: String,
    /// The numbers behind it.
    pub evidence: String,
    /// The command or the setting for the change.
    pub command: String,
    /// Among those of equal rank, greater ones come first.
    #[serde(skip)]
    weight: f64,
}

/// All advice for a tier, most urgent first.
#[must_use]
pub fn advise(tier: &Tier) -> Vec<Advice> {
    const RULES: [fn(&Tier) -> Vec<Advice>; 7] = [
        health::advise,
        connections::advise,
        hot_keys::advise,
        memory::advise,
        prefixes::advise,
        load::advise,
        expiry::advise,
    ];
    let mut all: Vec<Advice> = RULES.iter().flat_map(|rule| rule(tier)).collect();
    all.sort_by(|one, other| {
        one.rank.cmp(&other.rank).then_with(|| other.weight.total_cmp(&one.weight))
    });
    all
}

#[cfg(test)]
mod tests;
