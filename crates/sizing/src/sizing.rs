//! From an input to the result: every candidate, and the cheapest.

use std::path::Path;

use serde::Serialize;

use crate::candidate::Candidate;
use crate::input::{Input, InputError, Limits, Scenario};
use crate::money::Cheapest;
use crate::tier::{Demand, HitSummary, Items, Tier};

/// Web servers for each cache server, the guide's starting point (section 4.3.1).
const GUIDES_WEB_SERVERS: f64 = 4.0;

/// The answer.
#[derive(Clone, Debug, Serialize)]
pub struct Sizing {
    /// The scenario.
    pub scenario: Scenario,
    /// The limits that the number of servers keeps.
    pub limits: Limits,
    /// The requests.
    pub demand: Demand,
    /// The items.
    pub items: Items,
    /// Hits and memory.
    pub hits: HitSummary,
    /// The guide's rule of thumb, if the number of web servers is known.
    pub rule: Option<Rule>,
    /// Every candidate, in the order of the file.
    pub candidates: Vec<Candidate>,
    /// The index of the cheapest candidate.
    pub cheapest: usize,
    /// The measure of the comparison.
    pub cheapest_by: Cheapest,
}

/// One cache server for every four web servers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Rule {
    /// Cache servers.
    pub servers: f64,
    /// Gets per second of each on average.
    pub gets_each: f64,
}

/// Sizes the tier of `input`; `path` is its file, for errors.
///
/// # Errors
///
/// An entry that is missing, contradicts another, or requests the impossible.
pub fn size(input: &Input, path: &Path) -> Result<Sizing, InputError> {
    let tier = Tier::new(input, path)?;
    let candidates: Result<Vec<_>, _> =
        input.platforms.iter().map(|platform| tier.candidate(platform)).collect();
    let candidates = candidates.map_err(|why| InputError::new(path, why))?;
    let (cheapest, cheapest_by) = cheapest(&candidates);
    let rule = input.load.web_servers.map(|web| {
        let servers = (web / GUIDES_WEB_SERVERS).ceil();
        Rule { servers, gets_each: tier.demand.average / servers }
    });
    Ok(Sizing {
        scenario: input.scenario,
        limits: tier.limits,
        demand: tier.demand,
        items: tier.items,
        hits: tier.hits,
        rule,
        candidates,
        cheapest,
        cheapest_by,
    })
}

/// The index of the cheapest; the first of equals.
fn cheapest(candidates: &[Candidate]) -> (usize, Cheapest) {
    let by = |value: fn(&Candidate) -> Option<f64>| -> Option<usize> {
        let values: Option<Vec<f64>> = candidates.iter().map(value).collect();
        let values = values?;
        (0..values.len()).min_by(|one, other| values[*one].total_cmp(&values[*other]))
    };
    by(|candidate| candidate.money.map(|money| money.total))
        .map(|index| (index, Cheapest::Money))
        .or_else(|| Some((by(|candidate| candidate.watts)?, Cheapest::Watts)))
        .unwrap_or_else(|| {
            (by(|candidate| Some(candidate.servers)).unwrap_or(0), Cheapest::Servers)
        })
}
