//! Comparisons of servers: too many of them, one with more than its share, a cold one, and
//! different versions.

use std::collections::BTreeSet;

use crate::tier::{Member, Tier, median};
use crate::{Advice, Rank};

/// The multiple of the median from which a server is overloaded.
const UNEVEN: f64 = 2.0;

/// Maximum time after its start for which a server is cold.
const COLD_SECONDS: f64 = 3600.0;

/// Percentage points of hits that a cold server lacks.
const COLD_POINTS: f64 = 0.1;

/// The part of processors and memory that the remaining servers may use.
const COMFORT: f64 = 0.5;

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    let servers: Vec<&Member> = tier.servers().collect();
    let found = [uneven(&servers), too_many(&servers), versions(&servers)];
    found.into_iter().flatten().chain(cold(&servers)).collect()
}

fn uneven(servers: &[&Member]) -> Option<Advice> {
    let rate = |member: &Member| member.rate("cmd_get");
    let usual = median(servers.iter().map(|member| rate(member)).collect());
    let most = servers.iter().max_by(|one, other| rate(one).total_cmp(&rate(other)))?;
    let is_uneven = servers.len() >= 3 && usual >= 100.0 && rate(most) >= usual * UNEVEN;
    is_uneven.then(|| Advice {
        rank: Rank::Worth,
        rule: "uneven-load",
        members: vec![most.address.clone()],
        finding: "The server has more than twice the load of the others.".to_owned(),
        evidence: format!("{:.0} gets a second; the median is {usual:.0}", rate(most)),
        command: "'stats hotkeys' there; else weights or the hash of the pool (docs/router.md)"
            .to_owned(),
        weight: 25.0,
    })
}

fn too_many(servers: &[&Member]) -> Option<Advice> {
    let has_settled = servers.iter().all(|member| member.number("uptime") >= COLD_SECONDS);
    let is_calm = servers.iter().all(|member| member.grown("evictions") == 0.0);
    if servers.len() < 2 || !has_settled || !is_calm {
        return None;
    }
    let count = servers.len() as f64;
    let cpu = |member: &&&Member| member.rate("rusage_user") + member.rate("rusage_system");
    let threads: f64 = servers.iter().map(|member| member.number("threads").max(1.0)).sum();
    let busy = servers.iter().map(|member| cpu(&member)).sum::<f64>() / threads;
    let full = servers.iter().map(|member| member.fullness()).sum::<f64>() / count;
    // A manual reading of ten idle seconds does not prove that a tier is idle.
    let gets: f64 = servers.iter().map(|member| member.rate("cmd_get")).sum();
    let needed = (count * (busy / COMFORT).max(full / 0.9)).ceil().max(1.0);
    (gets > 0.0 && needed <= count / 2.0).then(|| Advice {
        rank: Rank::Worth,
        rule: "fewer-servers",
        members: servers.iter().map(|member| member.address.clone()).collect(),
        finding: format!("{needed} of the {count} servers would do, if this is the peak."),
        evidence: format!(
            "processors {:.0} % busy, memory {:.0} % used, nothing evicted",
            busy * 100.0,
            full * 100.0
        ),
        command: "holdall plan size, with the load of the peak".to_owned(),
        weight: 5.0 + count - needed,
    })
}

fn versions(servers: &[&Member]) -> Option<Advice> {
    let versions: BTreeSet<&str> = servers.iter().map(|member| member.now.version()).collect();
    (versions.len() > 1).then(|| Advice {
        rank: Rank::Note,
        rule: "several-versions",
        members: servers.iter().map(|member| member.address.clone()).collect(),
        finding: "The servers are of several versions.".to_owned(),
        evidence: versions.into_iter().collect::<Vec<_>>().join(", "),
        command: "--takeover by the newer one".to_owned(),
        weight: 1.0,
    })
}

fn cold(servers: &[&Member]) -> Vec<Advice> {
    let warm = servers.iter().filter(|member| member.number("uptime") >= COLD_SECONDS);
    let usual = median(warm.filter_map(|member| member.hit_ratio()).collect());
    let young = servers.iter().filter(|member| member.number("uptime") < COLD_SECONDS);
    let cold = young.filter_map(|member| Some((member, member.hit_ratio()?)));
    let cold = cold.filter(|(_, ratio)| *ratio + COLD_POINTS <= usual);
    cold.map(|(member, ratio)| Advice {
        rank: Rank::Worth,
        rule: "cold-server",
        members: vec![member.address.clone()],
        finding: "The server is cold: reads go to the database until it is filled.".to_owned(),
        evidence: format!(
            "hit ratio {ratio:.3}, {usual:.3} of the others; up for {:.0} s",
            member.number("uptime")
        ),
        command: "WarmUpRoute from a warm cluster (docs/router.md); -e keeps items over restarts"
            .to_owned(),
        weight: 28.0,
    })
    .collect()
}
