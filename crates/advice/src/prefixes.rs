//! Prefixes whose fast-changing keys evict those of others: they should have a separate pool
//! (*Scaling Memcache at Facebook*, section 3.2.2, figure 5).

use crate::tier::{Member, Tier};
use crate::{Advice, Rank};

/// Ratio of a day's working set to an hour's, for changing keys.
const CHURN: f64 = 4.0;

/// The same ratio, for stable keys.
const STEADY: f64 = 2.0;

/// The part of the memory from which a prefix evicts others.
const LARGE: f64 = 0.25;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    tier.servers().filter_map(part).collect()
}

/// A prefix of the working set: bytes in an hour and in a day.
struct Prefix<'m> {
    name: &'m str,
    hour: f64,
    day: f64,
}

fn part(member: &Member) -> Option<Advice> {
    if member.grown("evictions") == 0.0 {
        return None;
    }
    let prefixes: Vec<Prefix<'_>> = prefixes(member).collect();
    let limit = member.number("limit_maxbytes");
    let changing = prefixes
        .iter()
        .filter(|one| one.day >= one.hour * CHURN && one.day >= limit * LARGE)
        .max_by(|one, other| one.day.total_cmp(&other.day))?;
    let steady = prefixes
        .iter()
        .filter(|one| one.day < one.hour * STEADY)
        .max_by(|one, other| one.hour.total_cmp(&other.hour))?;
    Some(Advice {
        rank: Rank::Worth,
        rule: "pool-of-its-own",
        members: vec![member.address.clone()],
        finding: format!(
            "The keys of {}: change and evict those of {}:, which do not change. Use separate pools.",
            changing.name, steady.name
        ),
        evidence: format!(
            "{}: {:.1} times its hour in a day, {:.0} % of -m; {}: {:.1} times",
            changing.name,
            changing.day / changing.hour.max(1.0),
            changing.day / limit * 100.0,
            steady.name,
            steady.day / steady.hour.max(1.0)
        ),
        command: "PrefixSelectorRoute with a pool for it (docs/router.md), or max-bytes in \
                  -o namespaces"
            .to_owned(),
        weight: 30.0,
    })
}

fn prefixes(member: &Member) -> impl Iterator<Item = Prefix<'_>> {
    member.now.stats.keys().filter_map(|name| {
        let prefix = name.strip_prefix("workingset:day:")?.strip_suffix(":mean_bytes")?;
        let of = |time: &str| member.now.number(&format!("workingset:{time}:{prefix}:mean_bytes"));
        Some(Prefix { name: prefix, hour: of("hour")?, day: of("day")? })
    })
}
