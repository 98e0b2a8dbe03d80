//! Members that are unavailable or report a fault themselves.

use tools::Role;

use crate::tier::{Member, Tier};
use crate::{Advice, Rank};

pub(crate) fn advise(tier: &Tier) -> Vec<Advice> {
    let away = tier.away.iter().map(|(address, why)| Advice {
        rank: Rank::Now,
        rule: "member-away",
        members: vec![address.clone()],
        finding: "It does not answer: its keys are misses, or go to the gutter.".to_owned(),
        evidence: why.clone(),
        command: format!("holdall ping {address}; then its journal"),
        weight: 100.0,
    });
    let proxies = tier.of(Role::Proxy).filter_map(proxy);
    let invalidators = tier.of(Role::Invalidator).filter_map(invalidator);
    let refused = tier.servers().filter_map(refused_allocations);
    away.chain(proxies).chain(invalidators).chain(refused).collect()
}

fn proxy(member: &Member) -> Option<Advice> {
    let (away, all) = (member.number("num_suspect_servers"), member.number("num_servers"));
    (away > 0.0).then(|| Advice {
        rank: Rank::Now,
        rule: "servers-knocked-out",
        members: vec![member.address.clone()],
        finding: format!("The proxy sends nothing to {away} of its {all} servers: they failed."),
        evidence: format!("num_suspect_servers {away}, num_servers {all}"),
        command: "'stats suspect_servers' at the proxy names them".to_owned(),
        weight: 90.0,
    })
}

fn invalidator(member: &Member) -> Option<Advice> {
    // A waiting invalidator follows nothing.
    if member.now.number("working") == Some(0.0) {
        return None;
    }
    let late = member.now.of_clusters("canary_late").any(|late| late > 0.0);
    let away = member.now.of_clusters("connected").any(|connected| connected == 0.0);
    let is_cut = member.now.number("source_connected") == Some(0.0);
    let gaps = member.grown("gaps");
    let why = if is_cut {
        "source_connected 0: the database's log is not followed"
    } else if away {
        "a cluster is not connected"
    } else if late {
        "canary_late 1: no change is known to have arrived for two intervals"
    } else if member.now.number("check_late").is_some_and(|late| late > 0.0) {
        "check_late 1: no check of the log has passed for three intervals"
    } else if gaps > 0.0 {
        "gaps grew: a part of the log could not be understood"
    } else {
        return None;
    };
    Some(Advice {
        rank: Rank::Now,
        rule: "deletes-not-delivered",
        members: vec![member.address.clone()],
        finding: "Old values may stay in caches: changes of the database do not arrive.".to_owned(),
        evidence: why.to_owned(),
        command: "holdall invalidate check; docs/alerts.md has the steps".to_owned(),
        weight: 95.0,
    })
}

fn refused_allocations(member: &Member) -> Option<Advice> {
    let refused = member.grown("malloc_fails");
    (refused > 0.0).then(|| Advice {
        rank: Rank::Now,
        rule: "allocations-refused",
        members: vec![member.address.clone()],
        finding: "The system refuses memory: connections are closed to go on.".to_owned(),
        evidence: format!("malloc_fails grew by {refused}"),
        command: "a smaller -m, or a larger MemoryMax= of the unit; holdall doctor".to_owned(),
        weight: 80.0,
    })
}
